//! An incremental JSON scanner: bytes in, values at paths of interest out, wherever chunks are cut.
//!
//! It keeps a path of known keys and one short capture, never the document: memory is constant, time is
//! O(bytes). It checks no more syntax than it needs to stay in step; a document that it cannot follow
//! yields nothing further.

/// A key on the path to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Choices,
    Delta,
    Text,
    TokenIds,
    Type,
    Usage,
    PromptTokensDetails,
    InputTokensDetails,
    CachedTokens,
    CacheReadInputTokens,
    CompletionTokens,
    OutputTokens,
    /// An element of an array.
    Element,
    /// A key that nobody asked for.
    Other,
}

impl Key {
    fn of(name: &[u8]) -> Self {
        match name {
            b"choices" => Self::Choices,
            b"delta" => Self::Delta,
            b"text" => Self::Text,
            b"token_ids" => Self::TokenIds,
            b"type" => Self::Type,
            b"usage" => Self::Usage,
            b"prompt_tokens_details" => Self::PromptTokensDetails,
            b"input_tokens_details" => Self::InputTokensDetails,
            b"cached_tokens" => Self::CachedTokens,
            b"cache_read_input_tokens" => Self::CacheReadInputTokens,
            b"completion_tokens" => Self::CompletionTokens,
            b"output_tokens" => Self::OutputTokens,
            _ => Self::Other,
        }
    }
}

/// A value, as far as anybody looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen<'a> {
    /// An object began.
    Object,
    /// An array began.
    Array,
    /// A string ended; its first [`CAPTURE`] bytes, escapes as written.
    String(&'a [u8]),
    /// A whole number that is not negative.
    Number(u64),
    /// `null`, a boolean, any other number.
    Other,
}

const CAPTURE: usize = 64;
/// Paths longer than this are not reported.
const PATH: usize = 8;
/// Documents nested deeper than this are given up.
const DEPTH: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value (or the end of an empty array) comes next.
    Value,
    /// A key (or the end of an object) comes next.
    Key,
    Colon,
    AfterValue,
    Text {
        is_key: bool,
        escaped: bool,
    },
    Number,
    Literal,
    /// The document is complete, or cannot be followed.
    Done,
}

/// The scanner; one document until [`Scanner::reset`].
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    depth: u32,
    /// Bit d: the container at depth d is an object.
    objects: u64,
    path: [Key; PATH],
    capture: [u8; CAPTURE],
    captured: usize,
    /// The captured string was longer than the capture or held an escape: it is no known key.
    inexact: bool,
    /// `None` once it is no whole number.
    number: Option<u64>,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Value,
            depth: 0,
            objects: 0,
            path: [Key::Other; PATH],
            capture: [0; CAPTURE],
            captured: 0,
            inexact: false,
            number: None,
        }
    }
}

impl Scanner {
    /// Forgets the document.
    pub(super) fn reset(&mut self) {
        self.state = State::Value;
        self.depth = 0;
    }

