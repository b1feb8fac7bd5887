//! The endpoint picker: an Envoy ext-proc server that sends each request to the engine LMetric picks.
