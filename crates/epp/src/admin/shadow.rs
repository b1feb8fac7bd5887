//! `/debug/shadow`: the shadow policy beside the live one, for `lmetric explain --shadow`.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};
use lmetric_scheduler::{Scheduler, ShadowView};
use serde::Serialize;

/// The route, to merge into the admin server.
pub fn router(scheduler: Arc<Scheduler>) -> Router {
    Router::new()
        .route("/debug/shadow", get(shadow))
        .with_state(scheduler)
}

#[derive(Serialize)]
struct Page {
    /// Null where none is configured.
    shadow: Option<ShadowView>,
}

async fn shadow(State(scheduler): State<Arc<Scheduler>>) -> Json<Page> {
    Json(Page {
        shadow: scheduler.shadow(),
    })
}
