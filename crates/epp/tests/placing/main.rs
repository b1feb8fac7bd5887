//! The picker's inside, end to end: discovered endpoints become members with sources and scrapers, and
//! requests are placed on them. Engines are small HTTP servers; sources are recorded instead of connected.

mod doubt;
mod drain;
mod engine;
mod fleet;
mod ladder;
mod live;
mod pages;
mod picker;
mod readiness;
mod record;
mod simulated;
mod stage;
