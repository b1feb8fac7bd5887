//! `{{ 'a' + b + 'c' }}` as `{{ 'a' }}{{ b }}{{ 'c' }}`.
//!
//! Chat templates put a message together by adding strings. Each `+` copies all that came before it, so a
//! message's text is copied several times before it is written; written piece by piece, it is copied once.
//!
//! The pieces mean the same if the sum is one of strings. It is when one of the first two is a string literal
//! (then every other piece is a string as well, or the sum fails), and a filter has the others checked.

use std::borrow::Cow;

use minijinja::machinery::ast::{BinOpKind, Expr};
use minijinja::machinery::{Token, parse_expr, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Name of [`only_text`] in templates.
pub(super) const ONLY_TEXT: &str = "lmetric_only_text";

/// The filter that refuses what could not be added to a string.
pub(super) fn only_text(value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value);
    }
    let message = format!(
        "tried to use + operator on a string and a value of type {}",
        value.kind()
    );
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Rewrites the sums that are written out; lines stay where they are.
pub(super) fn without_sums(source: &str) -> Cow<'_, str> {
    let mut edits = Vec::new();
    let mut inside: Option<Vec<Piece<'_>>> = None;
    let mut depth = 0;
    for token in tokenize(source, false, SyntaxConfig::default()) {
        let Ok((token, span)) = token else {
            return Cow::Borrowed(source); // compiling it will say why
        };
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        match token {
            Token::VariableStart => {
                inside = Some(vec![Piece::new(source)]);
                depth = 0;
                continue;
            }
            Token::VariableEnd => {
                edits.extend(
                    inside
                        .take()
                        .and_then(|pieces| split(&pieces))
                        .into_iter()
                        .flatten(),
                );
                continue;
            }
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => depth -= 1,
            _ => {}
        }
        let Some(pieces) = &mut inside else { continue };
        if depth == 0 && matches!(token, Token::Plus) {
            pieces.push(Piece::new(source));
        } else if let Some(piece) = pieces.last_mut() {
            piece.range.get_or_insert((start, end)).1 = end;
        }
    }
    if edits.is_empty() {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len() + 32 * edits.len());
    let mut done = 0;
    for Edit { from, to, text } in edits {
        out.push_str(&source[done..from]);
        out.push_str(text);
        done = to;
    }
    out.push_str(&source[done..]);
    Cow::Owned(out)
}

/// What stands between two `+` that are in no brackets.
struct Piece<'a> {
    source: &'a str,
    range: Option<(usize, usize)>,
}

/// `text` instead of what is in `from..to`.
struct Edit {
    from: usize,
    to: usize,
    text: &'static str,
}

impl<'a> Piece<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, range: None }
    }

    fn text(&self) -> Option<&'a str> {
        self.range.map(|(start, end)| &self.source[start..end])
    }
}

/// How a sum becomes pieces; `None` if it is none, or perhaps none of strings.
fn split(pieces: &[Piece<'_>]) -> Option<Vec<Edit>> {
    let (first, last) = (pieces.first()?.range?, pieces.last()?.range?);
    let source = pieces.first()?.source;
    let whole = parse_expr(&source[first.0..last.1]).ok()?;
    if pieces.len() < 2 || summands(&whole) != pieces.len() {
        return None;
    }
    let mut literal = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let parsed = parse_expr(piece.text()?).ok()?;
        // a sum in brackets may be one of numbers
        if summands(&parsed) > 1 {
            return None;
        }
        literal.push(matches!(&parsed, Expr::Const(constant) if constant.value.as_str().is_some()));
    }
    if !literal[0] && !literal[1] {
        return None;
    }
    let mut edits = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let (start, end) = piece.range?;
        if let Some((_, before)) = at.checked_sub(1).and_then(|before| pieces[before].range)
            && !(literal[at - 1] && literal[at])
        {
            let plus = before + source[before..start].find('+')?;
            edits.push(Edit {
                from: plus,
                to: plus + 1,
                text: "}}{{ ",
            });
        }
        if !literal[at] {
            edits.push(Edit {
                from: start,
                to: start,
                text: "(",
            });
            edits.push(Edit {
                from: end,
                to: end,
                text: ")|lmetric_only_text ",
            });
        }
    }
    Some(edits)
}

