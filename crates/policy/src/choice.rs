//! From what a person writes to a policy: a name, a name with parameters in a file, or one word on a command line.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, Unexpected, Visitor},
};
use serde_json::{Map, Value};

use crate::PolicyKind;

/// A policy that cannot be had as it was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No such name.
    #[error("no policy is called {name:?}; use one of {}", PolicyKind::names())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A parameter that it does not have, or a value that it cannot have.
    #[error("policy {policy}: {problem}")]
    Parameter {
        /// Which policy.
        policy: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Not `name` and not `name(parameter=value,…)`.
    #[error("{text:?} is not a policy; write it like lmetric or bailian(lambda=0.55)")]
    Syntax {
        /// What was written.
        text: String,
    },
}

impl PolicyKind {
    /// The policy `name` with `parameters`; those left out have the source's value.
    pub fn new(name: &str, parameters: Map<String, Value>) -> Result<Self, PolicyError> {
        let known = Self::all().into_iter().find(|kind| kind.name() == name);
        let kind = known.ok_or_else(|| PolicyError::Unknown {
            name: name.to_owned(),
        })?;
        let bad = |problem: String| PolicyError::Parameter {
            policy: kind.name(),
            problem,
        };
        if let Some((parameter, _)) = parameters
            .iter()
            .find(|(parameter, _)| !kind.parameters().contains_key(*parameter))
        {
            let known: Vec<String> = kind.parameters().keys().cloned().collect();
            return Err(bad(match known.len() {
                0 => format!("unknown field `{parameter}`, it has no parameters"),
                _ => format!("unknown field `{parameter}`, expected {}", known.join(", ")),
            }));
        }
        let chosen = match kind {
            Self::Lmetric(_) => Self::Lmetric(typed(parameters).map_err(bad)?),
            Self::LmetricMarginal(_) => Self::LmetricMarginal(typed(parameters).map_err(bad)?),
            Self::Bailian(_) => Self::Bailian(typed(parameters).map_err(bad)?),
            Self::Dynamo(_) => Self::Dynamo(typed(parameters).map_err(bad)?),
            Self::LlmD(_) => Self::LlmD(typed(parameters).map_err(bad)?),
            Self::LlmDTtft(_) => Self::LlmDTtft(typed(parameters).map_err(bad)?),
            Self::Aibrix(_) => Self::Aibrix(typed(parameters).map_err(bad)?),
            Self::Preble(_) => Self::Preble(typed(parameters).map_err(bad)?),
            Self::PolyServe(_) => Self::PolyServe(typed(parameters).map_err(bad)?),
            Self::PrefixAffinity(_) => Self::PrefixAffinity(typed(parameters).map_err(bad)?),
            plain => plain,
        };
        chosen.check().map_err(bad)?;
        Ok(chosen)
    }

    /// This policy with one parameter set anew, as a sweep does.
    pub fn with(self, parameter: &str, value: &str) -> Result<Self, PolicyError> {
        let mut parameters = self.parameters();
        parameters.insert(parameter.to_owned(), scalar(value));
        Self::new(self.name(), parameters)
    }
}

/// The fields one by one first, so that an error names its field.
fn typed<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, String> {
    for (name, value) in &parameters {
        let one = Map::from_iter([(name.clone(), value.clone())]);
        serde_json::from_value::<T>(Value::Object(one)).map_err(|error| format!("{name}: {error}"))?;
    }
    serde_json::from_value(Value::Object(parameters)).map_err(|error| error.to_string())
}

fn scalar(text: &str) -> Value {
    if let Ok(whole) = text.parse::<u64>() {
        return Value::from(whole);
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::from(number),
        _ => match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            word => Value::from(word),
        },
    }
}

impl FromStr for PolicyKind {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let syntax = || PolicyError::Syntax {
            text: text.to_owned(),
        };
        let Some((name, rest)) = text.split_once('(') else {
            return Self::new(text.trim(), Map::new());
        };
        let inside = rest.strip_suffix(')').ok_or_else(syntax)?;
        let mut parameters = Map::new();
        for pair in inside.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (parameter, value) = pair.split_once('=').ok_or_else(syntax)?;
            parameters.insert(parameter.trim().to_owned(), scalar(value.trim()));
        }
        Self::new(name.trim(), parameters)
    }
}

