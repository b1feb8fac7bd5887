//! The live page: `/`, one self-contained document, and `/live`, the snapshots that feed it as server-sent events.
//!
//! Nothing of a request's text or headers is on either: of a pick the page shows numbers, addresses of endpoints, and the
//! model's name only if an endpoint is known to serve it (a client may write anything there). Who may look is decided by
//! [`PageAccess`]; at most [`MOST_VIEWERS`] look at once, and while nobody does, no snapshot is made ([`Feed`]).

mod feed;
mod gate;
mod snapshot;

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::get,
};
use futures::StreamExt;
use lmetric_api::PageAccess;
use lmetric_telemetry::{Readiness, Tasks};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use super::Pages;
use feed::{Feed, MOST_VIEWERS};
use snapshot::Source;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 4] = [
    include_str!("page/format.js"),
    include_str!("page/fleet.js"),
    include_str!("page/lists.js"),
    include_str!("page/live.js"),
];

/// What the live page is made of.
pub struct LiveParts {
    /// Whom it shows.
    pub pages: Pages,
    /// What stands in the picker's way.
    pub readiness: Readiness,
    /// Model seconds per real second.
    pub speed: f64,
    /// Who may look.
    pub access: PageAccess,
    /// Where the producer of snapshots runs.
    pub tasks: Tasks,
}

#[derive(Clone)]
struct Live {
    feed: Arc<Feed>,
    ending: CancellationToken,
}

/// The routes, to merge into the admin server; none when the page is off.
pub fn router(parts: LiveParts) -> Router {
    let LiveParts {
        pages,
        readiness,
        speed,
        access,
        tasks,
    } = parts;
    if access == PageAccess::Off {
        return Router::new();
    }
    let source = Source {
        pages,
        readiness,
        speed,
    };
    let live = Live {
        ending: tasks.token().clone(),
        feed: Feed::new(tasks, move || source.snapshot()),
    };
    Router::new()
        .route("/", get(page))
        .route("/live", get(snapshots))
        .route_layer(middleware::from_fn_with_state(access, gate::check))
        .with_state(live)
}

/// The document; the nonce lets its own style and script run, and no other.
async fn page() -> Response {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let script = format!("\"use strict\";\n{}", SCRIPTS.join("\n"));
    let html = PAGE
        .replace("{nonce}", &nonce)
        .replace("{style}", STYLE)
        .replace("{script}", &script);
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &policy),
    ];
    (headers, html).into_response()
}

async fn snapshots(State(live): State<Live>) -> Response {
    let Some(viewer) = live.feed.join() else {
        let told = format!("{MOST_VIEWERS} viewers look at this picker already; close one of their pages\n");
        return (StatusCode::SERVICE_UNAVAILABLE, told).into_response();
    };
    let events = WatchStream::new(viewer)
        .filter(|snapshot| std::future::ready(!snapshot.is_empty()))
        .map(|snapshot| Ok::<_, Infallible>(Event::default().data(&*snapshot)))
        .take_until(live.ending.cancelled_owned());
    Sse::new(events).into_response()
}

/// Of every answer here: kept by nobody, guessed at by nobody, embedded by nobody.
fn harden(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
