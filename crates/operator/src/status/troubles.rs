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

/// Reason and message.
pub(super) fn told(trouble: &Trouble) -> (&'static str, String) {
    let Trouble { kind, name, what } = trouble;
    match what {
        What::Conflict => (
            reason::NAME_CONFLICT,
            format!(
                "{kind} {name} exists and is not this pool's; it stays as it is. Delete or rename it, or give the pool another name"
            ),
        ),
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
