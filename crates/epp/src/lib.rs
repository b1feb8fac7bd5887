//! The endpoint picker: an Envoy ext-proc server that sends each request to the engine LMetric picks.

pub mod admin;
pub mod args;
pub mod clock;
pub mod discovery;
pub mod events;
pub mod fleet;
pub mod guard;
pub mod health;
pub mod housekeeping;
pub mod load;
pub mod metrics;
pub mod picker;
pub mod record;
pub mod refusal;
pub mod reload;
pub mod request;
pub mod run;
pub mod scrape;
pub mod server;
pub mod stream;
pub mod tls;
pub mod tokenizers;
pub mod tokens;

#[cfg(test)]
mod testing;
