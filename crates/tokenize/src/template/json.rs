//! `tojson` as chat templates know it: Python's `json.dumps`, byte for byte.
//!
//! Jinja's own filter escapes HTML; `transformers` replaces it with
//! `json.dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Nesting that is refused, so that a crafted value cannot exhaust the stack.
const DEEPEST: usize = 200;
/// Bytes of JSON that one unit of fuel pays for (the engine's own rate for serialized output).
const BYTES_PER_FUEL: usize = 4;

/// The filter: `value | tojson(ensure_ascii, indent, separators, sort_keys)`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over by value"
)]
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |at: usize, name: &'static str| -> Result<Option<Value>, Error> {
        match positional.get(at) {
            Some(value) => Ok(Some(value.clone())),
            None => kwargs.get(name),
        }
    };
    let style = Style::new(
        argument(0, "ensure_ascii")?,
        argument(1, "indent")?,
        argument(2, "separators")?,
        argument(3, "sort_keys")?,
    )?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    Writer {
        out: &mut out,
        style,
        state,
        charged: 0,
    }
    .value(value, 0)?;
    Ok(Value::from(out))
}

struct Style {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

impl Style {
    fn new(
        ascii: Option<Value>,
        indent: Option<Value>,
        separators: Option<Value>,
        sort: Option<Value>,
    ) -> Result<Self, Error> {
        let indent = match indent.filter(|indent| !indent.is_none() && !indent.is_undefined()) {
            None => None,
            Some(text) if text.kind() == ValueKind::String => Some(text.to_string()),
            Some(width) => {
                let width =
                    i64::try_from(width).map_err(|_| invalid("indent must be a number or a string"))?;
                Some(" ".repeat(width.clamp(0, 64) as usize))
            }
        };
        let (item, key) = match separators.filter(|pair| !pair.is_none() && !pair.is_undefined()) {
            None => (
                if indent.is_some() { "," } else { ", " }.to_owned(),
                ": ".to_owned(),
            ),
            Some(pair) => {
                let parts: Vec<Value> = pair.try_iter()?.collect();
                match parts.as_slice() {
                    [item, key] => (item.to_string(), key.to_string()),
                    _ => return Err(invalid("separators must be a pair of strings")),
                }
            }
        };
        let truth = |value: Option<Value>| value.is_some_and(|value| value.is_true());
        Ok(Self {
            ascii: truth(ascii),
            indent,
            item,
            key,
            sort: truth(sort),
        })
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

struct Writer<'a, 'state> {
    out: &'a mut String,
    style: Style,
    state: &'a State<'state, 'state>,
    charged: usize,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(invalid("value is nested too deeply for tojson"));
        }
        let due = self.out.len() / BYTES_PER_FUEL;
        if due > self.charged {
            self.state.consume_fuel((due - self.charged) as u64)?;
            self.charged = due;
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => string(self.out, value.as_str().unwrap_or_default(), self.style.ascii),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.block('[', ']', items, depth, |writer, item, depth| {
                    writer.value(&item, depth)
                })?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    entries.push((key_text(&key)?, value.get_item(&key)?));
                }
                if self.style.sort {
                    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
                }
                self.block('{', '}', entries, depth, |writer, (key, item), depth| {
                    string(writer.out, &key, writer.style.ascii);
                    writer.out.push_str(&writer.style.key);
                    writer.value(&item, depth)
                })?;
            }
            other => return Err(invalid(format!("{other} is not JSON serializable"))),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) {
        if value.is_integer() {
            let _ = write!(self.out, "{value}");
        } else {
            self.out
                .push_str(&float(f64::try_from(value.clone()).unwrap_or(f64::NAN)));
        }
    }

    fn block<T>(
        &mut self,
        open: char,
        close: char,
        items: Vec<T>,
        depth: usize,
        mut each: impl FnMut(&mut Self, T, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let empty = items.is_empty();
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.out.push_str(&self.style.item);
            }
            self.newline(depth + 1);
            each(self, item, depth + 1)?;
        }
        if !empty {
            self.newline(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn newline(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }
}

/// Python turns keys that are no strings into some.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.to_string(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number if key.is_integer() => key.to_string(),
        ValueKind::Number => float(f64::try_from(key.clone()).unwrap_or(f64::NAN)),
        other => {
            return Err(invalid(format!(
                "keys must be str, int, float, bool or None, not {other}"
            )));
        }
    })
}

fn string(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    let mut clean = 0;
    for (at, c) in text.char_indices() {
        let plain = c >= ' ' && c != '"' && c != '\\' && (!ascii || c.is_ascii() && c != '\x7f');
        if plain {
            continue;
        }
        out.push_str(&text[clean..at]);
        clean = at + c.len_utf8();
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push_str(&text[clean..]);
    out.push('"');
}

/// Python's `repr` of a float: the shortest digits that round-trip, an exponent below 1e-4 and
/// from 1e16 on.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let pairs = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
            (123_456.789, "123456.789"),
            (f64::INFINITY, "Infinity"),
        ];
        for (value, expected) in pairs {
            assert_eq!(float(value), expected);
        }
    }
}
