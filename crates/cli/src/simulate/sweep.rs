//! `bailian.lambda=0:1:0.05`: one policy with one parameter at many values.

use std::str::FromStr;

use lmetric_scheduler::PolicyKind;
use thiserror::Error;

/// Most values of one sweep.
const MOST_VALUES: usize = 1_000;

/// What is wrong with a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SweepError {
    /// Not in the form.
    #[error(
        "{0:?} is not a sweep; write POLICY.PARAMETER=FROM:TO:STEP or POLICY.PARAMETER=A,B,C, like bailian.lambda=0:1:0.05"
    )]
    Syntax(String),
    /// Too many values, or none.
    #[error("{0:?} has no value or more than {MOST_VALUES}; raise the step")]
    Values(String),
    /// The policy does not take it.
    #[error("{0}")]
    Policy(String),
}

/// One policy with one parameter at several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Name of the parameter.
    pub parameter: String,
    /// Policies, one for each value, with the value as it was written.
    pub policies: Vec<(String, PolicyKind)>,
}

impl FromStr for Sweep {
    type Err = SweepError;

    fn from_str(text: &str) -> Result<Self, SweepError> {
        let syntax = || SweepError::Syntax(text.to_owned());
        let (what, values) = text.split_once('=').ok_or_else(syntax)?;
        let (policy, parameter) = what.rsplit_once('.').ok_or_else(syntax)?;
        let policy: PolicyKind = policy
            .parse()
            .map_err(|error: lmetric_policy::PolicyError| SweepError::Policy(error.to_string()))?;
        let values = if values.contains(':') {
            range(values).ok_or_else(syntax)?
        } else {
            values.split(',').map(|value| value.trim().to_owned()).collect()
        };
        if values.is_empty() || values.len() > MOST_VALUES {
            return Err(SweepError::Values(text.to_owned()));
        }
        let policies = values
            .into_iter()
            .map(|value| {
                let set = policy.with(parameter, &value);
                let set = set.map_err(|error| SweepError::Policy(error.to_string()))?;
                Ok((value, set))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            parameter: parameter.to_owned(),
            policies,
        })
    }
}

/// `FROM:TO:STEP`, both ends included; values are counted in steps so that no error adds up.
fn range(text: &str) -> Option<Vec<String>> {
    let mut numbers = text
        .split(':')
        .map(|number| number.trim().parse::<f64>().ok().filter(|n| n.is_finite()));
    let (from, to, step) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if numbers.next().is_some() || step <= 0.0 || to < from {
        return None;
    }
    let count = ((to - from) / step + 1e-9).floor() as usize;
    let value = |at: usize| (from + at as f64 * step) * 1e9;
    Some(
        (0..=count.min(MOST_VALUES))
            .map(|at| (value(at).round() / 1e9).to_string())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_both_ends_and_no_rounding() {
        let sweep: Sweep = "bailian.lambda=0:1:0.05".parse().unwrap();
        assert_eq!(sweep.policies.len(), 21);
        assert_eq!(sweep.policies[3].0, "0.15");
        assert_eq!(sweep.policies[20].1.to_string(), "bailian(lambda=1.0)");
        let sweep: Sweep = "aibrix.range=4,8,16".parse().unwrap();
        let names: Vec<String> = sweep
            .policies
            .iter()
            .map(|(_, policy)| policy.to_string())
            .collect();
        assert_eq!(names, ["aibrix(range=4)", "aibrix", "aibrix(range=16)"]);
        let sweep: Sweep = "aibrix.range=2:32:2".parse().unwrap();
        assert_eq!(sweep.policies.len(), 16);
    }

    #[test]
    fn a_bad_sweep_says_how_to_write_one() {
        for (text, says) in [
            ("lambda", "FROM:TO:STEP"),
            ("bailian=1", "FROM:TO:STEP"),
            ("bailian.lambda=0:1", "FROM:TO:STEP"),
            ("bailian.lambda=0:1:0", "FROM:TO:STEP"),
            ("bailian.lambda=0:nan:1", "FROM:TO:STEP"),
            ("bailian.lambda=0:1:0.0001", "raise the step"),
            ("bailian.lamda=0:1:0.5", "expected lambda"),
            ("baillian.lambda=0:1:0.5", "use one of"),
            ("bailian.lambda=0:3:1", "from 0 to 1"),
        ] {
            let error = text.parse::<Sweep>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
