#!/bin/bash
# Faults of every kind under load: chaos.sh SEED MINUTES BINARIES ENVOY
# Starts a cluster of its own, runs lmetric-chaos inside it, ends it. Where a
# cluster cannot run it says so and succeeds, but not under CI. The timeline is
# BINARIES/../chaos/seed-SEED.json, logs of a run with violations lie beside it.
#   LMETRIC_KEEP=1            leave the cluster running
#   LMETRIC_BUILT=1           the programs are built already
#   LMETRIC_CHAOS_ONLY=TEXT   only faults whose kind holds TEXT, such as "crash node"
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seed=${1:?seed} minutes=${2:?minutes} binaries=${3:?folder of binaries} envoy=${4:?Envoy}
if ! "$here/check.sh"; then
  if [ -n "${CI:-}" ]; then
    echo "error: chaos has to run under CI, and cannot here" >&2
    exit 1
  fi
  echo "SKIPPED: chaos (faults on a real Kubernetes), for want of the above" >&2
  exit 0
fi

if [ -z "${LMETRIC_BUILT:-}" ]; then "$here/binaries.sh"; fi
binaries=$(realpath "$binaries")
out=$(dirname "$binaries")/chaos
mkdir -p "$out"

LMETRIC_CLUSTER=${LMETRIC_CLUSTER:-$("$here/cluster.sh" dir)-chaos}
export LMETRIC_CLUSTER LMETRIC_ROOT=$root
finish() {
  local code=$?
  if [ "$code" != 0 ] && [ -d "$LMETRIC_CLUSTER/log" ]; then
    rm -rf "$out/seed-$seed-log"
    mkdir -p "$out/seed-$seed-log"
    cp -r "$LMETRIC_CLUSTER/log" "$out/seed-$seed-log/cluster"
    for node in "$LMETRIC_CLUSTER"/node*/; do
      cp -rL "$node/log/pods" "$out/seed-$seed-log/$(basename "$node")-pods" 2>/dev/null || true
    done
    echo "the cluster's logs: $out/seed-$seed-log" >&2
  fi
  if [ -z "${LMETRIC_KEEP:-}" ]; then "$here/cluster.sh" down; fi
}
trap finish EXIT
"$here/cluster.sh" down
"$here/cluster.sh" up "$binaries" "$envoy"
"$here/cluster.sh" exec "$binaries/lmetric-chaos" --seed "$seed" --minutes "$minutes" --out "$out/seed-$seed.json"
