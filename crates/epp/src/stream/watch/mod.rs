//! Watching an answer pass by: the first generated output and the engine's own count of cached tokens.
//!
//! Nothing is kept of the answer but a few dozen bytes of parser state, wherever its chunks are cut.

mod json;
mod sse;

use json::{Key, Scanner, Seen};
use sse::Events;

/// Watches one answer's body.
#[derive(Debug)]
pub(crate) struct Watcher {
    body: Body,
    findings: Findings,
}

#[derive(Debug)]
enum Body {
    /// Server-sent events, each with a JSON document.
    Events(Box<Events>),
    /// One JSON document.
    Plain(Box<Scanner>),
    /// Compressed or of another kind: only that bytes come is seen.
    Opaque,
}

/// What was seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Generated output passed by.
    pub(crate) output: bool,
    /// Prompt tokens that the engine found in its cache; the last figure if there are several.
    pub(crate) cached_tokens: Option<u64>,
    /// Tokens that it generated, likewise.
    pub(crate) output_tokens: Option<u64>,
    /// Events of a stream that carried output.
    pub(crate) output_events: u64,
}

impl Watcher {
    /// For an answer with these headers (lower case; parameters of the content type are ignored).
    pub(crate) fn new(content_type: &str, content_encoding: Option<&str>) -> Self {
        let encoded = content_encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity"));
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let body = if encoded {
            Body::Opaque
        } else if kind.eq_ignore_ascii_case("text/event-stream") {
            Body::Events(Box::default())
        } else if kind.eq_ignore_ascii_case("application/json") {
            Body::Plain(Box::default())
        } else {
            Body::Opaque
        };
        Self {
            body,
            findings: Findings::default(),
        }
    }

    /// The next bytes of the body. O(bytes).
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let findings = &mut self.findings;
        match &mut self.body {
            Body::Events(events) => events.push(bytes, findings),
            Body::Plain(scanner) => {
                findings.output |= !bytes.is_empty();
                scanner.push(bytes, &mut |path, seen| findings.usage(path, seen));
            }
            Body::Opaque => findings.output |= !bytes.is_empty(),
        }
    }

    /// What was seen so far.
    pub(crate) fn findings(&self) -> Findings {
        self.findings
    }
}

impl Findings {
    /// Cached and generated tokens, as OpenAI's three APIs and Anthropic's name them. Streams of the last two put the usage
    /// inside `response` or `message`.
    fn usage(&mut self, path: &[Key], seen: Seen<'_>) {
        let usage = match path {
            [Key::Other, inner @ ..] => inner,
            whole => whole,
        };
        let Seen::Number(tokens) = seen else {
            return;
        };
        match usage {
            [
                Key::Usage,
                Key::PromptTokensDetails | Key::InputTokensDetails,
                Key::CachedTokens,
            ]
            | [Key::Usage, Key::CacheReadInputTokens] => self.cached_tokens = Some(tokens),
            [Key::Usage, Key::CompletionTokens | Key::OutputTokens] => self.output_tokens = Some(tokens),
            _ => {}
        }
    }

    /// Generated output in the document of one event: a delta or a text of a choice, or a type that says so.
    /// `response.created`, `response.in_progress`, `message_start` and `ping` are none, and a usage has no choices.
    /// True if this value is.
    fn output(&mut self, path: &[Key], seen: Seen<'_>) -> bool {
        let is_output = match (path, seen) {
            ([Key::Choices, Key::Element, Key::Delta], Seen::Object)
            | ([Key::Choices, Key::Element, Key::Text], Seen::String(_))
            | ([Key::Choices, Key::Element, Key::TokenIds], Seen::Array) => true,
            ([Key::Type], Seen::String(name)) => is_output_event(name),
            _ => false,
        };
        self.output |= is_output;
        is_output
    }
}

/// Names of events that carry generated output.
fn is_output_event(name: &[u8]) -> bool {
    name == b"content_block_delta" || (name.starts_with(b"response.") && name.ends_with(b".delta"))
}

#[cfg(test)]
mod tests;
