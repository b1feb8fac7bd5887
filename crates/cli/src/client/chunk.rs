//! What one chunk of a streamed completion says.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Token counts that the engine reports at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt length.
    pub prompt_tokens: u64,
    /// Prompt tokens that came from the prefix cache; `None` when the engine does not say.
    pub cached_tokens: Option<u64>,
    /// Answer length.
    pub output_tokens: u64,
}

/// One `data:` of the stream, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// `[DONE]`.
    Done,
    /// An error object in the stream: the engine gave up.
    Error(String),
    /// Anything else.
    Part {
        /// It carries generated output.
        output: bool,
        /// It carries usage.
        usage: Option<Usage>,
    },
    /// Not JSON.
    Unreadable,
}

impl Chunk {
    /// Reads one event's data. Chat's opening chunk (a role, no content) is not output; a chunk with an empty text
    /// is: its token ended inside a character.
    pub fn read(data: &[u8]) -> Self {
        if data.trim_ascii() == b"[DONE]" {
            return Self::Done;
        }
        let Ok(wire) = serde_json::from_slice::<Wire>(data) else {
            return Self::Unreadable;
        };
        let Wire {
            choices,
            usage,
            error,
        } = wire;
        if let Some(error) = error {
            return Self::Error(message(&error));
        }
        let output = choices.iter().any(Choice::is_output);
        Self::Part {
            output,
            usage: usage.map(WireUsage::into_usage),
        }
    }
}

/// The text of an OpenAI error body, `{"error": {"message": …}}`, `{"error": "…"}` or whatever it is.
pub fn error_message(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(value) => message(value.get("error").unwrap_or(&value)),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(200) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

fn message(error: &serde_json::Value) -> String {
    let text = error.get("message").unwrap_or(error);
    text.as_str().map_or_else(|| text.to_string(), str::to_owned)
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<WireUsage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<IgnoredAny>,
    delta: Option<Delta>,
}

impl Choice {
    fn is_output(&self) -> bool {
        let Self { text, delta } = self;
        text.is_some() || delta.as_ref().is_some_and(Delta::is_output)
    }
}

#[derive(Deserialize)]
struct Delta {
    role: Option<IgnoredAny>,
    content: Option<Empty>,
    reasoning: Option<IgnoredAny>,
    reasoning_content: Option<IgnoredAny>,
    tool_calls: Option<IgnoredAny>,
}

impl Delta {
    fn is_output(&self) -> bool {
        let Self {
            role,
            content,
            reasoning,
            reasoning_content,
            tool_calls,
        } = self;
        content
            .as_ref()
            .is_some_and(|content| !content.0 || role.is_none())
            || reasoning.is_some()
            || reasoning_content.is_some()
            || tool_calls.is_some()
    }
}

/// Whether a text is empty, without keeping it.
struct Empty(bool);

impl<'de> Deserialize<'de> for Empty {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Empty;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<Empty, E> {
                Ok(Empty(text.is_empty()))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

impl WireUsage {
    fn into_usage(self) -> Usage {
        let Self {
            prompt_tokens,
            completion_tokens,
            prompt_tokens_details,
        } = self;
        Usage {
            prompt_tokens,
            cached_tokens: prompt_tokens_details.and_then(|details| details.cached_tokens),
            output_tokens: completion_tokens.unwrap_or(0),
        }
    }
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams of vLLM 0.32; see testdata/README.md.
    fn chunks(capture: &str) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        super::super::sse::SseParser::default()
            .push(capture.as_bytes(), |data| chunks.push(Chunk::read(data)))
            .unwrap();
        chunks
    }

    fn part(output: bool) -> Chunk {
        Chunk::Part { output, usage: None }
    }

    #[test]
    fn a_captured_chat_stream_opens_without_output_and_ends_with_usage() {
        let chunks = chunks(include_str!("../../testdata/chat-stream-usage.sse"));
        let usage = Usage {
            prompt_tokens: 122,
            cached_tokens: Some(112),
            output_tokens: 6,
        };
        let mut expected = vec![part(false)];
        expected.extend(vec![part(true); 6]);
        expected.extend([
            Chunk::Part {
                output: false,
                usage: Some(usage),
            },
            Chunk::Done,
        ]);
        assert_eq!(chunks, expected);
    }

    #[test]
    fn a_captured_completion_stream_outputs_from_its_first_chunk() {
        let chunks = chunks(include_str!("../../testdata/completion-stream-usage.sse"));
        let usage = Usage {
            prompt_tokens: 123,
            cached_tokens: Some(112),
            output_tokens: 6,
        };
        let mut expected = vec![part(true); 6];
        expected.extend([
            Chunk::Part {
                output: false,
                usage: Some(usage),
            },
            Chunk::Done,
        ]);
        assert_eq!(chunks, expected);
    }

    #[test]
    fn an_engine_that_dies_says_so_in_the_stream() {
        let chunks = chunks(include_str!("../../testdata/death-open-stream.sse"));
        assert!(chunks[..4].iter().all(|chunk| *chunk == part(true)), "{chunks:?}");
        let error = chunks.iter().find_map(|chunk| match chunk {
            Chunk::Error(message) => Some(message.as_str()),
            _ => None,
        });
        assert!(error.unwrap().starts_with("EngineCore encountered an issue"));
    }

    #[test]
    fn usage_without_cache_figures_and_null_usage_are_told_apart() {
        let read = |text: &str| Chunk::read(text.as_bytes());
        let usage = Usage {
            prompt_tokens: 3,
            cached_tokens: None,
            output_tokens: 1,
        };
        assert_eq!(
            read(
                r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":null}}"#
            ),
            Chunk::Part {
                output: false,
                usage: Some(usage)
            }
        );
        assert_eq!(
            read(r#"{"choices":[{"delta":{"content":""}}],"usage":null}"#),
            part(true)
        );
        assert_eq!(read(r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#), part(true));
        assert_eq!(read("nonsense"), Chunk::Unreadable);
    }

    #[test]
    fn error_bodies_become_one_short_line() {
        assert_eq!(
            error_message(br#"{"error":{"message":"no\n endpoint"}}"#),
            "no endpoint"
        );
        assert_eq!(error_message(br#"{"error":"Unauthorized"}"#), "Unauthorized");
        assert_eq!(error_message(b"upstream connect error"), "upstream connect error");
        assert_eq!(error_message("é".repeat(300).as_bytes()).chars().count(), 201);
    }
}
