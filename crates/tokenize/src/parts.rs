//! Content parts of a message.

use serde_json::Value;

/// Whether a content part is an image, a video or audio.
pub(crate) fn is_media(part: &Value) -> bool {
    const MEDIA: [&str; 9] = [
        "image_url", "image_pil", "image_embeds", "image", "input_image", "video_url", "audio_url", "audio_embeds", "input_audio",
    ];
    match part.get("type").and_then(Value::as_str) {
        Some(kind) => MEDIA.contains(&kind),
        None => ["image_url", "video_url", "audio_url"].iter().any(|key| part.get(key).is_some()),
    }
}
