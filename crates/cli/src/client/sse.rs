//! Server-sent events from bytes that may be cut anywhere.

/// Longest event that is taken; a usual one has 250 bytes.
const MOST_BYTES: usize = 1 << 20;

/// An event beyond [`MOST_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {} MiB", MOST_BYTES >> 20)]
pub struct EventTooLong;

/// Splits a byte stream into the `data` of its events (WHATWG HTML §9.2.6: lines end in LF, CRLF or CR; several data
/// lines are joined by LF; comments and other fields are passed over). Memory: one event.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl SseParser {
    /// Takes the next bytes and calls `each` with the data of every event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let (head, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.line.is_empty() {
                self.end_line(head, &mut each)?;
            } else {
                self.line.extend_from_slice(head);
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut each)?;
                self.line = line;
                self.line.clear();
            }
            bytes = match (bytes[end], rest.first()) {
                (b'\r', Some(b'\n')) => &rest[1..],
                (b'\r', None) => {
                    self.after_cr = true;
                    rest
                }
                _ => rest,
            };
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() + self.data.len() > MOST_BYTES {
            Err(EventTooLong)
        } else {
            Ok(())
        }
    }

    fn end_line(&mut self, line: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                each(&self.data);
                self.data.clear();
            }
            return Ok(());
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => return Ok(()),
        };
        if self.data.len() + value.len() > MOST_BYTES {
            return Err(EventTooLong);
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser
                .push(piece, |data| {
                    events.push(String::from_utf8_lossy(data).into_owned());
                })
                .unwrap();
        }
        events
    }

    #[test]
    fn every_line_ending_comment_and_field_of_the_standard_is_understood() {
        let stream = b": comment\ndata: a\n\ndata:b\r\n\r\nevent: x\rid: 1\rdata:  c\r\rdata\ndata: d\n\n\n\nretry: 1\n\ndatax: no\n\ndata: cut";
        assert_eq!(parse([&stream[..]]), ["a", "b", " c", "\nd"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = SseParser::default();
        let line = [b"data: ".to_vec(), vec![b'x'; 1 << 16]].concat();
        let refused = (0..32).map(|_| parser.push(&line, |_| {})).find(Result::is_err);
        assert_eq!(refused, Some(Err(EventTooLong)));
        let mut parser = SseParser::default();
        let line = [&line[..], b"\n"].concat();
        let refused = (0..32).map(|_| parser.push(&line, |_| {})).find(Result::is_err);
        assert_eq!(refused, Some(Err(EventTooLong)));
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_does_not_matter(
            lines in proptest::collection::vec(
                (prop_oneof!["data: ?[a-c:]{0,4}", "", ":[a-c]{0,2}", "event: x", "data"], prop_oneof!["\n", "\r\n", "\r"]),
                0..24,
            ),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let stream: Vec<u8> = lines.iter().flat_map(|(line, end)| [line.as_bytes(), end.as_bytes()].concat()).collect();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for to in at.into_iter().chain([stream.len()]) {
                pieces.push(&stream[from..to]);
                from = to;
            }
            prop_assert_eq!(parse(pieces), model(&stream));
        }
    }

    /// The standard's algorithm on the whole text at once.
    fn model(stream: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(stream)
            .replace("\r\n", "\n")
            .replace('\r', "\n");
        let mut events = Vec::new();
        let mut data: Vec<&str> = Vec::new();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in if text.contains('\n') {
            complete.split('\n')
        } else {
            "".split('\n')
        } {
            if line.is_empty() {
                if !data.is_empty() {
                    events.push(data.join("\n"));
                }
                data.clear();
            } else if line == "data" {
                data.push("");
            } else if let Some(value) = line.strip_prefix("data:") {
                data.push(value.strip_prefix(' ').unwrap_or(value));
            }
        }
        events
    }
}
