//! One line that a person can act on: file, field, what is wrong, what to do.

use std::path::{Path, PathBuf};

/// What is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {field}: {problem}; {remedy}", file.display())]
pub struct ConfigError {
    /// File as it was named.
    pub file: PathBuf,
    /// Path of the field, e.g. `limits.bodyBytes`; `(file)` when it is about the whole file.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl ConfigError {
    /// An error about `field` of `file`.
    pub fn new(
        file: &Path,
        field: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            file: file.to_owned(),
            field: on_one_line(field.into()),
            problem: on_one_line(problem.into()),
            remedy: on_one_line(remedy.into()),
        }
    }

    /// The file cannot be read at all.
    pub fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self::new(
            file,
            "(file)",
            format!("cannot be read ({error})"),
            "give the path of a file that this user may read",
        )
    }

    /// A YAML error, with the field taken out of the parser's message.
    pub(crate) fn yaml(file: &Path, error: &serde_yaml::Error) -> Self {
        let full = error.to_string();
        let (message, place) = match full.rfind(" at line ") {
            Some(at) => (&full[..at], full[at + 1..].replace(" column ", ", column ")),
            None => (full.as_str(), String::new()),
        };
        let (path, message) = split_path(message);
        let quoted = message.split('`').nth(1).unwrap_or_default();
        let (field, remedy) = if message.starts_with("unknown field") {
            let known = message.split_once("expected ").map_or("", |(_, known)| known);
            (join(path, quoted), format!("remove it or write {known}"))
        } else if message.starts_with("missing field") {
            (join(path, quoted), "add it".to_owned())
        } else if let Some((_, known)) = message.split_once(", expected ") {
            (join(path, ""), format!("write {}", plain(known)))
        } else if let Some((problem, remedy)) = message.split_once("; ") {
            let place = if place.is_empty() {
                place
            } else {
                format!(" ({place})")
            };
            return Self::new(file, join(path, ""), format!("{problem}{place}"), remedy);
        } else {
            (
                join(path, ""),
                "correct the YAML there (indentation, colons, quotes)".to_owned(),
            )
        };
        let problem = message
            .split_once(", expected ")
            .map_or(message, |(problem, _)| problem)
            .to_owned();
        let problem = if place.is_empty() {
            problem
        } else {
            format!("{problem} ({place})")
        };
        Self::new(file, field, problem, remedy)
    }
}

/// What is quoted may hold line ends.
pub(crate) fn on_one_line(text: String) -> String {
    if text.contains(char::is_control) {
        text.chars()
            .flat_map(|letter| {
                let escaped = letter.is_control().then(|| letter.escape_default());
                let plain = escaped.is_none().then_some(letter);
                escaped.into_iter().flatten().chain(plain)
            })
            .collect()
    } else {
        text
    }
}

/// The parser writes `limits.bodyBytes: invalid type: …`; a path has no blank before its colon.
fn split_path(message: &str) -> (&str, &str) {
    match message.split_once(": ") {
        Some((path, rest)) if !path.contains(' ') => (path, rest),
        _ => ("", message),
    }
}

/// What a Rust type is to the person who writes the file.
fn plain(expected: &str) -> &str {
    match expected {
        "usize" | "u64" | "u32" | "u16" => "a whole number, not negative and without a unit",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "text",
        expected if expected.starts_with("struct ") => "its fields, as {name: value}",
        expected => expected,
    }
}

fn join(path: &str, field: &str) -> String {
    match (path.trim_start_matches('.'), field) {
        ("", "") => "(file)".to_owned(),
        (path, "") => path.to_owned(),
        ("", field) => field.to_owned(),
        (path, field) if path == field || path.ends_with(&format!(".{field}")) => path.to_owned(),
        (path, field) => format!("{path}.{field}"),
    }
}
