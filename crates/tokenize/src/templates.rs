//! Which template renders a request: the model's, compiled at load, or one that the request brought.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::load::{LoadError, Source};
use crate::model::EncodeError;
use crate::template::{ChatTemplate, Clock, MODEL_FUEL, REQUEST_FUEL};

/// Templates of requests that are kept compiled.
const KEPT: usize = 8;

/// The templates of one model.
pub(crate) struct Templates {
    /// vLLM's `--chat-template`.
    given: Option<Arc<ChatTemplate>>,
    /// For requests without tools.
    processor: Option<Arc<ChatTemplate>>,
    named: Vec<(String, Arc<ChatTemplate>)>,
    /// Templates of requests with their source, the latest first.
    recent: Mutex<Vec<(Box<str>, Arc<ChatTemplate>)>>,
    refuse_inline_system: bool,
    clock: Clock,
}

impl Templates {
    /// Compiles all templates of the model.
    pub(crate) fn compile(
        given: Option<String>,
        named: Vec<Source>,
        processor: Option<Source>,
        clock: &Clock,
    ) -> Result<Self, LoadError> {
        let compile = |source: Source| {
            let compiled = ChatTemplate::compile(&source.text, MODEL_FUEL, clock.clone());
            compiled.map(Arc::new).map_err(|error| source.bad(&error))
        };
        let given = given.map(|text| Source {
            name: "default".to_owned(),
            text,
            file: "--chat-template".into(),
            field: "chat_template",
        });
        let given = given.map(compile).transpose()?;
        let processor = processor.map(compile).transpose()?;
        let named = named
            .into_iter()
            .map(|source| Ok((source.name.clone(), compile(source)?)));
        let mut templates = Self {
            given,
            processor,
            named: named.collect::<Result<_, LoadError>>()?,
            recent: Mutex::new(Vec::new()),
            refuse_inline_system: true,
            clock: clock.clone(),
        };
        let probed = [false, true].map(|tools| templates.default(tools));
        templates.refuse_inline_system = probed.iter().any(|template| {
            template
                .as_ref()
                .is_none_or(|template| template.refuses_inline_system())
        });
        Ok(templates)
    }

    pub(crate) fn has_default(&self) -> bool {
        self.default(false).is_some()
    }

    /// Whether system messages further down must move to the front.
    pub(crate) fn refuse_inline_system(&self) -> bool {
        self.refuse_inline_system
    }

    /// The template for a request: `wanted` is a template or the name of one.
    pub(crate) fn pick(&self, wanted: Option<&str>, tools: bool) -> Result<Arc<ChatTemplate>, EncodeError> {
        match wanted {
            None => self.default(tools).ok_or(EncodeError::NoTemplate),
            Some(name) => match self.named(name).filter(|_| self.named.len() > 1) {
                Some(template) => Ok(template),
                None => self.of_request(name),
            },
        }
    }

    fn named(&self, name: &str) -> Option<Arc<ChatTemplate>> {
        self.named
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, template)| template.clone())
    }

    /// vLLM's order: its own flag, the processor's template unless there are tools, the tokenizer's.
    fn default(&self, tools: bool) -> Option<Arc<ChatTemplate>> {
        if let Some(given) = &self.given {
            return Some(given.clone());
        }
        if let Some(processor) = self.processor.as_ref().filter(|_| !tools) {
            return Some(processor.clone());
        }
        let for_tools = if tools { self.named("tool_use") } else { None };
        for_tools
            .or_else(|| self.named("default"))
            .or_else(|| self.processor.clone())
    }

    fn of_request(&self, source: &str) -> Result<Arc<ChatTemplate>, EncodeError> {
        let mut recent = self.recent.lock();
        if let Some(at) = recent.iter().position(|(known, _)| **known == *source) {
            recent[..=at].rotate_right(1);
            return Ok(recent[0].1.clone());
        }
        drop(recent);
        let template = Arc::new(ChatTemplate::compile(source, REQUEST_FUEL, self.clock.clone())?);
        let mut recent = self.recent.lock();
        recent.truncate(KEPT - 1);
        recent.insert(0, (source.into(), template.clone()));
        Ok(template)
    }
}
