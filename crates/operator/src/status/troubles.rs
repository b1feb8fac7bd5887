//! What a person is told about an object that the API server does not have as it was built.

use lmetric_api::pool::reason;

use crate::apply::{Trouble, What};

/// Without these requests are not served, or go to somebody else's pods.
pub(super) fn is_essential(trouble: &Trouble) -> bool {
    let kind = matches!(
        trouble.kind.as_str(),
        "Deployment" | "Service" | "ConfigMap" | "ServiceAccount" | "RoleBinding"
    );
    kind && trouble.what == What::Conflict
}

/// Conflicts that a message names.
const NAMED: usize = 8;

/// Reason and message about one of the troubles; names that are taken are told together.
pub(super) fn told(trouble: &Trouble, all: &[Trouble]) -> (&'static str, String) {
    let Trouble { kind, name, what } = trouble;
    match what {
        What::Conflict => (reason::NAME_CONFLICT, taken(all)),
        What::Invalid(words) => (
            reason::INVALID_SPEC,
            format!(
                "{kind} {name} as this pool asks for it is invalid: {words}. What ran before goes on; correct the field of spec that this is about"
            ),
        ),
        What::Refused(words) => (
            reason::APPLY_REFUSED,
            format!(
                "the API server refuses {kind} {name}: {words}. What ran before goes on; raise the quota or grant the right that this is about"
            ),
        ),
    }
}

fn taken(troubles: &[Trouble]) -> String {
    let taken: Vec<_> = troubles
        .iter()
        .filter(|trouble| trouble.what == What::Conflict)
        .map(|Trouble { kind, name, .. }| format!("{kind} {name}"))
        .collect();
    if let [one] = taken.as_slice() {
        return format!(
            "{one} exists and is not this pool's; it stays as it is. Delete or rename it, or give the pool another name"
        );
    }
    let mut names = taken[..taken.len().min(NAMED)].join(", ");
    if taken.len() > NAMED {
        names = format!("{names} and {} more", taken.len() - NAMED);
    }
    format!(
        "{names} exist and are not this pool's; they stay as they are. Delete or rename them, or give the pool another name"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_are_told_together_up_to_a_bound() {
        let conflict = |number: usize| Trouble {
            kind: "Service".to_owned(),
            name: format!("s{number}"),
            what: What::Conflict,
        };
        let mut troubles = vec![Trouble {
            kind: "Deployment".to_owned(),
            name: "p-engine".to_owned(),
            what: What::Refused("no quota".to_owned()),
        }];
        troubles.push(conflict(1));
        let (reason, one) = told(&troubles[1], &troubles);
        assert_eq!(reason, reason::NAME_CONFLICT);
        assert!(one.starts_with("Service s1 exists and is not"), "{one}");
        troubles.push(conflict(2));
        let (_, two) = told(&troubles[2], &troubles);
        assert!(
            two.starts_with("Service s1, Service s2 exist and are not"),
            "{two}"
        );
        troubles.extend((3..20).map(conflict));
        let (_, many) = told(&troubles[1], &troubles);
        assert!(many.contains("Service s8 and 11 more exist"), "{many}");
    }
}
