//! `/drain/<pod UID>`, for the tool that an engine's pod runs before it ends.
//!
//! `POST` takes the pod's endpoints out of picking before it answers; `GET` and `POST` both answer with
//! `{"inFlight": n}`, this picker's engine requests on the pod. Only from the pod's own address (403 otherwise); 404 for
//! a pod that is none of this pool's. Void once the engine's container restarts.
//!
//! Where a network masquerades what pods say to pods, nobody's address is his own and everybody gets 403. The tool then
//! goes by the engine's own figure, and the pod is out from its deletionTimestamp on all the same.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{ConnectInfo, Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;

use crate::{discovery::DrainRefusal, fleet::Fleet};

/// The route, to merge into the admin server.
pub fn router(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/drain/{uid}", get(look).post(drain))
        .with_state(fleet)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InFlight {
    in_flight: u64,
}

async fn drain(
    State(fleet): State<Arc<Fleet>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(uid): Path<String>,
) -> Response {
    answer(fleet.drain(&uid, peer.ip()))
}

async fn look(
    State(fleet): State<Arc<Fleet>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(uid): Path<String>,
) -> Response {
    answer(fleet.drained(&uid, peer.ip()))
}

fn answer(result: Result<u64, DrainRefusal>) -> Response {
    match result {
        Ok(in_flight) => Json(InFlight { in_flight }).into_response(),
        Err(refusal) => {
            let status = match refusal {
                DrainRefusal::Unknown => StatusCode::NOT_FOUND,
                DrainRefusal::NotItself => StatusCode::FORBIDDEN,
            };
            (status, format!("{refusal}\n")).into_response()
        }
    }
}
