//! A model's chat template, compiled once: Jinja as `transformers` configures it, on minijinja.

mod format;
mod json;
mod sums;
mod tags;

use std::fmt;
use std::sync::{Arc, OnceLock};

use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

pub(crate) use format::ContentFormat;

/// The wall clock that `strftime_now` reads.
pub type Clock = Arc<dyn Fn() -> jiff::civil::DateTime + Send + Sync>;

/// Work that a model's own template may do for one prompt: instructions, and 64 bytes of text made
/// or written for each unit. Bounds time (about 0.2 s) and memory (256 MiB made in all).
pub(crate) const MODEL_FUEL: u64 = 4_000_000;
/// The same for a template that came with a request.
pub(crate) const REQUEST_FUEL: u64 = 500_000;
/// Longest template source that is compiled.
pub(crate) const LONGEST_SOURCE: usize = 256 << 10;

const NAME: &str = "chat_template";

/// A compiled template.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    format: ContentFormat,
    knows_developer: bool,
    has_generation: bool,
    disabled_effort: OnceLock<&'static str>,
}

/// Variables of one rendering. They do not include the special tokens, which belong to the model.
pub(crate) struct Variables {
    pub(crate) messages: Value,
    pub(crate) tools: Value,
    pub(crate) documents: Value,
    pub(crate) add_generation_prompt: bool,
    /// Everything else, the earlier of two equal names losing.
    pub(crate) others: Vec<(String, Value)>,
}

/// Why a template cannot be compiled or did not render.
#[derive(Debug, thiserror::Error)]
pub struct TemplateError(#[from] Error);

impl fmt::Display for TemplateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = &self.0;
        match error.detail() {
            Some(detail) => write!(out, "{detail}")?,
            None => write!(out, "{}", error.kind())?,
        }
        match error.line() {
            Some(line) => write!(out, " (line {line} of the template)"),
            None => Ok(()),
        }
    }
}

impl ChatTemplate {
    /// Compiles `source`; `fuel` bounds every rendering.
    pub(crate) fn compile(source: &str, fuel: u64, clock: Clock) -> Result<Self, TemplateError> {
        if source.len() > LONGEST_SOURCE {
            let message = format!("template is longer than {LONGEST_SOURCE} bytes");
            return Err(Error::new(ErrorKind::InvalidOperation, message).into());
        }
        let plain = tags::without_generation(source);
        let mut environment = environment(clock)?;
        environment.set_fuel(Some(fuel));
        environment.add_template_owned(NAME, sums::without_sums(&plain).into_owned())?;
        Ok(Self {
            environment,
            format: format::detect(&plain),
            knows_developer: source.contains("\"developer\"") || source.contains("'developer'"),
            has_generation: *plain != *source,
            disabled_effort: OnceLock::new(),
        })
    }

    /// How this template wants message content.
    pub(crate) fn format(&self) -> ContentFormat {
        self.format
    }

    /// Whether the template mentions the `developer` role.
    pub(crate) fn knows_developer(&self) -> bool {
        self.knows_developer
    }

    /// The `reasoning_effort` that stands for "no thinking", probed once.
    pub(crate) fn disabled_effort(&self, probe: impl FnOnce() -> &'static str) -> &'static str {
        self.disabled_effort.get_or_init(probe)
    }

    /// Renders one prompt.
    pub(crate) fn render(&self, variables: Variables) -> Result<String, TemplateError> {
        let Variables {
            messages,
            tools,
            documents,
            add_generation_prompt,
            others,
        } = variables;
        let named = [
            ("messages".to_owned(), messages),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), documents),
            (
                "add_generation_prompt".to_owned(),
                Value::from(add_generation_prompt),
            ),
        ];
        let context = Value::from_pairs(others.into_iter().chain(named));
        Ok(self.environment.get_template(NAME)?.render(context)?)
    }

    /// Whether the template refuses a system message that is not the first (vLLM's probe).
    pub(crate) fn refuses_inline_system(&self) -> bool {
        if self.has_generation {
            return true; // the probe's environment does not know the tag
        }
        let message = |role: &str| Value::from_pairs([("role", role), ("content", "t")]);
        let messages = ["system", "user", "system", "user"].map(message);
        let context = [
            ("messages", Value::from(messages.to_vec())),
            ("add_generation_prompt", Value::from(false)),
            // nor these functions
            ("strftime_now", Value::from(())),
            ("raise_exception", Value::from(())),
        ];
        let template = self.environment.get_template(NAME);
        template
            .and_then(|template| template.render(Value::from_pairs(context)))
            .is_err()
    }
}

/// Jinja2 as `transformers` sets it up: `trim_blocks`, `lstrip_blocks`, loop controls, no escaping.
fn environment(clock: Clock) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_debug(false); // its reports would quote prompts
    environment.set_formatter(|out, state, value| {
        if value.kind() == ValueKind::String {
            return Ok(out.write_str(value.as_str().unwrap_or_default())?);
        }
        if value.kind() == ValueKind::Number && !value.is_integer() {
            let number = f64::try_from(value.clone())?;
            if number.is_finite() {
                return Ok(out.write_str(&json::float(number))?);
            }
        }
        minijinja::escape_formatter(out, state, value)
    });
    environment.add_filter("tojson", json::tojson);
    environment.add_filter(sums::ONLY_TEXT, sums::only_text);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: &str| -> Result<String, Error> {
        strtime::format(format, clock())
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    // in Jinja2 whatever has a length and an index is a sequence, and what can be looped over is iterable
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    environment.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined
        )
    });
    Ok(environment)
}
