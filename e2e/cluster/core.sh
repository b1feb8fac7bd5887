#!/bin/bash
# End to end on a real Kubernetes: core.sh BINARIES ENVOY
# Starts a cluster of its own, runs the tests of e2e/tests/on_kubernetes inside it,
# ends it. Where a cluster cannot run it says so and succeeds, but not under CI.
#   LMETRIC_KEEP=1       leave the cluster running and take it again next time
#   LMETRIC_SUITE=full   all tests, not the core of them alone: every failure, lost nodes,
#                        upgrades, a real Envoy Gateway (e2e/gateway)
#   LMETRIC_TESTS=NAME   only tests whose name holds NAME, for instance gateway::
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
start=$SECONDS
run() { "$here/cluster.sh" exec "$tests" --ignored --test-threads=12 "$@"; }
# idle:: counts the writes of a minute, nodes:: takes nodes and the API server away, upgrade:: the release,
# optional_apis:: definitions: each has the cluster to itself.
apart=(--skip idle:: --skip gateway:: --skip nodes:: --skip upgrade:: --skip optional_apis:: --skip bench::)
case ${LMETRIC_SUITE:-core}${LMETRIC_TESTS:+-part} in
  core)
    # of the failures three: a container, a refused pod, a rollout that cannot go on
    rest=$("$tests" --ignored --list | sed -n 's/^\(failures::.*\): test$/\1/p' |
      grep -v -e an_engine_that_eats_its_memory -e a_missing_priority_class -e a_new_image_that_does_not_exist)
    # shellcheck disable=SC2086 # names of tests have no blanks
    run "${apart[@]}" $(printf -- '--skip %s ' $rest)
    run idle::
    ;;
  full)
    run "${apart[@]}"
    run idle::
    run optional_apis::
    "$root/e2e/gateway/up.sh"
    run gateway::
    run nodes::
    run upgrade::
    ;;
  *-part)
    case $LMETRIC_TESTS in gateway*) "$root/e2e/gateway/up.sh" ;; esac
    run "$LMETRIC_TESTS"
    ;;
  *)
    echo "error: LMETRIC_SUITE is ${LMETRIC_SUITE:-}; it is core or full" >&2
    exit 2
    ;;
esac
echo "e2e-${LMETRIC_SUITE:-core}: $((SECONDS - start)) s"
