//! One model's tokenizer and chat template, loaded from a folder.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use minijinja::Value;
use serde_json::Map;

use crate::chat::ChatRequest;
use crate::conversation::{ConversationError, Rules, conversation, cut_at_final_message};
use crate::encode::{Encode, Pipeline, TokenizerError};
use crate::load::{Files, LoadError};
use crate::message::Message;
use crate::segments::SegmentCache;
use crate::template::{ChatTemplate, Clock, TemplateError, Variables};
use crate::templates::Templates;
use crate::tokenized::{Media, Tokenized};
use crate::tools;
use crate::values::value;

/// Bytes that one model's segment cache keeps by default. A token costs about eight (four of text,
/// four for its id), so this holds some 250 conversations of 32,000 tokens.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// A prompt that cannot be tokenized here; the next rung of the ladder may still know it.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The model has no chat template and the request brought none.
    #[error("this model has no chat template: put chat_template.jinja beside tokenizer.json")]
    NoTemplate,
    /// The request brought a template, which the engine refuses as well unless it is told otherwise.
    #[error("the request brings a chat template, and those are not trusted here")]
    UntrustedTemplate,
    /// The chat template failed, refused the conversation, or took too much work.
    #[error("chat template: {0}")]
    Template(#[from] TemplateError),
    /// The messages are none that a template would take.
    #[error("{0}")]
    Conversation(String),
    /// A tool is no function.
    #[error("`tools[{0}]` must be a function with a name")]
    Tool(usize),
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl From<ConversationError> for EncodeError {
    fn from(error: ConversationError) -> Self {
        Self::Conversation(error.to_string())
    }
}

/// How the engine was started, where it changes prompts, and the cache's size.
#[derive(Clone)]
pub struct Options {
    /// Bound of the segment cache; 0 switches it off.
    pub cache_bytes: usize,
    /// vLLM's `--chat-template` (its text, not a path).
    pub chat_template: Option<String>,
    /// vLLM's `--trust-request-chat-template` (default: false). A template's work is bounded by
    /// fuel, but not where it builds lists that hold each other over and over: one such template
    /// keeps a thread busy for good. So leave it off unless the clients are trusted.
    pub trust_request_chat_template: bool,
    /// vLLM's `--default-chat-template-kwargs`.
    pub chat_template_kwargs: Map<String, serde_json::Value>,
    /// What `strftime_now` in templates reads: the local wall clock.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: DEFAULT_CACHE_BYTES,
            chat_template: None,
            trust_request_chat_template: false,
            chat_template_kwargs: Map::new(),
            clock: Arc::new(|| jiff::Zoned::now().datetime()),
        }
    }
}

/// Tokenizer, chat template and segment cache of one model.
///
/// Share it behind an `Arc`: every method takes `&self`, may run on many threads at once, and blocks
/// (no await). Work per prompt is bounded by the template's fuel and linear in the text.
pub struct ModelTokenizer {
    encoder: Box<dyn Encode>,
    cache: Option<SegmentCache>,
    templates: Templates,
    trust_request_chat_template: bool,
    special_tokens: Vec<(String, Value)>,
    default_kwargs: Vec<(String, Value)>,
}

