//! Content parts of a message, as vLLM sorts them.

use serde_json::{Map, Value};

/// What a content part is.
pub(crate) enum Part<'a> {
    /// Text, and the object it came in (for fields that templates may read).
    Text(&'a str, Option<&'a Map<String, Value>>),
    /// An image, a video or audio.
    Media(&'static str, &'a Map<String, Value>),
    /// A reference to a tool whose loading is deferred.
    ToolReference(&'a str),
    /// Text without content: left out.
    Empty,
}

const MEDIA: [(&str, &str); 9] = [
    ("image_url", "image"),
    ("input_image", "image"),
    ("image_pil", "image"),
    ("image_embeds", "image"),
    ("audio_url", "audio"),
    ("input_audio", "audio"),
    ("audio_embeds", "audio"),
    ("video_url", "video"),
    ("video_embeds", "video"),
];

/// Fields of the part types that vLLM knows; others reach the template.
const KNOWN_FIELDS: [&str; 17] = [
    "type",
    "text",
    "refusal",
    "image_url",
    "input_audio",
    "file",
    "audio_url",
    "video_url",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "uuid",
    "data",
    "thinking",
    "closed",
    "name",
];

impl<'a> Part<'a> {
    /// Sorts one part; `None` if vLLM would refuse it.
    pub(crate) fn of(part: &'a Value) -> Option<Self> {
        let object = match part {
            Value::String(text) => return Some(Self::Text(text, None)),
            Value::Object(object) => object,
            _ => return None,
        };
        let text = |field: &str| match object.get(field) {
            None | Some(Value::Null) => Some(Self::Empty),
            Some(Value::String(text)) => Some(Self::Text(text, Some(object))),
            Some(_) => None,
        };
        let identified = object.get("uuid").is_some_and(|uuid| !uuid.is_null());
        match object.get("type") {
            Some(Value::String(kind)) if !identified => match kind.as_str() {
                "text" | "input_text" | "output_text" => text("text"),
                "thinking" => text("thinking"),
                "refusal" => text("refusal"),
                "tool_reference" => Some(Self::ToolReference(object.get("name")?.as_str()?)),
                kind => MEDIA
                    .iter()
                    .find(|(name, _)| *name == kind)
                    .map(|(_, is)| Self::Media(is, object)),
            },
            None | Some(Value::Null | Value::String(_)) => MEDIA
                .iter()
                .find(|(name, _)| object.contains_key(*name))
                .map(|(_, is)| Self::Media(is, object)),
            Some(_) => None,
        }
    }
}

/// Fields of a part that are none of vLLM's.
pub(crate) fn extra_fields(part: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    part.iter()
        .filter(|(name, _)| !KNOWN_FIELDS.contains(&name.as_str()))
}

/// Whether a content part is an image, a video or audio.
pub(crate) fn is_media(part: &Value) -> bool {
    matches!(Part::of(part), Some(Part::Media(..)))
}