/// A name, or a map of `name` and parameters.
impl<'de> Deserialize<'de> for PolicyKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = PolicyKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "one of {}, alone or as the name in a map of parameters",
                    PolicyKind::names()
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicyKind, E> {
                PolicyKind::new(name, Map::new()).map_err(|_| E::invalid_value(Unexpected::Str(name), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<PolicyKind, A::Error> {
                let mut name: Option<String> = None;
                let mut parameters = Map::new();
                while let Some(field) = fields.next_key::<String>()? {
                    if field == "name" {
                        name = Some(fields.next_value()?);
                    } else {
                        parameters.insert(field, fields.next_value()?);
                    }
                }
                let name = name.ok_or_else(|| de::Error::missing_field("name"))?;
                PolicyKind::new(&name, parameters).map_err(|error| match error {
                    PolicyError::Parameter { problem, .. } => de::Error::custom(problem),
                    _ => de::Error::invalid_value(Unexpected::Str(&name), &self),
                })
            }
        }

        from.deserialize_any(Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aibrix, Bailian, Crowd, EngineName, LlmDTtft, Lmetric, Marginal};

    fn yaml(text: &str) -> Result<PolicyKind, String> {
        serde_yaml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_alone_has_the_sources_parameters() {
        assert_eq!(yaml("bailian"), Ok(PolicyKind::Bailian(Bailian { lambda: 0.7 })));
        assert_eq!("lmetric".parse(), Ok(PolicyKind::LMETRIC));
        for kind in PolicyKind::all() {
            assert_eq!(yaml(kind.name()), Ok(kind));
            assert_eq!(kind.to_string(), kind.name());
        }
    }

    #[test]
    fn parameters_are_typed_in_a_file_and_on_a_command_line() {
        let half = PolicyKind::Bailian(Bailian { lambda: 0.55 });
        assert_eq!(yaml("{name: bailian, lambda: 0.55}"), Ok(half));
        assert_eq!("bailian(lambda=0.55)".parse(), Ok(half));
        assert_eq!(half.to_string(), "bailian(lambda=0.55)");
        let tokens = PolicyKind::Lmetric(Lmetric {
            crowd: Crowd::Tokens,
            queue: false,
            ..Lmetric::default()
        });
        assert_eq!(yaml("{name: lmetric, crowd: tokens, queue: false}"), Ok(tokens));
        assert_eq!(tokens.to_string().parse(), Ok(tokens));
        let untuned = PolicyKind::LlmDTtft(LlmDTtft {
            model: EngineName::Qwen2_7b,
            ..LlmDTtft::default()
        });
        assert_eq!("llm-d-ttft(model=qwen2-7b)".parse(), Ok(untuned));
        let flat = PolicyKind::LmetricMarginal(Marginal {
            alpha: Some(1.0),
            ..Marginal::default()
        });
        assert_eq!(yaml("{name: lmetric-marginal, alpha: 1}"), Ok(flat));
    }

    #[test]
    fn a_sweep_sets_one_parameter() {
        let range = PolicyKind::Aibrix(Aibrix::default()).with("range", "16");
        assert_eq!(
            range.map(|kind| kind.to_string()),
            Ok("aibrix(range=16)".to_owned())
        );
        assert!(PolicyKind::Vllm.with("lambda", "0.5").is_err());
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (text, says) in [
            ("lmetrics", "one of lmetric, lmetric-marginal, vllm"),
            (
                "{name: bailian, lamda: 0.5}",
                "unknown field `lamda`, expected lambda",
            ),
            (
                "{name: vllm, lambda: 0.5}",
                "unknown field `lambda`, it has no parameters",
            ),
            (
                "{name: bailian, lambda: 7}",
                "lambda 7 is out of range; write a number from 0 to 1",
            ),
            ("{name: bailian, lambda: much}", "lambda: invalid type"),
            ("{lambda: 0.5}", "missing field `name`"),
            ("[lmetric]", "one of lmetric"),
        ] {
            let error = yaml(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        for text in ["bailian(lambda)", "bailian(lambda=0.5", "nobody"] {
            assert!(text.parse::<PolicyKind>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_serialized_is_read_back() {
        for kind in PolicyKind::all() {
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<PolicyKind>(&text).unwrap(), kind, "{text}");
        }
    }
}
