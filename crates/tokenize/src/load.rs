//! Reading a model's tokenizer folder.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// A tokenizer folder that cannot be used: names the file, the field and the remedy in one line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {field}: {problem}; {remedy}", file.display())]
pub struct LoadError {
    /// Path of the file.
    pub file: PathBuf,
    /// The field in it, or `file` for the file itself.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// What the folder holds.
pub(crate) struct Files {
    /// `tokenizer.json`, with the added tokens that only `tokenizer_config.json` names.
    pub(crate) tokenizer: Value,
    /// Named special tokens (`bos_token`, …), variables of every template.
    pub(crate) special_tokens: Vec<(&'static str, String)>,
    /// Templates by name; the plain one is `default`.
    pub(crate) templates: Vec<Source>,
    /// The template of the model's processor, used while a request has no tools.
    pub(crate) processor_template: Option<Source>,
}

/// A template and where it was read.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) file: PathBuf,
    pub(crate) field: &'static str,
}

impl Source {
    pub(crate) fn bad(&self, problem: &impl ToString) -> LoadError {
        LoadError {
            file: self.file.clone(),
            field: format!("{} ({})", self.field, self.name),
            problem: problem.to_string(),
            remedy: "give a template that renders, the one of the model's publisher as a rule".to_owned(),
        }
    }
}

const SPECIAL_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

impl Files {
    /// Reads `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Self, LoadError> {
        let file = dir.join("tokenizer.json");
        let remedy = "copy the model's own tokenizer.json here (a fast tokenizer; tiktoken and \
                      sentencepiece files alone are not enough)";
        let Some(mut tokenizer) = read_object(&file, remedy)? else {
            return Err(missing(file, remedy));
        };
        let config_file = dir.join("tokenizer_config.json");
        let remedy = "copy the model's own tokenizer_config.json here";
        let Some(config) = read_object(&config_file, remedy)? else {
            return Err(missing(config_file, remedy));
        };
        add_tokens_of_config(&mut tokenizer, &config);
        let special_tokens = SPECIAL_TOKENS.into_iter().filter_map(|name| {
            let token = config.get(name)?;
            let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
            Some((name, text.to_owned()))
        });
        let special_tokens = special_tokens.collect();
        let templates = templates(dir, &config, &config_file)?;
        let processor_template = processor_template(dir)?;
        Ok(Self {
            tokenizer: Value::Object(tokenizer),
            special_tokens,
            templates,
            processor_template,
        })
    }
}

fn missing(file: PathBuf, remedy: &str) -> LoadError {
    let problem = "does not exist".to_owned();
    LoadError {
        file,
        field: "file".to_owned(),
        problem,
        remedy: remedy.to_owned(),
    }
}

fn read_text(file: &Path) -> Result<Option<String>, LoadError> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LoadError {
            file: file.to_owned(),
            field: "file".to_owned(),
            problem: format!("cannot be read: {error}"),
            remedy: "make it a readable UTF-8 file".to_owned(),
        }),
    }
}

fn read_object(file: &Path, remedy: &str) -> Result<Option<Map<String, Value>>, LoadError> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    let bad = |problem: String| LoadError {
        file: file.to_owned(),
        field: "file".to_owned(),
        problem,
        remedy: remedy.to_owned(),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(bad("is not a JSON object".to_owned())),
        Err(error) => Err(bad(format!("is not JSON: {error}"))),
    }
}

/// `transformers` adds the tokens of `added_tokens_decoder` that `tokenizer.json` lacks.
fn add_tokens_of_config(tokenizer: &mut Map<String, Value>, config: &Map<String, Value>) {
    let Some(named) = config.get("added_tokens_decoder").and_then(Value::as_object) else {
        return;
    };
    let added = tokenizer
        .entry("added_tokens")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(added) = added.as_array_mut() else { return };
    for (id, token) in named {
        let (Ok(id), Some(content)) = (id.parse::<u32>(), token.get("content").and_then(Value::as_str))
        else {
            continue;
        };
        let known = |token: &Value| token.get("content").is_some_and(|known| known == content);
        if added.iter().any(known) {
            continue;
        }
        let mut entry = Map::new();
        entry.insert("id".to_owned(), id.into());
        entry.insert("content".to_owned(), content.into());
        for flag in ["single_word", "lstrip", "rstrip", "normalized", "special"] {
            let set = token.get(flag).and_then(Value::as_bool).unwrap_or(false);
            entry.insert(flag.to_owned(), set.into());
        }
        added.push(Value::Object(entry));
    }
}

/// The tokenizer's templates. `chat_template.jinja` and `additional_chat_templates/*.jinja` win over
/// `chat_template` in `tokenizer_config.json`.
fn templates(dir: &Path, config: &Map<String, Value>, config_file: &Path) -> Result<Vec<Source>, LoadError> {
    let mut found = Vec::new();
    let file = dir.join("chat_template.jinja");
    if let Some(text) = read_text(&file)? {
        found.push(Source {
            name: "default".to_owned(),
            text,
            file,
            field: "file",
        });
    }
    let more = dir.join("additional_chat_templates");
    if let Ok(entries) = std::fs::read_dir(&more) {
        for file in entries.flatten().map(|entry| entry.path()) {
            let name = file
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_suffix(".jinja"));
            if let Some(name) = name
                && let Some(text) = read_text(&file)?
            {
                found.push(Source {
                    name: name.to_owned(),
                    text,
                    file: file.clone(),
                    field: "file",
                });
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let source = |name: &str, text: &str| Source {
        name: name.to_owned(),
        text: text.to_owned(),
        file: config_file.to_owned(),
        field: "chat_template",
    };
    let bad = || LoadError {
        file: config_file.to_owned(),
        field: "chat_template".to_owned(),
        problem: "is neither a string nor a list of {name, template}".to_owned(),
        remedy: "copy the model's own tokenizer_config.json here".to_owned(),
    };
    match config.get("chat_template") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => found.push(source("default", text)),
        Some(Value::Array(list)) => {
            for named in list {
                let text = |field: &str| named.get(field).and_then(Value::as_str);
                match (text("name"), text("template")) {
                    (Some(name), Some(text)) => found.push(source(name, text)),
                    _ => return Err(bad()),
                }
            }
        }
        Some(_) => return Err(bad()),
    }
    Ok(found)
}

/// `chat_template.json`, the older place for the template of a multimodal model's processor.
fn processor_template(dir: &Path) -> Result<Option<Source>, LoadError> {
    let file = dir.join("chat_template.json");
    let remedy = "copy the model's own chat_template.json here, or remove it";
    let Some(object) = read_object(&file, remedy)? else {
        return Ok(None);
    };
    match object.get("chat_template") {
        Some(Value::String(text)) => {
            let (name, text) = ("default".to_owned(), text.clone());
            Ok(Some(Source {
                name,
                text,
                file,
                field: "chat_template",
            }))
        }
        _ => Err(LoadError {
            file,
            field: "chat_template".to_owned(),
            problem: "is not a string".to_owned(),
            remedy: remedy.to_owned(),
        }),
    }
}
