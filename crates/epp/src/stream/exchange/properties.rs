//! Whatever a gateway sends, in whatever order: well-formed replies, one placement, one end.

use lmetric_proto::{
    ext_proc::{ProcessingResponse, body_mutation::Mutation, processing_response::Response},
    mode::processing_mode::BodySendMode,
};
use proptest::prelude::*;

use super::tests::{
    Run, announced, body, destination, headers, response_body, response_headers, response_trailers, trailers,
};
use super::*;

#[derive(Clone, Debug)]
enum Event {
    Message(ProcessingRequest),
    Placed(bool),
    PatienceOver,
    Drain,
    Oversized,
    End,
}

fn event() -> impl Strategy<Value = Event> {
    const PARTS: [&[u8]; 4] = [b"", b"{", b"{\"prompt\":\"a\"}", &[b'x'; 600]];
    let request = prop_oneof![
        2 => any::<bool>().prop_map(headers),
        4 => (prop::sample::select(&PARTS[..]), any::<bool>()).prop_map(|(bytes, end)| body(bytes, end)),
        1 => Just(trailers()),
    ];
    let response = prop_oneof![
        2 => (prop::sample::select(vec!["200", "404", "503", "x", ""]), any::<bool>())
            .prop_map(|(status, end)| response_headers(status, end)),
        4 => (prop::sample::select(&PARTS[..]), any::<bool>()).prop_map(|(bytes, end)| response_body(bytes, end)),
        1 => Just(response_trailers()),
    ];
    prop_oneof![
        10 => request.prop_map(Event::Message),
        6 => response.prop_map(Event::Message),
        1 => Just(Event::Message(ProcessingRequest::default())),
        3 => any::<bool>().prop_map(Event::Placed),
        1 => Just(Event::PatienceOver),
        1 => Just(Event::Drain),
        1 => Just(Event::Oversized),
        1 => Just(Event::End),
    ]
}

fn mode() -> impl Strategy<Value = BodySendMode> {
    (0..=5).prop_map(|mode| BodySendMode::try_from(mode).unwrap())
}

fn is_streamed(reply: &ProcessingResponse) -> Option<(bool, bool)> {
    let (is_request, body) = match reply.response.as_ref()? {
        Response::RequestBody(body) => (true, body),
        Response::ResponseBody(body) => (false, body),
        _ => return None,
    };
    let mutation = body.response.as_ref()?.body_mutation.as_ref();
    let streamed = mutation.is_some_and(|m| matches!(m.mutation, Some(Mutation::StreamedResponse(_))));
    Some((is_request, streamed))
}

proptest! {
    #[test]
    fn any_sequence_is_answered_soundly(
        modes in prop::option::of((mode(), mode())),
        events in prop::collection::vec(event(), 0..25),
    ) {
        let mut run = Run::slow();
        let mut first = true;
        let mut placements = 0;
        let (mut sent_headers, mut sent_response_headers) = (0, 0);
        for event in events {
            match event {
                Event::Message(message) => {
                    let message = match modes {
                        Some(modes) if first => announced(modes, vec![message]).remove(0),
                        _ => message,
                    };
                    first = false;
                    match message.request {
                        Some(Request::RequestHeaders(_)) => sent_headers += 1,
                        Some(Request::ResponseHeaders(_)) => sent_response_headers += 1,
                        _ => {}
                    }
                    run.feed([message]);
                }
                // the driver answers a placement only while one is waited for
                Event::Placed(good) if run.asked.len() > placements => {
                    placements += 1;
                    let refusal = Refusal::new(RefusalKind::NoEndpoint, "none");
                    run.place(if good { Ok(destination()) } else { Err(refusal) });
                }
                Event::Drain if !run.exchange.is_placing() => run.act(Exchange::drain),
                Event::Oversized => run.act(Exchange::oversized),
                Event::End => run.act(|exchange, steps| exchange.end(End::Gateway, steps)),
                Event::PatienceOver => run.act(Exchange::patience_over),
                _ => {}
            }
        }
        run.act(|exchange, steps| exchange.end(End::Gateway, steps));
        let mut placed = run.log.iter().filter(|entry| entry.starts_with("finish")).count();
        if run.asked.len() > placements {
            run.place(Ok(destination()));
            placed = run.log.iter().filter(|entry| entry.starts_with("finish")).count();
        }

        prop_assert!(run.asked.len() <= 1, "placed once at most");
        prop_assert!(placed <= run.asked.len(), "finished once at most");
        prop_assert!(!run.exchange.placed || placed == 1, "what was placed is finished: {:?}", run.log);
        let count = |entry: &str| run.log.iter().filter(|logged| logged.starts_with(entry)).count();
        prop_assert_eq!(count("close"), 1);
        prop_assert!(count("headers") <= sent_headers.min(1));
        prop_assert_eq!(count("response headers"), count("response headers").min(sent_response_headers));
        prop_assert!(count("answer") <= 1);
        prop_assert!(count("output") <= 1 && count("served") <= 1);
        if let Some(answer) = run.log.iter().position(|entry| entry.starts_with("answer")) {
            prop_assert!(!run.log[..answer].iter().any(|entry| entry.starts_with("response")), "{:?}", run.log);
        }
        let close = run.log.iter().position(|entry| entry == "close").unwrap();
        prop_assert!(run.log[close + 1..].iter().all(|entry| entry.starts_with("finish")), "{:?}", run.log);
        if let Some(modes) = modes {
            for (is_request, streamed) in run.replies.iter().filter_map(is_streamed) {
                let mode = if is_request { modes.0 } else { modes.1 };
                prop_assert_eq!(streamed, mode == BodySendMode::FullDuplexStreamed, "{:?}", run.log);
            }
        }
    }
}
