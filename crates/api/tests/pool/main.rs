//! InferencePool as people and the API server meet it.

mod definition;
mod fields;
mod objects;
mod support;
mod validate;
