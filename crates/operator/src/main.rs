//! `lmetric-operator`.

fn main() {}
