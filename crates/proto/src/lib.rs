//! Envoy's ext-proc protocol, trimmed to what a picker speaks; bodies are `Bytes`.
//!
//! Package names, message names and field numbers are Envoy's (see `proto/README.md`): the bytes on the wire are the same.

#[expect(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated; documented in the .proto files"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/envoy.rs"));
}

/// `envoy.service.ext_proc.v3`: the service and its messages.
pub use generated::envoy::service::ext_proc::v3 as ext_proc;

/// `envoy.config.core.v3`: headers and metadata.
pub use generated::envoy::config::core::v3 as core;

/// `envoy.type.v3`: HTTP status codes.
pub use generated::envoy::r#type::v3 as http;

/// `envoy.extensions.filters.http.ext_proc.v3`: processing modes.
pub use generated::envoy::extensions::filters::http::ext_proc::v3 as mode;