/// Number of values that are added, from left to right.
fn summands(mut expression: &Expr<'_>) -> usize {
    let mut count = 1;
    while let Expr::BinOp(node) = expression
        && matches!(node.op, BinOpKind::Add)
    {
        count += 1;
        expression = &node.left;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_strings_are_split_and_literals_stay_together() {
        for (source, expected) in [
            (
                "{{- '<' + m.role + '>' + m.content + '\n' + 'x' -}}",
                "{{- '<' }}{{  (m.role)|lmetric_only_text  }}{{  '>' }}{{  (m.content)|lmetric_only_text  }}{{  '\n' + 'x' -}}",
            ),
            (
                "{{ m['a + b'] | trim + 'x' }}",
                "{{ (m['a + b'] | trim)|lmetric_only_text  }}{{  'x' }}",
            ),
            (
                "{{ 'x' + (a + b)[0] }}",
                "{{ 'x' }}{{  ((a + b)[0])|lmetric_only_text  }}",
            ),
        ] {
            assert_eq!(without_sums(source), expected);
        }
    }

    #[test]
    fn other_expressions_stay_as_they_are() {
        for source in [
            "{{ a + b }}",
            "{{ a + b + 'c' }}",
            "{{ (a + b) + 'c' }}",
            "{{ 1 + 2 }}",
            "{{ 'a' }} + {{ 'b' }}",
            "{{ 'a' + b if c else d }}",
            "{{ 'a' + b == c }}",
            "{{ 'a' + b in c }}",
            "{{ f('a' + b) }}",
            "{{ ['a' + b] }}",
            "{% set x = 'a' + b %}",
            "{% raw %}{{ 'a' + b }}{% endraw %}",
            "{# {{ 'a' + b }} #}",
            "{{ 'a' + }}",
            "{{ 'a' + b",
        ] {
            assert_eq!(without_sums(source), source);
        }
    }

    #[test]
    fn a_sum_writes_the_same_in_pieces_and_fails_the_same() {
        let plain = minijinja::Environment::new();
        let mut split = minijinja::Environment::new();
        split.add_filter(ONLY_TEXT, only_text);
        let sources = [
            "{{ 'a' + x }}",
            "{{ x + 'a' }}",
            "{{ x + 'a' + x }}",
            "{{ 'a' + x ~ 1 }}",
            "{{ 'a' + x * 2 }}",
            "{{ 'a' + x | string + 'b' }}",
            "{{ 'a' + x.y + 'b' }}",
            "{{ 'a' + x + '\n' + 'c' + x[0] }}",
            "{%- macro m(p) %}{{ 'm' + p }}{% endmacro -%}{{ 'a' + m(x) + x }}",
            "{% set y %}{{ x + ':' + x }}{% endset %}{{ y + 'z' }}",
            "{% for c in x %}{{- 'a' + c }} {{ c + 'b' -}} {% endfor %}",
            "{{ 'ä' + x + 'ö' + x }}",
        ];
        let values = [
            Value::from("text"),
            Value::from("a text that is too long to be kept in place"),
            Value::from(3),
            Value::from(2.5),
            Value::from(true),
            Value::from(()),
            Value::UNDEFINED,
            Value::from(vec!["a", "b"]),
            Value::from_bytes(b"bytes".to_vec()),
            Value::from_pairs([("y", "text")]),
        ];
        let mut written = 0;
        for source in sources {
            let rewritten = without_sums(source);
            assert_ne!(rewritten, source);
            for value in &values {
                let context = Value::from_pairs([("x", value.clone())]);
                let expected = plain.render_str(source, context.clone()).ok();
                let got = split.render_str(&rewritten, context).ok();
                assert_eq!(got, expected, "{source} with {value:?}");
                written += usize::from(expected.is_some());
            }
        }
        assert!(written > sources.len());
    }
}
