//! The registry and its text encoding.

use prometheus_client::{encoding::prometheus_text, registry::Registry};

/// `Content-Type` of [`encode`]'s output.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// A registry whose names all begin with `lmetric_`.
pub fn registry() -> Registry {
    Registry::with_prefix("lmetric")
}

/// The whole registry in Prometheus' text format 0.0.4.
pub fn encode(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    prometheus_text::encode(&mut page, registry)?;
    Ok(page)
}
