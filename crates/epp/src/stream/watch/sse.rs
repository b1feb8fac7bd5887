//! Server-sent events, cut anywhere: lines, fields, and the JSON of their data.

use super::{Findings, is_output_event, json::Scanner};

/// Names longer than this are cut; none that matters is.
const NAME: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the field name, this many bytes of it read.
    Field(usize),
    /// In the value of `data`.
    Data,
    /// In the value of `event`.
    Name,
    /// In a comment or another field.
    Skip,
}

/// Parser of an event stream.
#[derive(Debug)]
pub(super) struct Events {
    at: At,
    /// The last byte was a carriage return: a line feed now ends no further line.
    after_return: bool,
    field: [u8; 5],
    name: [u8; NAME],
    name_length: usize,
    data: Scanner,
    /// This event carried output.
    has_output: bool,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            at: At::Field(0),
            after_return: false,
            field: [0; 5],
            name: [0; NAME],
            name_length: 0,
            data: Scanner::default(),
            has_output: false,
        }
    }
}

impl Events {
    /// Reads on.
    pub(super) fn push(&mut self, mut bytes: &[u8], findings: &mut Findings) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r');
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if !line.is_empty() {
                self.after_return = false;
                self.line(line, findings);
            }
            let Some((&terminator, rest)) = rest.split_first() else {
                return;
            };
            if terminator == b'\r' || !self.after_return {
                self.end_line(findings);
            }
            self.after_return = terminator == b'\r';
            bytes = rest;
        }
    }

    /// Part of a line.
    fn line(&mut self, mut bytes: &[u8], findings: &mut Findings) {
        while let At::Field(length) = self.at {
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            bytes = rest;
            self.at = if byte == b':' {
                match &self.field[..length] {
                    b"data" => {
                        // some servers forget the blank line between events
                        if self.data.is_done() {
                            self.end_event(findings);
                        }
                        At::Data
                    }
                    b"event" => {
                        self.name_length = 0;
                        At::Name
                    }
                    _ => At::Skip,
                }
            } else if let Some(slot) = self.field.get_mut(length) {
                *slot = byte;
                At::Field(length + 1)
            } else {
                At::Skip
            };
        }
        match self.at {
            At::Data => self.data(bytes, findings),
            At::Name => {
                let bytes = if self.name_length == 0 {
                    bytes.trim_ascii_start()
                } else {
                    bytes
                };
                let taken = bytes.len().min(NAME - self.name_length);
                self.name[self.name_length..self.name_length + taken].copy_from_slice(&bytes[..taken]);
                self.name_length += taken;
            }
            At::Skip | At::Field(_) => {}
        }
    }

    fn end_line(&mut self, findings: &mut Findings) {
        match self.at {
            At::Field(0) => self.end_event(findings),
            At::Data => self.data(b"\n", findings),
            At::Name => {
                self.has_output |= is_output_event(&self.name[..self.name_length]);
                findings.output |= self.has_output;
            }
            At::Skip | At::Field(_) => {}
        }
        self.at = At::Field(0);
    }

    fn data(&mut self, bytes: &[u8], findings: &mut Findings) {
        let has_output = &mut self.has_output;
        self.data.push(bytes, &mut |path, seen| {
            *has_output |= findings.output(path, seen);
            findings.usage(path, seen);
        });
    }

    fn end_event(&mut self, findings: &mut Findings) {
        findings.output_events += u64::from(std::mem::take(&mut self.has_output));
        self.data.reset();
    }
}
