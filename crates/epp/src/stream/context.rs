//! What comes beside the messages: body modes, the subset hint, who really served the request.

use std::net::SocketAddr;

use lmetric_proto::{
    ext_proc::{ProcessingRequest, ProtocolConfiguration},
    mode::processing_mode::BodySendMode,
};
use lmetric_scheduler::Subset;
use prost_types::{Struct, Value, value::Kind};

use super::replies::LOAD_BALANCER;
use crate::request::subset;

pub(super) const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
pub(super) const SUBSET_KEY: &str = "x-gateway-destination-endpoint-subset";
const SERVED_KEY: &str = "x-gateway-destination-endpoint-served";
const UPSTREAM_ADDRESS: &str = "upstream.address";

/// How a body passes between gateway and picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyMode {
    /// The picker does not see it.
    None,
    /// Message by message, each answered.
    Streamed,
    /// In one message.
    Buffered,
    /// The beginning, in one message; without end of stream when more follows.
    BufferedPartial,
    /// Message by message, each to be sent back.
    FullDuplex,
}

impl BodyMode {
    fn of(mode: BodySendMode) -> Self {
        match mode {
            BodySendMode::None => Self::None,
            BodySendMode::Streamed | BodySendMode::Grpc => Self::Streamed,
            BodySendMode::Buffered => Self::Buffered,
            BodySendMode::BufferedPartial => Self::BufferedPartial,
            BodySendMode::FullDuplexStreamed => Self::FullDuplex,
        }
    }
}

/// Modes of the request and the response body, as the gateway announces them.
pub(super) fn modes(config: &ProtocolConfiguration) -> (BodyMode, BodyMode) {
    (
        BodyMode::of(config.request_body_mode()),
        BodyMode::of(config.response_body_mode()),
    )
}

/// The subset hint, if this message has one.
pub(super) fn subset_hint(message: &ProcessingRequest) -> Option<Subset> {
    let metadata = &message.metadata_context.as_ref()?.filter_metadata;
    let hint = metadata.get(SUBSET_NAMESPACE)?.fields.get(SUBSET_KEY)?;
    Some(subset::read(hint))
}

/// Who served the request, if this message says so: the "served" metadata or Envoy's own attribute.
pub(super) fn served_by(message: &ProcessingRequest) -> Option<SocketAddr> {
    let metadata = message.metadata_context.as_ref();
    let served = metadata
        .and_then(|context| context.filter_metadata.get(LOAD_BALANCER))
        .and_then(|balancer| address(balancer, SERVED_KEY));
    let upstream = || {
        let mut attributes = message.attributes.values();
        attributes.find_map(|values| address(values, UPSTREAM_ADDRESS))
    };
    served.or_else(upstream)
}

fn address(values: &Struct, key: &str) -> Option<SocketAddr> {
    match values.fields.get(key)? {
        Value {
            kind: Some(Kind::StringValue(text)),
        } => text.trim().parse().ok(),
        _ => None,
    }
}
