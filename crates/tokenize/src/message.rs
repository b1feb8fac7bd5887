//! Messages as the client sent them, their texts in the form that templates take them in.

use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A message of a chat, as the client sent it. A long chat is mostly the text of its messages: it is
/// copied out of the body once, and shared from then on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    role: Option<String>,
    text: Option<Arc<str>>,
    /// Neither `role` nor `content` if they are strings.
    others: Map<String, Value>,
}

impl Message {
    /// Who speaks; `None` if the client did not say, or not with a string, or sent no object at all.
    pub fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// `content`, if it is a string.
    pub fn text(&self) -> Option<&Arc<str>> {
        self.text.as_ref()
    }

    /// A field that is neither the role nor [`Self::text`], such as `content` that is a list.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.others.get(field)
    }

    /// A field came, perhaps once more: the last counts.
    fn set(&mut self, field: Cow<'_, str>, value: Value) {
        match (&*field, value) {
            ("role", Value::String(role)) => {
                self.role = Some(role);
                self.others.shift_remove("role");
            }
            ("content", Value::String(text)) => self.set_text(text.into()),
            (name, value) => {
                match name {
                    "role" => self.role = None,
                    "content" => self.text = None,
                    _ => {}
                }
                self.others.insert(field.into_owned(), value);
            }
        }
    }

    fn set_text(&mut self, text: Arc<str>) {
        self.text = Some(text);
        self.others.shift_remove("content");
    }
}

/// What a body has under `messages`.
#[derive(Debug, Clone, PartialEq)]
pub enum Messages {
    /// A list, as it should be.
    List(Vec<Message>),
    /// `null`.
    Null,
    /// Anything else.
    Other,
}

/// The body of `/v1/chat/completions`, read without a tree of its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatBody {
    /// `messages`; `None` where there are none.
    pub messages: Option<Messages>,
    /// All other fields.
    pub fields: Map<String, Value>,
}

impl From<Value> for Message {
    fn from(value: Value) -> Self {
        let mut message = Self::default();
        if let Value::Object(fields) = value {
            for (field, value) in fields {
                message.set(field.into(), value);
            }
        }
        message
    }
}

impl From<&Message> for Value {
    fn from(message: &Message) -> Self {
        let Message { role, text, others } = message;
        let mut fields = Map::new();
        fields.extend(role.clone().map(|role| ("role".to_owned(), role.into())));
        fields.extend(text.as_deref().map(|text| ("content".to_owned(), text.into())));
        fields.extend(others.clone());
        Self::Object(fields)
    }
}

impl From<Message> for Value {
    fn from(message: Message) -> Self {
        (&message).into()
    }
}

impl From<Value> for Messages {
    fn from(value: Value) -> Self {
        match value {
            Value::Array(messages) => Self::List(messages.into_iter().map(Message::from).collect()),
            Value::Null => Self::Null,
            _ => Self::Other,
        }
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        shape(deserializer)
    }
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        shape(deserializer)
    }
}

impl<'de> Deserialize<'de> for ChatBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BodyVisitor;

        impl<'de> Visitor<'de> for BodyVisitor {
            type Value = ChatBody;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ChatBody, A::Error> {
                let mut body = ChatBody::default();
                while let Some(Name(name)) = entries.next_key()? {
                    if name == "messages" {
                        body.messages = Some(entries.next_value()?);
                    } else {
                        body.fields.insert(name.into_owned(), entries.next_value()?);
                    }
                }
                Ok(body)
            }
        }

        deserializer.deserialize_map(BodyVisitor)
    }
}

/// A key, borrowed unless it holds escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is made of a JSON value; by default, of the tree that it would be.
trait Shape: Sized {
    fn tree(value: Value) -> Self;

    fn text(text: &str) -> Self {
        Self::tree(text.into())
    }

    fn list<'de, A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(items)).map(Self::tree)
    }

    fn object<'de, A: MapAccess<'de>>(entries: A) -> Result<Self, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(entries)).map(Self::tree)
    }
}

impl Shape for Messages {
    fn tree(value: Value) -> Self {
        value.into()
    }

    fn list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = items.next_element()? {
            messages.push(message);
        }
        Ok(Self::List(messages))
    }
}

impl Shape for Message {
    fn tree(value: Value) -> Self {
        value.into()
    }

    fn object<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        let mut message = Self::default();
        while let Some(Name(name)) = entries.next_key()? {
            if name == "content" {
                match entries.next_value()? {
                    Content::Text(text) => message.set_text(text),
                    Content::Tree(value) => message.set(name, value),
                }
            } else {
                message.set(name, entries.next_value()?);
            }
        }
        Ok(message)
    }
}

enum Content {
    Text(Arc<str>),
    Tree(Value),
}

impl Shape for Content {
    fn tree(value: Value) -> Self {
        Self::Tree(value)
    }

    fn text(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        shape(deserializer)
    }
}

fn shape<'de, S: Shape, D: Deserializer<'de>>(deserializer: D) -> Result<S, D::Error> {
    deserializer.deserialize_any(ShapeVisitor(PhantomData))
}

struct ShapeVisitor<S>(PhantomData<S>);

impl<'de, S: Shape> Visitor<'de> for ShapeVisitor<S> {
    type Value = S;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<S, E> {
        Ok(S::tree(Value::Null))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<S, E> {
        Ok(S::tree(truth.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<S, E> {
        Ok(S::tree(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<S, E> {
        Ok(S::tree(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<S, E> {
        Ok(S::tree(
            Number::from_f64(number).map_or(Value::Null, Value::Number),
        ))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<S, E> {
        Ok(S::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<S, A::Error> {
        S::list(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<S, A::Error> {
        S::object(entries)
    }
}
