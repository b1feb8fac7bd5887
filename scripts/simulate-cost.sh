#!/bin/sh
# What a simulation costs: time and memory of `lmetric simulate` against engines and requests, as a table.
#
#   scripts/simulate-cost.sh [TRACE] [SECONDS]
#
# TRACE in Mooncake's layout [default: the ten minutes in data/], its first SECONDS [default: all]. The rate grows with the engines, so that each has the same
# work: one run of `lmetric` on one core at half of what 16 engines keep up with. LMETRIC names the program, FLEETS the numbers of engines.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
trace=${1:-$here/../data/mooncake-conversation-10min.jsonl}
seconds=${2:-}
lmetric=${LMETRIC:-target/release/lmetric}
[ -f "$trace" ] || { echo "simulate-cost: $trace is not there; name a trace" >&2; exit 2; }
[ -x "$lmetric" ] || { echo "simulate-cost: $lmetric is not there; build it or set LMETRIC" >&2; exit 2; }
[ -x /usr/bin/time ] || { echo "simulate-cost: /usr/bin/time is not there; install the package time" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# as many copies of the trace as fleets of 16: shifted blocks, so that no copy hits another
copies() {
    python3 - "$trace" "$1" "$folder/trace.jsonl" <<'PYTHON'
import json
import sys

trace, count, out = sys.argv[1], float(sys.argv[2]), sys.argv[3]
with open(trace, encoding="utf-8") as lines:
    rows = [json.loads(line) for line in lines if line.strip()]
with open(out, "w", encoding="utf-8") as file:
    for row in rows:
        whole = int(count)
        for copy in range(whole + (row["hash_ids"][-1] % 1000 < (count - whole) * 1000)):
            ids = [block + copy * 100_000_000 for block in row["hash_ids"]]
            moved = row["timestamp"] + copy * 37 % 3000
            file.write(json.dumps(dict(row, timestamp=moved, hash_ids=ids)) + "\n")
PYTHON
}

echo '| engines | requests | policy | real time | CPU time | memory |'
echo '|---|---|---|---|---|---|'
for engines in ${FLEETS:-4 16 64 256}; do
    copies "$(awk "BEGIN { print $engines / 16 }")"
    for policy in lmetric llm-d-ttft; do
        /usr/bin/time -f '%e %U %M' -o "$folder/cost" "$lmetric" simulate --trace "$folder/trace.jsonl" ${seconds:+--window 0:$seconds} --jitter 3s --engines "$engines" \
            --policies $policy --rate-scale 1.6 --max-model-len 60000 --threads 1 --out "$folder/study.json" --csv "$folder/study.csv" 2>/dev/null
        requests=$(cut -d, -f6 "$folder/study.csv" | tail -1)
        awk -v engines="$engines" -v requests="$requests" -v policy=$policy \
            '{ printf "| %d | %d | `%s` | %.1f s | %.1f s | %.0f MiB |\n", engines, requests, policy, $1, $2, $3 / 1024 }' "$folder/cost"
    done
done
