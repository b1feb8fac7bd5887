//! The operator: per pool dereference → validate → build → apply → status.
//!
//! | step | module | kind |
//! |---|---|---|
//! | what the cluster says about a pool | [`dereference`] | reads the watches' stores |
//! | what is asked, resolved and checked | [`validate`] | pure |
//! | the objects, by the builder that made the running engines | [`build`], [`versions`] | pure |
//! | to the API server, orphans away | [`apply`] | writes |
//! | what a person is told | [`status`], [`events`] | pure, then one write |
//!
//! [`resources::Resources`] carries its stage in its type: what is told comes from applied objects. [`reconcile`] drives
//! the steps; [`watch`] says when; [`lease`] says who.

pub mod apply;
pub mod args;
pub mod backoff;
pub mod build;
pub mod dereference;
pub mod events;
pub mod gateway;
pub mod lease;
pub mod metrics;
pub mod rbac;
pub mod reconcile;
pub mod resources;
pub mod rollout;
pub mod run;
pub mod status;
#[cfg(test)]
mod testing;
pub mod validate;
pub mod validated;
pub mod versions;
pub mod watch;
pub mod words;
