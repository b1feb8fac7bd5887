//! The built binaries behind a real Envoy, with the configurations that are shipped.

mod no_picker;
