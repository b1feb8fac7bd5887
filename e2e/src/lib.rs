//! End-to-end tests: the built binaries behind a real Envoy. The tests are in `tests/`.
