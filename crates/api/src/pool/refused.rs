//! What nobody may give to an engine although no field of the pool sets it: with it the picker and the engine would not
//! work together.

use kube::core::Rule;

/// A flag or a variable, why it is refused, and what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The flag with its dashes, or the variable.
    pub name: &'static str,
    /// What it would do.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

const ASK_AT_THE_GATEWAY: &str = "remove it and let the gateway ask for keys";

/// Flags in `engine.args`.
pub const FLAGS: &[Refused] = &[Refused {
    name: "--api-key",
    why: "makes engines refuse the picker, which reads their models and tokenizes without a key",
    remedy: ASK_AT_THE_GATEWAY,
}];

/// Variables in `engine.env`, and in what `podTemplate` adds to the engine's container.
pub const VARIABLES: &[Refused] = &[
    Refused {
        name: "VLLM_API_KEY",
        why: "makes engines refuse the picker, which reads their models and tokenizes without a key",
        remedy: ASK_AT_THE_GATEWAY,
    },
    Refused {
        name: "VLLM_PORT",
        why: "moves the ports between an engine's own processes to where its API and KV events may listen",
        remedy: "remove it; spec.engine.port is the API's port",
    },
    Refused {
        name: "PYTHONHASHSEED",
        why: "makes the hashes of KV-cache blocks predictable, so that prompts can be made to meet other people's blocks",
        remedy: "remove it; the picker works with whatever hashes engines choose",
    },
];

impl Refused {
    fn message(self) -> String {
        let Self { name, why, remedy } = self;
        format!("{name} {why}; {remedy}")
    }
}

/// Why a flag of `engine.args` is refused, if it is. vLLM takes underscores for dashes, so this does too.
pub fn flag(arg: &str) -> Option<Refused> {
    let end = arg.find(['=', ' ', '.']).unwrap_or(arg.len());
    let word = arg[..end].replace('_', "-");
    FLAGS.iter().copied().find(|refused| refused.name == word)
}

/// Why a variable of an engine is refused, if it is.
pub fn variable(name: &str) -> Option<Refused> {
    VARIABLES.iter().copied().find(|refused| refused.name == name)
}

/// Rules of one item of `engine.args`.
pub(super) fn flag_rules() -> Vec<Rule> {
    let rule = |refused: &Refused| {
        // a dot stands for both dash and underscore
        let pattern = format!("--{}", refused.name.trim_start_matches('-').replace('-', "."));
        Rule::new(format!("!self.matches('^{pattern}([=. ].*)?$')")).message(refused.message().as_str())
    };
    FLAGS.iter().map(rule).collect()
}

/// Rules of `engine.env`.
pub(super) fn variable_rules() -> Vec<Rule> {
    let rule = |refused: &Refused| {
        Rule::new(format!("self.all(v, v.name != '{}')", refused.name)).message(refused.message().as_str())
    };
    VARIABLES.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_refused_flag_is_known() {
        for arg in [
            "--api-key",
            "--api_key=secret",
            "--api-key secret",
            "--api-key.0=secret",
        ] {
            assert_eq!(flag(arg).map(|refused| refused.name), Some("--api-key"), "{arg}");
        }
        for arg in ["--api-server-count", "--api-keys", "api-key"] {
            assert_eq!(flag(arg), None, "{arg}");
        }
        assert_eq!(variable("VLLM_PORT_RANGE"), None);
    }
}
