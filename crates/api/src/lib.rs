//! What people write: the picker's configuration, its endpoints file and the [`pool`] object; typed, validated. No I/O.
//!
//! The two files are YAML with camelCase fields; a field that is not known is refused, because a misspelt field
//! that is silently ignored costs an evening. Every error is a [`ConfigError`]: it names the file, the field
//! and the remedy. Nothing here opens a file: the caller reads the text and passes its path for the messages
//! (and for relative paths inside it).

mod duration;
mod endpoints;
mod error;
pub mod foreign;
mod picker;
mod pods;
pub mod pool;
mod raw;
mod record;
mod tokenizer;

pub use duration::parse_duration;
pub use endpoints::{EndpointEntry, EndpointsFile};
pub use error::ConfigError;
pub use lmetric_policy::PolicyKind as Policy;
pub use picker::{
    Endpoints, Events, Hotspot, Limits, Listen, ModelGroup, PageAccess, PickerConfig, Record, Scrape, Tls,
    Tokens,
};
pub use pods::{KvPorts, PodEndpoints, Pods};
pub use tokenizer::{Repository, Site, TokenizerSource};
