//! A message's content on its way to the template.

use std::{ops::Deref, sync::Arc};

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::conversation::{BILLING_HEADER, MEDIA_MARK, Rules, without_billing};
use crate::message::Message;
use crate::parts::{Part, extra_fields};
use crate::template::ContentFormat;
use crate::values::value;

/// Text, copied only where something had to be done to it.
pub(crate) enum Text<'a> {
    /// As the client sent it.
    Sent(&'a Arc<str>),
    /// A part of what the client sent.
    Part(&'a str),
    /// Put together here.
    Made(String),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Sent(text) => text,
            Self::Part(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl Text<'_> {
    fn push_str(&mut self, more: &str) {
        match self {
            Self::Made(text) => text.push_str(more),
            _ => *self = Self::Made([self, more].concat()),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Sent(text) => Value::from(text),
            Self::Part(text) => Value::from(text),
            Self::Made(text) => Value::from(text),
        }
    }
}

pub(crate) enum Content<'a> {
    Text(Text<'a>),
    Parts(Vec<PartOut<'a>>),
}

pub(crate) enum PartOut<'a> {
    Text(Text<'a>, Option<&'a Map<String, Json>>),
    Other(Value),
}

impl<'a> Content<'a> {
    /// `None` if vLLM would refuse it.
    pub(crate) fn parse(role: &str, message: &'a Message, rules: Rules) -> Option<Self> {
        if let Some(sent) = message.text() {
            let text = if role == "system" && sent.starts_with(BILLING_HEADER) {
                Text::Part(without_billing(sent).unwrap_or_default())
            } else {
                Text::Sent(sent)
            };
            return Some(match rules.format {
                ContentFormat::String => Self::Text(text),
                ContentFormat::Parts => Self::Parts(vec![PartOut::Text(text, None)]),
            });
        }
        let parts = match message.get("content") {
            None | Some(Json::Null) => &[][..],
            Some(Json::Array(parts)) => parts,
            Some(_) => return None,
        };
        let mut out = Vec::with_capacity(parts.len());
        let mut media = 0;
        for part in parts {
            match Part::of(part)? {
                Part::Empty => {}
                Part::Text(text, object) => {
                    let kept = if role == "system" {
                        without_billing(text)
                    } else {
                        Some(text)
                    };
                    out.extend(kept.map(|text| PartOut::Text(Text::Part(text), object)));
                }
                Part::ToolReference(name) => out.push(match rules.format {
                    ContentFormat::String => PartOut::Text(Text::Part(name), None),
                    ContentFormat::Parts => {
                        PartOut::Other(Value::from_pairs([("type", "tool_reference"), ("name", name)]))
                    }
                }),
                Part::Media(..) if rules.mark_media && rules.format == ContentFormat::Parts => {
                    out.push(PartOut::Text(Text::Part(MEDIA_MARK), None));
                }
                Part::Media(kind, object) => {
                    media += 1;
                    if rules.format == ContentFormat::Parts {
                        let first = [("type".to_owned(), Value::from(kind))];
                        let extra = extra_fields(object).map(|(name, item)| (name.clone(), value(item)));
                        out.push(PartOut::Other(Value::from_pairs(first.into_iter().chain(extra))));
                    }
                }
            }
        }
        if rules.format == ContentFormat::Parts {
            return Some(Self::Parts(out));
        }
        // the engine puts its placeholders before the text of such a message
        let marks = if rules.mark_media { media } else { 0 };
        let marks = std::iter::repeat_n(MEDIA_MARK, marks);
        let texts = out.iter().filter_map(|part| match part {
            PartOut::Text(text, _) if !text.is_empty() => Some(&**text),
            _ => None,
        });
        let joined = marks.chain(texts).collect::<Vec<_>>().join("\n");
        Some(Self::Text(Text::Made(joined)))
    }

    /// Tool answers made of text only become one string in either format.
    pub(crate) fn join_text(&mut self) {
        let Self::Parts(parts) = self else { return };
        let texts = parts.iter().map(|part| match part {
            PartOut::Text(text, _) => Some(&**text),
            PartOut::Other(_) => None,
        });
        if let Some(texts) = texts.collect::<Option<Vec<_>>>() {
            *self = Self::Text(Text::Made(texts.join("\n")));
        }
    }

    /// Appends to the last text; false if there is none.
    pub(crate) fn push_str(&mut self, more: &str) -> bool {
        let last = match self {
            Self::Text(text) => Some(text),
            Self::Parts(parts) => parts.iter_mut().rev().find_map(|part| match part {
                PartOut::Text(text, _) => Some(text),
                PartOut::Other(_) => None,
            }),
        };
        last.map(|text| text.push_str(more)).is_some()
    }

    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Text(text) => text.into_value(),
            Self::Parts(parts) => parts.into_iter().map(PartOut::into_value).collect(),
        }
    }

    /// Text for a merged system message.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => (&**text).into(),
            Self::Parts(parts) => {
                let texts = parts.iter().filter_map(|part| match part {
                    PartOut::Text(text, _) => Some(&**text),
                    PartOut::Other(_) => None,
                });
                texts.collect::<Vec<_>>().join("\n").into()
            }
        }
    }
}

impl PartOut<'_> {
    fn into_value(self) -> Value {
        match self {
            Self::Other(value) => value,
            Self::Text(text, object) => {
                let first = [
                    ("type".to_owned(), Value::from("text")),
                    ("text".to_owned(), text.into_value()),
                ];
                let extra = object.into_iter().flat_map(extra_fields);
                Value::from_pairs(
                    first
                        .into_iter()
                        .chain(extra.map(|(name, item)| (name.clone(), value(item)))),
                )
            }
        }
    }
}
