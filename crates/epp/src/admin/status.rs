//! `/debug/models`: how it stands with each model's tokenizer; `/debug/config`: whether the configuration that was written
//! last is in force.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, Router, extract::State, routing::get};

use crate::{
    reload::{ConfigStatus, ReloadStatus},
    tokenizers::{State as Tokenizer, States},
};

/// What the pages read.
#[derive(Clone)]
pub struct StatusPages {
    /// Tokenizers by model.
    pub tokenizers: States,
    /// The configuration.
    pub config: ReloadStatus,
}

/// The routes, to merge into the admin server.
pub fn router(pages: StatusPages) -> Router {
    Router::new()
        .route("/debug/models", get(models))
        .route("/debug/config", get(config))
        .with_state(pages)
}

async fn models(State(pages): State<StatusPages>) -> Json<BTreeMap<String, Tokenizer>> {
    let states = pages.tokenizers.now();
    Json(
        states
            .into_iter()
            .map(|(model, state)| (Arc::as_ref(&model).to_owned(), state))
            .collect(),
    )
}

async fn config(State(pages): State<StatusPages>) -> Json<ConfigStatus> {
    Json(pages.config.now())
}