    /// Whether the document is complete (or was given up).
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads on. `found` is called for every value with the keys that lead to it.
    pub(super) fn push(&mut self, mut bytes: &[u8], found: &mut impl FnMut(&[Key], Seen<'_>)) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = match self.state {
                State::Done => return,
                State::Text { is_key, escaped } => self.text(bytes, is_key, escaped, found),
                State::Number => match byte {
                    b'0'..=b'9' => {
                        self.number = self
                            .number
                            .and_then(|n| n.checked_mul(10)?.checked_add(u64::from(byte - b'0')));
                        rest
                    }
                    b'.' | b'e' | b'E' | b'+' | b'-' => {
                        self.number = None;
                        rest
                    }
                    _ => {
                        self.report(self.number.map_or(Seen::Other, Seen::Number), found);
                        self.after_value();
                        bytes
                    }
                },
                State::Literal => {
                    if byte.is_ascii_alphabetic() {
                        rest
                    } else {
                        self.report(Seen::Other, found);
                        self.after_value();
                        bytes
                    }
                }
                State::Value | State::Key | State::Colon | State::AfterValue => {
                    self.structure(byte, found);
                    rest
                }
            };
        }
    }

    /// One byte outside strings, numbers and literals.
    fn structure(&mut self, byte: u8, found: &mut impl FnMut(&[Key], Seen<'_>)) {
        match (self.state, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') => {}
            (State::Value, b'{') => self.open(true, found),
            (State::Value, b'[') => self.open(false, found),
            (State::Value, b'"') => self.begin_text(false),
            (State::Key, b'"') => self.begin_text(true),
            (State::Value, b'0'..=b'9' | b'-') => {
                self.state = State::Number;
                self.number = (byte != b'-').then(|| u64::from(byte.saturating_sub(b'0')));
            }
            (State::Value, b'a'..=b'z' | b'A'..=b'Z') => self.state = State::Literal,
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterValue, b',') => {
                self.state = if self.in_object() {
                    State::Key
                } else {
                    State::Value
                };
            }
            (State::AfterValue | State::Key, b'}') | (State::AfterValue | State::Value, b']')
                if self.depth > 0 =>
            {
                self.depth -= 1;
                self.after_value();
            }
            _ => self.state = State::Done,
        }
    }

    /// Reads on inside a string; returns what follows.
    fn text<'b>(
        &mut self,
        bytes: &'b [u8],
        is_key: bool,
        escaped: bool,
        found: &mut impl FnMut(&[Key], Seen<'_>),
    ) -> &'b [u8] {
        if escaped {
            self.inexact = true;
            self.capture(&bytes[..1]);
            self.state = State::Text {
                is_key,
                escaped: false,
            };
            return &bytes[1..];
        }
        let plain = bytes
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\')
            .unwrap_or(bytes.len());
        self.capture(&bytes[..plain]);
        let Some(&end) = bytes.get(plain) else {
            return &[];
        };
        if end == b'\\' {
            self.state = State::Text {
                is_key,
                escaped: true,
            };
        } else if is_key {
            let key = if self.inexact {
                Key::Other
            } else {
                Key::of(&self.capture[..self.captured])
            };
            if let Some(slot) = self.path.get_mut(self.depth as usize - 1) {
                *slot = key;
            }
            self.state = State::Colon;
        } else {
            self.report(Seen::String(&self.capture[..self.captured]), found);
            self.after_value();
        }
        &bytes[plain + 1..]
    }

    fn capture(&mut self, bytes: &[u8]) {
        let room = CAPTURE - self.captured;
        let taken = bytes.len().min(room);
        self.capture[self.captured..self.captured + taken].copy_from_slice(&bytes[..taken]);
        self.captured += taken;
        self.inexact |= taken < bytes.len();
    }

    fn begin_text(&mut self, is_key: bool) {
        self.captured = 0;
        self.inexact = false;
        self.state = State::Text {
            is_key,
            escaped: false,
        };
    }

    fn open(&mut self, object: bool, found: &mut impl FnMut(&[Key], Seen<'_>)) {
        self.report(if object { Seen::Object } else { Seen::Array }, found);
        if self.depth == DEPTH {
            self.state = State::Done;
            return;
        }
        if let Some(slot) = self.path.get_mut(self.depth as usize) {
            *slot = Key::Element;
        }
        let bit = 1_u64 << self.depth;
        self.objects = if object {
            self.objects | bit
        } else {
            self.objects & !bit
        };
        self.depth += 1;
        self.state = if object { State::Key } else { State::Value };
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.objects & (1 << (self.depth - 1)) != 0
    }

    fn after_value(&mut self) {
        self.state = if self.depth == 0 {
            State::Done
        } else {
            State::AfterValue
        };
    }

    fn report(&self, seen: Seen<'_>, found: &mut impl FnMut(&[Key], Seen<'_>)) {
        if let Some(path) = self.path.get(..self.depth as usize) {
            found(path, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Every reported value, printed.
    fn scan(chunks: &[&[u8]]) -> Vec<String> {
        let mut scanner = Scanner::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            scanner.push(chunk, &mut |path, value| {
                let value = match value {
                    Seen::String(text) => format!("{:?}", String::from_utf8_lossy(text)),
                    other => format!("{other:?}"),
                };
                seen.push(format!("{path:?} {value}"));
            });
        }
        seen
    }

    /// The same by way of a tree.
    fn walk(value: &Value, path: &mut Vec<Key>, seen: &mut Vec<String>) {
        if path.len() > PATH {
            return;
        }
        let shown = match value {
            Value::Null | Value::Bool(_) => format!("{:?}", Seen::Other),
            Value::Number(n) => n.as_u64().map_or_else(
                || format!("{:?}", Seen::Other),
                |n| format!("{:?}", Seen::Number(n)),
            ),
            Value::String(text) => format!("{text:?}"),
            Value::Array(_) => format!("{:?}", Seen::Array),
            Value::Object(_) => format!("{:?}", Seen::Object),
        };
        seen.push(format!("{path:?} {shown}"));
        match value {
            Value::Array(items) => {
                for item in items {
                    path.push(Key::Element);
                    walk(item, path, seen);
                    path.pop();
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    path.push(Key::of(name.as_bytes()));
                    walk(field, path, seen);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            (-1000_i64..0).prop_map(Value::from),
            (-1.0e9_f64..1.0e9).prop_map(Value::from),
            "[ a-zA-Z{}:,\\[\\]]{0,20}".prop_map(Value::from),
        ];
        let key = prop_oneof![
            Just("choices".to_owned()),
            Just("delta".to_owned()),
            Just("usage".to_owned()),
            Just("cached_tokens".to_owned()),
            "[a-z]{0,70}",
        ];
        leaf.prop_recursive(10, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn sees_what_a_parsed_tree_holds_however_it_is_cut(value in json(), pretty: bool, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let mut text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            text.push('\n'); // a number ends at what follows it
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let mut expected = Vec::new();
            walk(&value, &mut Vec::new(), &mut expected);
            prop_assert_eq!(scan(&chunks), expected);
        }

        #[test]
        fn never_panics_and_never_reports_beyond_its_path(bytes in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'['), Just(b'"'), Just(b'\\'), Just(b':'), Just(b','), Just(b'}'), Just(b']'), any::<u8>()], 0..300)) {
            let mut scanner = Scanner::default();
            scanner.push(&bytes, &mut |path, _| assert!(path.len() <= PATH));
        }
    }

    #[test]
    fn a_document_nested_too_deep_is_given_up() {
        let mut text = "[".repeat(100);
        text.push_str(r#"{"usage":1}"#);
        let mut scanner = Scanner::default();
        scanner.push(text.as_bytes(), &mut |_, _| {});
        assert!(scanner.is_done());
    }

    #[test]
    fn an_escaped_key_is_no_known_key() {
        assert_eq!(scan(&[br#"{"us\u0061ge":1}"#])[1], "[Other] Number(1)");
    }
}
