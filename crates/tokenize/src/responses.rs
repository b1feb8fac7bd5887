//! `/v1/responses`.

use serde_json::{Map, Value};

use crate::{ChatError, ChatRequest};

pub(crate) fn request(_body: &mut Map<String, Value>) -> Result<ChatRequest, ChatError> {
    Err(ChatError::Missing("messages"))
}
