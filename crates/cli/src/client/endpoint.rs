//! Where requests go.

use std::{fmt, str::FromStr};

use http::Uri;
use thiserror::Error;

/// A base address that cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UrlError {
    /// Not a URL with a host.
    #[error("{0:?} is not an address; write it like http://127.0.0.1:8081")]
    Malformed(String),
    /// Another scheme.
    #[error("{0:?} is neither http nor https; write it like http://127.0.0.1:8081")]
    Scheme(String),
}

/// `http://host:port` or `https://host:port`, perhaps with a path before the API's own (a trailing `/v1` is understood).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// Whether TLS is spoken there.
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// The address of `path`, which begins with `/`.
    pub fn join(&self, path: &str) -> Result<Uri, UrlError> {
        let text = format!("{}{path}", self.0);
        text.parse().map_err(|_| UrlError::Malformed(text))
    }
}

impl FromStr for BaseUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let malformed = || UrlError::Malformed(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let scheme = match uri.scheme_str() {
            Some("http") => "http",
            Some("https") => "https",
            Some(_) => return Err(UrlError::Scheme(text.to_owned())),
            None => return Err(malformed()),
        };
        let host = uri
            .authority()
            .filter(|authority| !authority.host().is_empty())
            .ok_or_else(malformed)?;
        if uri.query().is_some() {
            return Err(malformed());
        }
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path);
        Ok(Self(format!("{scheme}://{host}{path}")))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_may_end_in_a_slash_or_v1() {
        for base in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"] {
            let base: BaseUrl = base.parse().unwrap();
            assert_eq!(
                base.join("/v1/models").unwrap().to_string(),
                "http://h:1/v1/models"
            );
        }
        assert_eq!(
            "http://h/pool".parse::<BaseUrl>().unwrap().to_string(),
            "http://h/pool"
        );
    }

    #[test]
    fn https_is_told() {
        let secure: BaseUrl = "https://h/v1".parse().unwrap();
        assert!(secure.is_https() && secure.to_string() == "https://h");
        assert!(!"http://https".parse::<BaseUrl>().unwrap().is_https());
    }

    #[test]
    fn what_cannot_be_reached_is_refused_with_a_remedy() {
        for bad in ["127.0.0.1:8081", "nonsense", "", "http://", "http://h?x=1"] {
            assert!(
                matches!(
                    bad.parse::<BaseUrl>(),
                    Err(UrlError::Malformed(_) | UrlError::Scheme(_))
                ),
                "{bad}"
            );
        }
        assert!(
            "ftp://h"
                .parse::<BaseUrl>()
                .unwrap_err()
                .to_string()
                .contains("neither http nor https")
        );
    }
}
