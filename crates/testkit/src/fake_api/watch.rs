//! The answer to a watch: lines of JSON without an end.

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use super::{Answer, store::Watching};

pub(super) fn body(watching: Watching) -> Answer {
    let all = stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        let mut events = std::mem::take(&mut watching.first);
        loop {
            for change in watching.changes.borrow_and_update().iter() {
                if change.version > watching.seen && watching.place.lists(&change.place) {
                    events.push(json!({"type": change.kind, "object": change.object}));
                }
            }
            if let Some(last) = watching.changes.borrow().last() {
                watching.seen = watching.seen.max(last.version);
            }
            if !events.is_empty() {
                let frame = Ok::<_, std::convert::Infallible>(Frame::data(lines(&events)));
                // as the real one does, an error is the last event of its watch
                let ends = events.iter().any(|event| event["type"] == "ERROR");
                return Some((frame, (!ends).then_some(watching)));
            }
            watching.changes.changed().await.ok()?;
        }
    });
    StreamBody::new(all).boxed_unsync()
}

fn lines(events: &[Value]) -> Bytes {
    let mut text = String::new();
    for event in events {
        text += &event.to_string();
        text.push('\n');
    }
    text.into()
}
