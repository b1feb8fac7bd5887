//! Text as people write it: the repository's own documents without their tables and code, cut at random places. Words drawn from a
//! vocabulary by Zipf's law would not do: too many of them are new to the tokenizer, which knows again what people write.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use lmetric_tokenize::ModelTokenizer;

use crate::workload::Numbers;

/// Fewer bytes would come again too soon.
const LEAST: usize = 30_000;

/// Bytes on which the length of a token is counted.
const SAMPLE: usize = 200_000;

/// All documents, one after the other.
pub struct Prose(String);

/// [`Prose`] by the token.
pub struct Writer {
    prose: Prose,
    /// Bytes that are a token in the mean.
    pub bytes_per_token: f64,
}

impl Writer {
    /// Counts with this tokenizer.
    pub fn new(prose: Prose, tokenizer: &ModelTokenizer) -> anyhow::Result<Self> {
        let sample = prose.slice(&mut Numbers(1), SAMPLE);
        let tokens = tokenizer.encode_text(&sample, false).context("a text")?;
        Ok(Self {
            prose,
            bytes_per_token: sample.len() as f64 / tokens.ids.len() as f64,
        })
    }

    /// About so many tokens of text.
    pub fn text(&self, numbers: &mut Numbers, tokens: usize) -> String {
        self.prose
            .slice(numbers, (tokens as f64 * self.bytes_per_token) as usize)
    }
}

impl Prose {
    /// Reads every `.md` file under `root`, in the order of their names.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut text = String::new();
        gather(root, &mut text)?;
        ensure!(
            text.len() >= LEAST,
            "{}: {} bytes of prose in Markdown are too few; run this in the repository's root",
            root.display(),
            text.len()
        );
        Ok(Self(text))
    }

    /// So many bytes (give or take a character) from somewhere; it begins anew where the documents end.
    pub fn slice(&self, numbers: &mut Numbers, bytes: usize) -> String {
        let text = self.0.as_str();
        let start = text.floor_char_boundary(numbers.below(text.len() as u64) as usize);
        let mut out = String::with_capacity(bytes + 4);
        let mut rest = &text[start..];
        while out.len() < bytes {
            out.push_str(&rest[..rest.ceil_char_boundary(bytes - out.len())]);
            rest = text;
        }
        out
    }
}

fn gather(folder: &Path, text: &mut String) -> anyhow::Result<()> {
    let listed = fs::read_dir(folder).with_context(|| format!("{}: cannot be listed", folder.display()))?;
    let mut paths: Vec<_> = listed
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            gather(&path, text)?;
        } else if name.ends_with(".md") {
            let file =
                fs::read_to_string(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
            prose(&file, text);
        }
    }
    Ok(())
}

/// Tables and code have more tokens to a byte than what people say.
fn prose(markdown: &str, out: &mut String) {
    let mut code = false;
    for line in markdown.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code && !line.starts_with('|') && !line.starts_with("    ") {
            out.push_str(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_code_are_left_out() {
        let mut out = String::new();
        prose("a\n|b|\n```sh\nc\n```\nd\n  ```\ne\n  ```\n    f\ng", &mut out);
        assert_eq!(out, "a\nd\ng");
    }

    #[test]
    fn a_slice_has_its_length_wherever_it_begins() {
        let prose = Prose("ä long way to €".repeat(9));
        let mut numbers = Numbers(1);
        for bytes in 0..400 {
            let length = prose.slice(&mut numbers, bytes).len();
            assert!((bytes..bytes + 4).contains(&length), "{length} of {bytes}");
        }
    }
}
