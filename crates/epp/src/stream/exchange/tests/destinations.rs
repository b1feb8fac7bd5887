//! Where a request goes: what is written, and what is read of hints and of who served.

use super::*;
use BodySendMode::{Buffered, FullDuplexStreamed as Duplex, None as Unsent, Streamed};

#[rstest]
#[case::one_rank(None, vec![(DESTINATION, "10.0.0.7:8000")], vec![RANK])]
#[case::several_ranks(Some(3), vec![(DESTINATION, "10.0.0.7:8000"), (RANK, "3")], vec![])]
fn destination_and_rank_overwrite_the_clients_own(
    #[case] rank: Option<u16>,
    #[case] set: Vec<(&str, &str)>,
    #[case] removed: Vec<&str>,
    #[values(Buffered, Duplex, Streamed, Unsent)] mode: BodySendMode,
) {
    let mut run = Run::placing(Ok(Destination {
        rank,
        ..destination()
    }));
    run.feed(announced((mode, Unsent), vec![headers(false), body(b"{}", true)]));
    let carrying: Vec<_> = run
        .replies
        .iter()
        .filter_map(|reply| {
            let common = match reply.response.clone().unwrap() {
                Response::RequestHeaders(headers) => headers.response,
                Response::RequestBody(body) => body.response,
                _ => None,
            };
            let mutation = common?.header_mutation?;
            (!mutation.set_headers.is_empty()).then(|| (mutation, reply.dynamic_metadata.clone()))
        })
        .collect();
    let [(mutation, metadata)] = &carrying[..] else {
        panic!("one reply carries the destination: {carrying:?}")
    };
    let headers: Vec<_> = mutation
        .set_headers
        .iter()
        .map(|option| {
            let header = option.header.as_ref().unwrap();
            assert_eq!(option.append_action, 2, "OVERWRITE_IF_EXISTS_OR_ADD");
            assert_eq!(header.value, "");
            (
                header.key.as_str(),
                std::str::from_utf8(&header.raw_value).unwrap(),
            )
        })
        .collect();
    assert_eq!(headers, set);
    assert_eq!(mutation.remove_headers, removed);
    let Some(Kind::StructValue(balancer)) = &metadata.as_ref().unwrap().fields[LOAD_BALANCER].kind else {
        panic!("a struct")
    };
    assert_eq!(
        balancer.fields[DESTINATION].kind,
        Some(Kind::StringValue("10.0.0.7:8000".to_owned()))
    );
}

#[test]
fn a_clients_destination_is_taken_away_while_ours_is_not_known() {
    let mut run = Run::slow();
    run.feed(announced((Buffered, Unsent), vec![headers(false)]));
    let Some(Response::RequestHeaders(reply)) = &run.replies[0].response else {
        panic!("headers reply")
    };
    let mutation = reply.response.as_ref().unwrap().header_mutation.as_ref().unwrap();
    assert_eq!(mutation.remove_headers, [DESTINATION]);
}

fn with_metadata(
    mut message: ProcessingRequest,
    namespace: &str,
    key: &str,
    text: &str,
) -> ProcessingRequest {
    let value = Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let fields = Struct {
        fields: [(key.to_owned(), value)].into(),
    };
    message.metadata_context = Some(Metadata {
        filter_metadata: [(namespace.to_owned(), fields)].into(),
    });
    message
}

#[rstest]
#[case::with_the_headers(0)]
#[case::with_the_body(1)]
fn the_subset_hint_may_come_with_any_message(
    #[case] at: usize,
    #[values(Buffered, Duplex)] mode: BodySendMode,
) {
    let mut messages = vec![headers(false), body(b"{}", true)];
    messages[at] = with_metadata(
        messages[at].clone(),
        "envoy.lb.subset_hint",
        "x-gateway-destination-endpoint-subset",
        "10.0.0.1:80,[::1]",
    );
    let mut run = Run::new();
    run.feed(announced((mode, Unsent), messages));
    let subset = run.asked[0].subset.clone().unwrap();
    assert_eq!(
        subset.0,
        [
            ("10.0.0.1".parse().unwrap(), Some(80)),
            ("::1".parse().unwrap(), None)
        ]
    );
}

#[test]
fn an_empty_metadata_context_is_no_hint() {
    let mut first = headers(true);
    first.metadata_context = Some(Metadata::default());
    let mut run = Run::new();
    run.feed(announced((Duplex, Duplex), vec![first]));
    assert_eq!(run.asked[0].subset, None);
}

#[test]
fn who_served_is_told_by_metadata_or_attribute_once() {
    let served = with_metadata(
        response_headers("200", false),
        LOAD_BALANCER,
        "x-gateway-destination-endpoint-served",
        "10.0.0.9:8000",
    );
    let mut upstream = response_headers("200", false);
    let value = Value {
        kind: Some(Kind::StringValue("10.0.0.9:8000".to_owned())),
    };
    let fields = Struct {
        fields: [("upstream.address".to_owned(), value)].into(),
    };
    upstream.attributes = [("envoy.filters.http.ext_proc".to_owned(), fields)].into();
    for first in [served, upstream] {
        let mut run = Run::new();
        let mut again = response_body(": c", false);
        again.attributes.clone_from(&first.attributes);
        again.metadata_context.clone_from(&first.metadata_context);
        run.feed(announced((Duplex, Duplex), vec![headers(true), first, again]));
        assert_eq!(
            run.log[1..],
            [
                "served 10.0.0.9:8000",
                "response headers",
                "status 200",
                "response back 3"
            ]
        );
    }
}