impl ModelTokenizer {
    /// Loads `tokenizer.json`, `tokenizer_config.json` and, where present, `chat_template.jinja`,
    /// `additional_chat_templates/` or `chat_template.json` from `dir`. Never touches the network.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        Self::load_with(dir, Options::default())
    }

    /// Loads with the engine's options.
    pub fn load_with(dir: &Path, options: Options) -> Result<Self, LoadError> {
        let Options {
            cache_bytes,
            chat_template,
            trust_request_chat_template,
            chat_template_kwargs,
            clock,
        } = options;
        let Files {
            tokenizer,
            special_tokens,
            templates,
            processor_template,
        } = Files::read(dir)?;
        let encoder = Pipeline::from_json(tokenizer).map_err(|error| LoadError {
            file: dir.join("tokenizer.json"),
            field: "file".to_owned(),
            problem: error.to_string(),
            remedy:
                "if the file is whole, leave the model's tokenizer out: prompts are then tokenized by its \
                     engines"
                    .to_owned(),
        })?;
        let templates = Templates::compile(chat_template, templates, processor_template, &clock)?;
        let cache =
            (cache_bytes > 0 && encoder.pieces_are_independent()).then(|| SegmentCache::new(cache_bytes));
        let special_tokens = special_tokens
            .into_iter()
            .map(|(name, text)| (name.to_owned(), Value::from(text)));
        let default_kwargs = chat_template_kwargs
            .iter()
            .map(|(name, kwarg)| (name.clone(), value(kwarg)));
        Ok(Self {
            encoder: Box::new(encoder),
            cache,
            templates,
            trust_request_chat_template,
            special_tokens: special_tokens.collect(),
            default_kwargs: default_kwargs.collect(),
        })
    }

    /// Ids of a plain prompt (`/v1/completions`; there vLLM adds special tokens by default).
    pub fn encode_text(&self, text: &str, add_special_tokens: bool) -> Result<Tokenized, EncodeError> {
        Ok(Tokenized::plain(self.ids(text, add_special_tokens)?))
    }

    /// Ids of a chat prompt.
    pub fn encode_chat(&self, chat: &ChatRequest) -> Result<Tokenized, EncodeError> {
        let rendered = self.render(chat, false)?;
        let ids = self.ids(&rendered, chat.add_special_tokens)?;
        let media = chat.images();
        if media == 0 {
            return Ok(Tokenized::plain(ids));
        }
        // where the first placeholder is: a rendering with another text there is different from there on
        let marked = self.render(chat, true)?;
        let common = rendered
            .bytes()
            .zip(marked.bytes())
            .take_while(|(left, right)| left == right)
            .count();
        let before = self.ids(
            &rendered[..rendered.floor_char_boundary(common)],
            chat.add_special_tokens,
        )?;
        let matchable = ids
            .iter()
            .zip(&before)
            .take_while(|(left, right)| left == right)
            .count();
        let media = (0..media).map(|_| Media {
            offset: matchable,
            length: 0,
            hash: None,
        });
        Ok(Tokenized {
            ids,
            media: media.collect(),
            matchable,
        })
    }

    /// [`Self::encode_text`] where that is little work: `None` when more than `most` bytes of the text were not tokenized before.
    pub fn encode_text_within(
        &self,
        text: &str,
        add_special_tokens: bool,
        most: usize,
    ) -> Result<Option<Tokenized>, EncodeError> {
        let ids = self.ids_within(text, add_special_tokens, most)?;
        Ok(ids.map(Tokenized::plain))
    }

    /// [`Self::encode_chat`] where that is little work: `None` when more than `most` bytes of the rendered prompt were not tokenized
    /// before, or when it has media. The template is rendered either way.
    pub fn encode_chat_within(
        &self,
        chat: &ChatRequest,
        most: usize,
    ) -> Result<Option<Tokenized>, EncodeError> {
        if chat.images() > 0 {
            return Ok(None);
        }
        let rendered = self.render(chat, false)?;
        self.encode_text_within(&rendered, chat.add_special_tokens, most)
    }

    /// The chat prompt as text, before it is tokenized.
    pub fn render_chat(&self, chat: &ChatRequest) -> Result<String, EncodeError> {
        self.render(chat, false)
    }

    /// Text of `ids`, special tokens included.
    pub fn decode(&self, ids: &[u32]) -> Result<String, EncodeError> {
        Ok(self.encoder.decode(ids)?)
    }

    /// Largest token id + 1, added tokens included.
    pub fn vocabulary(&self) -> u32 {
        self.encoder.vocabulary()
    }

    /// Whether the model came with a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.templates.has_default()
    }

    /// Bytes in the segment cache.
    pub fn cached_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, SegmentCache::bytes)
    }

    fn ids(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.ids_within(text, add_special_tokens, usize::MAX)?;
        Ok(ids.expect("no text is longer"))
    }

    fn ids_within(
        &self,
        text: &str,
        add_special_tokens: bool,
        most: usize,
    ) -> Result<Option<Vec<u32>>, TokenizerError> {
        let (before, after) = if add_special_tokens {
            self.encoder.affixes()
        } else {
            (&[][..], &[][..])
        };
        let mut ids = Vec::with_capacity(text.len() / 3 + before.len() + after.len());
        ids.extend_from_slice(before);
        let is_done = match &self.cache {
            Some(cache) => cache.encode(&*self.encoder, text, most, &mut ids)?,
            None if text.len() > most => false,
            None => {
                self.encoder.encode(text, &mut ids)?;
                true
            }
        };
        ids.extend_from_slice(after);
        Ok(is_done.then_some(ids))
    }

    fn render(&self, chat: &ChatRequest, mark_media: bool) -> Result<String, EncodeError> {
        let ChatRequest {
            messages,
            tools,
            documents,
            chat_template,
            chat_template_kwargs,
            add_generation_prompt,
            continue_final_message,
            add_special_tokens: _,
            merge_inline_system,
            thinking_disabled,
        } = chat;
        if *add_generation_prompt && *continue_final_message {
            let text = "continue_final_message and add_generation_prompt exclude each other";
            return Err(EncodeError::Conversation(text.to_owned()));
        }
        if chat_template.is_some() && !self.trust_request_chat_template {
            return Err(EncodeError::UntrustedTemplate);
        }
        let template = self.templates.pick(chat_template.as_deref(), tools.is_some())?;
        let rules = Rules {
            format: template.format(),
            developer: template.knows_developer(),
            merge_system: *merge_inline_system && self.templates.refuse_inline_system(),
            mark_media,
            continue_final: *continue_final_message,
        };
        let kwargs = chat_template_kwargs
            .iter()
            .map(|(name, kwarg)| (name.clone(), value(kwarg)));
        let mut others: Vec<_> = self
            .special_tokens
            .iter()
            .chain(&self.default_kwargs)
            .cloned()
            .chain(kwargs)
            .collect();
        if *thinking_disabled {
            let effort = self.disabled_effort(&template);
            if !chat_template_kwargs.contains_key("enable_thinking") {
                others.push(("enable_thinking".to_owned(), Value::from(effort != "none")));
            }
            others.push(("reasoning_effort".to_owned(), Value::from(effort)));
        }
        let kwarg = |name: &str| {
            let found = others.iter().rev().find(|(found, _)| found == name);
            found.map_or(Value::from(()), |(_, value)| value.clone())
        };
        let variables = Variables {
            messages: conversation(messages, rules)?,
            tools: match tools {
                Some(tools) if !chat_template_kwargs.contains_key("tools") => tool_values(tools)?,
                _ => kwarg("tools"),
            },
            documents: match documents {
                Some(documents) => documents.iter().map(value).collect(),
                None => kwarg("documents"),
            },
            add_generation_prompt: *add_generation_prompt,
            others,
        };
        let rendered = template.render(variables)?;
        Ok(if *continue_final_message {
            cut_at_final_message(rendered, messages)?
        } else {
            rendered
        })
    }

    /// vLLM's probe: `none`, or `low` if the template refuses `none` or treats it like a real effort.
    fn disabled_effort(&self, template: &ChatTemplate) -> &'static str {
        static MESSAGE: OnceLock<Message> = OnceLock::new();
        let message = MESSAGE.get_or_init(|| serde_json::json!({"role": "user", "content": "Hi"}).into());
        let probe = |effort: &'static str| {
            let format = template.format();
            let rules = Rules {
                format,
                developer: true,
                merge_system: false,
                mark_media: false,
                continue_final: false,
            };
            let own = [
                ("enable_thinking".to_owned(), Value::from(effort != "none")),
                ("reasoning_effort".to_owned(), Value::from(effort)),
            ];
            let others = self
                .special_tokens
                .iter()
                .chain(&self.default_kwargs)
                .cloned()
                .chain(own);
            let variables = Variables {
                messages: conversation(std::slice::from_ref(message), rules).ok()?,
                tools: Value::from(()),
                documents: Value::from(()),
                add_generation_prompt: true,
                others: others.collect(),
            };
            template.render(variables).ok()
        };
        template.disabled_effort(|| {
            let none = probe("none");
            let efforts = ["low", "medium", "high", "xhigh", "max"];
            if none.is_none() || efforts.into_iter().any(|effort| probe(effort) == none) {
                "low"
            } else {
                "none"
            }
        })
    }
}

fn tool_values(tools: &[serde_json::Value]) -> Result<Value, EncodeError> {
    let each = |(at, tool)| {
        tools::normalized(tool)
            .map(|tool| value(&tool))
            .ok_or(EncodeError::Tool(at))
    };
    tools
        .iter()
        .enumerate()
        .map(each)
        .collect::<Result<Vec<_>, _>>()
        .map(Value::from)
}
