//! Somebody's Gateways: what is known of those that a pool names, how the picker is plugged into them, and what their
//! owner has to set.

pub mod client_policy;
mod look;
mod plug;
#[cfg(test)]
pub(crate) mod testing;

pub use look::{Controller, Gateways, Parent, Seen, look, names_gateway, second_route};
pub use plug::{Choice, Plugged, choose, divide};
