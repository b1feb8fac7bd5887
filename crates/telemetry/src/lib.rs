//! Logs, metrics registry, admin server and shutdown, the same in every lmetric process.
