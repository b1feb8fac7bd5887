//! The operator: per pool dereference → validate → build → apply → status.
//!
//! | step | module | kind |
//! |---|---|---|
//! | what the cluster says about a pool | [`dereference`] | reads the watches' stores |
//! | what is asked, resolved and checked | [`validate`] | pure |
//! | the objects | [`build`] | pure |
//! | to the API server, orphans away | [`apply`] | writes |
//! | what a person is told | [`status`] | pure, then one write |
//!
//! [`resources::Resources`] carries its stage in its type: a status can only be computed from applied objects.

pub mod build;
pub mod resources;
pub mod validated;
