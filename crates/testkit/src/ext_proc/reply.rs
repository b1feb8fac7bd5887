//! What a picker's replies say.

use bytes::Bytes;
use lmetric_proto::ext_proc::{
    HeaderMutation, ProcessingResponse, body_mutation::Mutation, processing_response::Response,
};

fn mutation(reply: &ProcessingResponse) -> Option<&HeaderMutation> {
    match reply.response.as_ref()? {
        Response::RequestHeaders(headers) => headers.response.as_ref()?.header_mutation.as_ref(),
        Response::RequestBody(body) => body.response.as_ref()?.header_mutation.as_ref(),
        Response::ImmediateResponse(answer) => answer.headers.as_ref(),
        _ => None,
    }
}

/// A header that the reply sets.
pub fn header(reply: &ProcessingResponse, name: &str) -> Option<String> {
    let headers = mutation(reply)?
        .set_headers
        .iter()
        .filter_map(|option| option.header.as_ref());
    let header = headers.into_iter().find(|header| header.key == name)?;
    String::from_utf8(header.raw_value.to_vec()).ok()
}

/// Headers that the reply removes.
pub fn removed(reply: &ProcessingResponse) -> Vec<&str> {
    mutation(reply).map_or_else(Vec::new, |mutation| {
        mutation.remove_headers.iter().map(String::as_str).collect()
    })
}

/// A piece of a body on its way back, and whether it is the last; `None` where it is something else.
pub fn piece(reply: &ProcessingResponse) -> Option<(Bytes, bool)> {
    let (Response::RequestBody(body) | Response::ResponseBody(body)) = reply.response.as_ref()? else {
        return None;
    };
    let mutation = body.response.as_ref()?.body_mutation.as_ref()?;
    match mutation.mutation.as_ref()? {
        Mutation::StreamedResponse(piece) => Some((piece.body.clone(), piece.end_of_stream)),
        _ => None,
    }
}

/// Status of an answer of the picker's own.
pub fn status(reply: &ProcessingResponse) -> Option<i32> {
    match reply.response.as_ref()? {
        Response::ImmediateResponse(answer) => Some(answer.status?.code),
        _ => None,
    }
}
