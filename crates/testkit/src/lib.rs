//! Launches Envoy, engines and pickers for tests, waits for them, and breaks them. A dev-dependency only.
