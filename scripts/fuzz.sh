#!/usr/bin/env bash
# Fuzzes each target for so many minutes, one after the other: scripts/fuzz.sh MINUTES [TARGET…]
# What is found on the way is kept in target/fuzz; an input that breaks a rule lands in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?MINUTES, and perhaps names of targets}
shift
export PATH="$PATH:$HOME/.cache/lmetric/tools/bin"
skip() { echo "skipped: fuzzing: $1; remedy: $2"; exit 0; }
rustup toolchain list 2>/dev/null | grep -q '^nightly' ||
  skip "no nightly compiler" "rustup toolchain install nightly --profile minimal"
command -v cargo-fuzz >/dev/null || skip "no cargo-fuzz" "cargo install cargo-fuzz --locked"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export RUSTUP_TOOLCHAIN=nightly CARGO_TARGET_DIR=$target/nightly
# no code of ours is unsafe: without a sanitizer it runs twice as fast
build=(-s none)
cd fuzz
[ $# -gt 0 ] || mapfile -t targets < <(cargo-fuzz list)
[ $# -eq 0 ] || targets=("$@")
cargo-fuzz build "${build[@]}"
broken=()
for name in "${targets[@]}"; do
  found=$target/fuzz/$name
  mkdir -p "$found" "regressions/$name"
  options=(-max_total_time=$((minutes * 60)) -timeout=10 -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1)
  [ ! -e "dictionaries/$name" ] || options+=("-dict=dictionaries/$name")
  echo "== $name, $minutes min"
  cargo-fuzz run "${build[@]}" "$name" "$found" "corpus/$name" "regressions/$name" -- "${options[@]}" || broken+=("$name")
done
[ ${#broken[@]} -eq 0 ] || { echo "broken: ${broken[*]}; inputs are in fuzz/artifacts, see fuzz/README.md" >&2; exit 1; }
