//! What the endpoints file takes and refuses.

use std::path::Path;

use lmetric_api::{ConfigError, EndpointsFile};

fn parse(text: &str) -> Result<EndpointsFile, ConfigError> {
    EndpointsFile::parse(text, Path::new("endpoints.yaml"))
}

#[test]
fn nulls_and_absent_fields_are_the_same() {
    let short = parse("endpoints:\n- {address: \"127.0.1.1:8000\", model: m}\n").expect("short");
    let long = parse(
        "endpoints:\n- {address: \"127.0.1.1:8000\", model: m, events: null, replay: null, rank: null, blockSize: null, incarnation: \"\", terminating: false}\n",
    )
    .expect("long");
    assert_eq!(short, long);
}

#[test]
fn an_empty_list_is_a_pool_scaled_to_zero() {
    for text in ["endpoints: []", "endpoints:"] {
        assert_eq!(parse(text).expect(text).endpoints.len(), 0);
    }
}

#[test]
fn ranks_of_one_address_are_endpoints_of_their_own() {
    let file = parse(
        "endpoints:\n- {address: \"[::1]:8000\", model: m, rank: 0}\n- {address: \"[::1]:8000\", model: m, rank: 1}\n",
    )
    .expect("two ranks");
    assert_eq!(file.endpoints.len(), 2);
}

#[test]
fn a_bad_entry_is_named_with_its_remedy() {
    let at = "address: \"10.0.0.1:8000\", model: m";
    for (entry, field, remedy) in [
        ("model: m".to_owned(), "endpoints[0].address", "add it"),
        (
            "address: \"10.0.0.1:8000\"".to_owned(),
            "endpoints[0].model",
            "add it",
        ),
        (
            "address: \"10.0.0.1:8000\", model: \"\"".to_owned(),
            "endpoints[0].model",
            "write the name",
        ),
        (
            "address: pod-1, model: m".to_owned(),
            "endpoints[0].address",
            "ip:port",
        ),
        (
            "address: \"0.0.0.0:8000\", model: m".to_owned(),
            "endpoints[0].address",
            "own ip:port",
        ),
        (
            "address: \"10.0.0.1:0\", model: m".to_owned(),
            "endpoints[0].address",
            "own ip:port",
        ),
        (format!("{at}, blockSize: 0"), "endpoints[0].blockSize", "null"),
        (format!("{at}, rank: -1"), "endpoints[0].rank", "whole number"),
        (
            format!("{at}, events: \"10.0.0.1:5557\""),
            "endpoints[0].events",
            "tcp://",
        ),
        (
            format!("{at}, events: \"tcp://*:5557\""),
            "endpoints[0].events",
            "tcp://",
        ),
        (
            format!("{at}, replay: \"tcp://10.0.0.1:5657\""),
            "endpoints[0].replay",
            "events",
        ),
        (format!("{at}, event: x"), "endpoints[0].event", "events"),
        (
            format!("{at}, terminating: perhaps"),
            "endpoints[0].terminating",
            "true or false",
        ),
    ] {
        let error = parse(&format!("endpoints:\n- {{{entry}}}\n")).expect_err(&entry);
        assert_eq!(error.field, field, "{entry}: {error}");
        assert!(error.remedy.contains(remedy), "{entry}: {error}");
    }
    let twice = parse(&format!("endpoints:\n- {{{at}}}\n- {{{at}}}\n")).expect_err("twice");
    assert_eq!(twice.field, "endpoints[1].address");
}
