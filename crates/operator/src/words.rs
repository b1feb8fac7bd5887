//! Errors of the API server's client in words for a person: its own texts hold dumps of structures.

use std::{error::Error, fmt};

use kube::runtime::watcher;

/// Shows such an error.
pub struct Words<'a, E>(pub &'a E);

impl fmt::Display for Words<'_, kube::Error> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            kube::Error::Api(status) => answer(status, to),
            other => chain(other, to),
        }
    }
}

impl fmt::Display for Words<'_, watcher::Error> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            watcher::Error::InitialListFailed(error) => write!(to, "cannot list: {}", Words(error)),
            watcher::Error::WatchStartFailed(error) => write!(to, "cannot watch: {}", Words(error)),
            watcher::Error::WatchFailed(error) => write!(to, "the watch failed: {}", Words(error)),
            watcher::Error::WatchError(status) => {
                to.write_str("the API server ended the watch: ")?;
                answer(status, to)
            }
            watcher::Error::NoResourceVersion => write!(to, "{}", self.0),
        }
    }
}

fn answer(status: &kube::core::Status, to: &mut fmt::Formatter<'_>) -> fmt::Result {
    let kube::core::Status {
        message,
        reason,
        code,
        ..
    } = status;
    if message.is_empty() {
        write!(to, "{reason} ({code})")
    } else {
        write!(to, "{message} ({reason}, {code})")
    }
}

/// An error and what caused it, each said once.
fn chain(error: &dyn Error, to: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut said = error.to_string();
    to.write_str(&said)?;
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !said.contains(&words) {
            write!(to, ": {words}")?;
        }
        said = words;
        next = cause.source();
    }
    Ok(())
}

/// Whether the API server made nothing because the namespace is being deleted, which nobody needs to hear of.
pub fn is_about_a_namespace_that_ends(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice());
    let says_so = causes
        .unwrap_or_default()
        .iter()
        .any(|cause| cause.reason == "NamespaceTerminating");
    says_so || status.code == 403 && status.message.contains("is being terminated")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> kube::Error {
        let status = serde_json::json!({
            "status": "Failure", "code": code, "reason": "Forbidden", "message": message,
        });
        kube::Error::Api(Box::new(serde_json::from_value(status).expect("a status")))
    }

    #[test]
    fn the_api_servers_own_words_and_no_dump_of_them() {
        let error = refused(403, "exceeded quota: gpus");
        assert_eq!(Words(&error).to_string(), "exceeded quota: gpus (Forbidden, 403)");
        let watch = watcher::Error::InitialListFailed(error);
        assert_eq!(
            Words(&watch).to_string(),
            "cannot list: exceeded quota: gpus (Forbidden, 403)"
        );
    }

    #[test]
    fn causes_are_said_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(Words(&error).to_string(), "ServiceError: connection refused");
    }

    #[test]
    fn only_the_end_of_a_namespace_is_no_news() {
        let ends = "unable to create new content in namespace a because it is being terminated";
        assert!(is_about_a_namespace_that_ends(&refused(403, ends)));
        assert!(!is_about_a_namespace_that_ends(&refused(403, "no right")));
        assert!(!is_about_a_namespace_that_ends(&refused(500, ends)));
    }
}
