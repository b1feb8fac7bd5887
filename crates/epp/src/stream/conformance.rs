//! What the Inference Extension's conformance suite asks of a picker, beside the exchange and only behind a flag: a client
//! could choose its engine by it.
//!
//! The request's header [`SELECTION`] names the endpoints to choose from, as a gateway's subset hint would. The engine of
//! the suite, an echo server, is told by the header [`ECHO`] what was chosen, and the response's header [`SERVED`] says
//! who served it, as the gateway's metadata have it.

use std::net::SocketAddr;

use lmetric_proto::{
    core::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
    ext_proc::{
        CommonResponse, ProcessingRequest, ProcessingResponse, processing_request::Request,
        processing_response::Response,
    },
};
use prost_types::{Struct, Value, value::Kind};

use super::{
    context::{SUBSET_KEY, SUBSET_NAMESPACE, served_by},
    replies::DESTINATION,
};
use crate::request::text;

/// Request header: addresses, with or without port, separated by commas.
const SELECTION: &str = "test-epp-endpoint-selection";
/// Request header that makes the echo server set a response header.
const ECHO: &str = "x-echo-set-header";
/// Response header that names an endpoint.
const SERVED: &str = "x-conformance-test-served-endpoint";

/// One exchange under test.
#[derive(Debug, Default)]
pub(super) struct Conformance {
    served: Option<SocketAddr>,
}

impl Conformance {
    /// Reads a message before the exchange does.
    pub(super) fn message(&mut self, message: &mut ProcessingRequest) {
        self.served = served_by(message).or(self.served);
        let Some(Request::RequestHeaders(headers)) = &message.request else {
            return;
        };
        let headers = headers.headers.iter().flat_map(|map| &map.headers);
        let selection = headers
            .filter(|header| header.key.eq_ignore_ascii_case(SELECTION))
            .map(|header| text(header).into_owned())
            .next();
        if let Some(selection) = selection {
            let allowed = Value {
                kind: Some(Kind::StringValue(selection)),
            };
            let hint = Struct {
                fields: [(SUBSET_KEY.to_owned(), allowed)].into(),
            };
            let context = message.metadata_context.get_or_insert_default();
            context.filter_metadata.insert(SUBSET_NAMESPACE.to_owned(), hint);
        }
    }

    /// Completes a reply of the exchange.
    pub(super) fn reply(&self, reply: &mut ProcessingResponse) {
        match &mut reply.response {
            Some(Response::RequestHeaders(headers)) => tell_chosen(headers.response.as_mut()),
            Some(Response::RequestBody(body)) => tell_chosen(body.response.as_mut()),
            Some(Response::ResponseHeaders(headers)) => {
                if let Some(served) = self.served {
                    let common = headers.response.get_or_insert_default();
                    let mutation = common.header_mutation.get_or_insert_default();
                    mutation.set_headers.push(header(SERVED, served.to_string()));
                }
            }
            _ => {}
        }
    }
}

/// In the reply that names the destination.
fn tell_chosen(common: Option<&mut CommonResponse>) {
    let Some(mutation) = common.and_then(|common| common.header_mutation.as_mut()) else {
        return;
    };
    let chosen = mutation
        .set_headers
        .iter()
        .filter_map(|option| option.header.as_ref())
        .find(|header| header.key == DESTINATION)
        .map(|header| text(header).into_owned());
    if let Some(chosen) = chosen {
        mutation
            .set_headers
            .push(header(ECHO, format!("{SERVED}:{chosen}")));
    }
}

fn header(key: &str, value: String) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: String::new(),
            raw_value: value.into(),
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
    }
}

#[cfg(test)]
mod tests {
    use lmetric_proto::{
        core::{HeaderMap, Metadata},
        ext_proc::HttpHeaders,
    };
    use lmetric_scheduler::Subset;

    use super::*;
    use crate::stream::{
        context::subset_hint,
        replies::{self, Destination},
    };

    fn request(headers: &[(&str, &str)]) -> ProcessingRequest {
        let headers = headers.iter().map(|(key, value)| HeaderValue {
            key: (*key).to_owned(),
            raw_value: (*value).to_owned().into(),
            ..HeaderValue::default()
        });
        ProcessingRequest {
            request: Some(Request::RequestHeaders(HttpHeaders {
                headers: Some(HeaderMap {
                    headers: headers.collect(),
                }),
                ..HttpHeaders::default()
            })),
            ..ProcessingRequest::default()
        }
    }

    fn set(common: &CommonResponse) -> Vec<(String, String)> {
        let set = common
            .header_mutation
            .iter()
            .flat_map(|mutation| &mutation.set_headers);
        set.filter_map(|option| option.header.as_ref())
            .map(|header| (header.key.clone(), text(header).into_owned()))
            .collect()
    }

    #[test]
    fn the_header_chooses_and_without_it_everybody_is_a_candidate() {
        let mut chosen = request(&[("Test-EPP-Endpoint-Selection", "10.0.0.1, 10.0.0.2:8000")]);
        Conformance::default().message(&mut chosen);
        let expected = Subset(vec![
            ("10.0.0.1".parse().unwrap(), None),
            ("10.0.0.2".parse().unwrap(), Some(8000)),
        ]);
        assert_eq!(subset_hint(&chosen), Some(expected));
        let mut free = request(&[(":path", "/")]);
        Conformance::default().message(&mut free);
        assert_eq!(subset_hint(&free), None);
    }

    #[test]
    fn the_engine_is_told_what_was_chosen_wherever_the_destination_stands() {
        let destination = Destination {
            address: "10.0.0.1:8000".parse().unwrap(),
            rank: None,
        };
        let told = (
            "x-echo-set-header".to_owned(),
            "x-conformance-test-served-endpoint:10.0.0.1:8000".to_owned(),
        );
        let mut in_headers = replies::request_headers(Some(&destination));
        let mut in_body = replies::pass(replies::Side::Request, Some(&destination));
        for reply in [&mut in_headers, &mut in_body] {
            Conformance::default().reply(reply);
            let common = match &reply.response {
                Some(Response::RequestHeaders(headers)) => headers.response.as_ref(),
                Some(Response::RequestBody(body)) => body.response.as_ref(),
                other => panic!("{other:?}"),
            };
            assert!(set(common.unwrap()).contains(&told));
        }
        let mut without = replies::request_headers_without_destination();
        let before = without.clone();
        Conformance::default().reply(&mut without);
        assert_eq!(without, before);
    }

    #[test]
    fn the_response_says_who_served_it() {
        let value = Value {
            kind: Some(Kind::StringValue("10.0.0.9:8000".to_owned())),
        };
        let served = Struct {
            fields: [("x-gateway-destination-endpoint-served".to_owned(), value)].into(),
        };
        let mut message = ProcessingRequest {
            request: Some(Request::ResponseHeaders(HttpHeaders::default())),
            metadata_context: Some(Metadata {
                filter_metadata: [("envoy.lb".to_owned(), served)].into(),
            }),
            ..ProcessingRequest::default()
        };
        let mut exchange = Conformance::default();
        exchange.message(&mut message);
        let mut reply = replies::response_headers();
        exchange.reply(&mut reply);
        let Some(Response::ResponseHeaders(headers)) = &reply.response else {
            panic!("{reply:?}");
        };
        assert_eq!(
            set(headers.response.as_ref().unwrap()),
            [(
                "x-conformance-test-served-endpoint".to_owned(),
                "10.0.0.9:8000".to_owned()
            )]
        );
    }
}
