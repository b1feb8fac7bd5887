#!/bin/bash
# Builds what the images hold, in cargo's dev profile: binaries.sh
# The drain tool is copied into engine images of anybody's, so it is static.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
# All targets: what the tests link is compiled with the same features, once.
cargo build --workspace --all-targets --locked
variable=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUSTFLAGS
env "$variable=-C target-feature=+crt-static" cargo build --locked --bin lmetric-drain --target "$host"
install -D "$target/$host/debug/lmetric-drain" "$target/debug/static/lmetric-drain"
