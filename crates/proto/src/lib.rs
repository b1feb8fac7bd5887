//! Envoy's ext-proc protocol, trimmed to what a picker speaks; bodies are `Bytes`.
