#!/bin/sh
# The same work, the same machine, the same minute: lmetric's figures and those of NVIDIA Dynamo's crate, run after run in turn.
#
#   scripts/bench-peers.sh [OUT]
#
# OUT [default: target/bench/peers.json] gets every run of both and their medians; a table goes to the terminal. What one core does is pinned
# to the first core (CORE names another); rates of two cores have CORES [default: 0,1]. Memory is counted, not timed, and measured once.
#
# Dynamo's programs are built if need be, with a target folder of their own (DYNAMO_TARGET [default: target/dynamo]). BENCH names the
# folder of lmetric-bench and lmetric-bench-memory [default: target/release], RUNS how often [default: 5]. Paths are seen from the root of the repository.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
out=${1:-target/bench/peers.json}
ours=${BENCH:-target/release}
target=${DYNAMO_TARGET:-$here/target/dynamo}
runs=${RUNS:-5}
core=${CORE:-0}
cores=${CORES:-0,1}
case $runs in '' | *[!0-9]* | 0) echo "bench-peers: RUNS=$runs is no number of runs; set it to 1 or more" >&2; exit 2 ;; esac
for program in lmetric-bench lmetric-bench-memory; do
    [ -x "$ours/$program" ] || { echo "bench-peers: $ours/$program is not there; build it (cargo build --release -p lmetric-bench) or set BENCH" >&2; exit 2; }
done
for tool in taskset python3 cargo; do
    command -v $tool >/dev/null || { echo "bench-peers: $tool is not there; install it" >&2; exit 2; }
done
taskset -c "$cores" true || { echo "bench-peers: no cores $cores here; set CORE and CORES" >&2; exit 2; }
case $target in /*) ;; */*) target=$PWD/$target ;; esac

echo "bench-peers: Dynamo's programs" >&2
(cd "$here/bench/dynamo" && CARGO_TARGET_DIR=$target cargo build --locked --release --bins)
theirs=$target/release
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# run SIDE ROUND PART CORES COMMAND…: leaves figures in a file of their own and shows nothing unless it fails
run() {
    side=$1 round=$2 part=$3 pinned=$4
    shift 4
    echo "bench-peers: run $round of $runs, $side $part" >&2
    taskset -c "$pinned" "$@" --out "$folder/$side.$round.$part.json" 2>"$folder/$side.$round.$part.log" ||
        { cat "$folder/$side.$round.$part.log" >&2; echo "bench-peers: $side's $part failed" >&2; exit 1; }
}

for round in $(seq "$runs"); do
    run lmetric "$round" pick-8k "$core" "$ours/lmetric-bench" --runs 1 --only pick/8k/64
    run dynamo "$round" pick-8k "$core" "$theirs/decision" --runs 1 --only pick/8k/64
    run lmetric "$round" pick-32k "$core" "$ours/lmetric-bench" --runs 1 --only pick/32k/64
    run dynamo "$round" pick-32k "$core" "$theirs/decision" --runs 1 --only pick/32k/64
    run lmetric "$round" ingest "$core" "$ours/lmetric-bench" --runs 1 --only ingest/
    run dynamo "$round" ingest "$core" "$theirs/ingest" --runs 1 --only ingest/
    run lmetric "$round" rate "$cores" "$ours/lmetric-bench" --runs 1 --only picks_per_s/2cores
    run dynamo "$round" rate "$cores" "$theirs/decision" --runs 1 --only picks_per_s/2cores
    run dynamo "$round" crowd "$cores" "$theirs/decision" --runs 1 --only crowded/
done
run lmetric 1 memory "$core" "$ours/lmetric-bench-memory"
run dynamo 1 memory "$core" "$theirs/memory"

python3 "$here/scripts/bench-peers.py" "$folder" "$out"
