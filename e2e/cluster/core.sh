#!/bin/bash
# End to end on a real Kubernetes: core.sh BINARIES ENVOY
# Starts a cluster of its own, runs the tests of e2e/tests/on_kubernetes inside it,
# ends it. Where a cluster cannot run it says so and succeeds, but not under CI.
#   LMETRIC_KEEP=1       leave the cluster running and take it again next time
#   LMETRIC_TESTS=NAME   only tests whose name holds NAME; gateway:: is a suite of its own,
#                        behind a real Envoy Gateway (e2e/gateway)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
binaries=${1:?folder of binaries} envoy=${2:?Envoy}
if ! "$here/check.sh"; then
  if [ -n "${CI:-}" ]; then
    echo "error: e2e-core has to run under CI, and cannot here" >&2
    exit 1
  fi
  echo "SKIPPED: e2e-core (end to end on a real Kubernetes), for want of the above" >&2
  exit 0
fi

"$here/binaries.sh"
tests=$(cd "$root" && cargo test --workspace --locked --test on_kubernetes --no-run --message-format=json-render-diagnostics |
  sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)

LMETRIC_CLUSTER=${LMETRIC_CLUSTER:-$("$here/cluster.sh" dir)-core}
export LMETRIC_CLUSTER LMETRIC_ROOT=$root
finish() {
  local code=$?
  if [ "$code" != 0 ] && [ -d "$LMETRIC_CLUSTER/log" ]; then
    rm -rf "$binaries/e2e-core-log"
    cp -r "$LMETRIC_CLUSTER/log" "$binaries/e2e-core-log"
    echo "the cluster's logs: $binaries/e2e-core-log" >&2
  fi
  if [ -z "${LMETRIC_KEEP:-}" ]; then "$here/cluster.sh" down; fi
}
trap finish EXIT
if [ -z "${LMETRIC_KEEP:-}" ]; then "$here/cluster.sh" down; fi
"$here/cluster.sh" up "$binaries" "$envoy"
case ${LMETRIC_TESTS:-} in gateway*) "$root/e2e/gateway/up.sh" ;; esac
start=$SECONDS
run() { "$here/cluster.sh" exec "$tests" --ignored --test-threads=12 "$@"; }
if [ -n "${LMETRIC_TESTS:-}" ]; then
  run "$LMETRIC_TESTS"
else
  run --skip idle:: --skip gateway::
  # an idle minute needs a cluster to itself
  run idle::
fi
echo "e2e-core: $((SECONDS - start)) s"
