#!/bin/sh
# The paper's comparisons, simulated: every system that it names on 16 H20 engines, in virtual time.
#
#   scripts/paper.sh OUT [TRACES]
#
# OUT gets one study for each comparison (JSON and CSV), report.html over all of them and ratios.json. A study that is there is kept:
# after an interruption the script goes on where it was. TRACES holds mooncake-conversation.jsonl and
# mooncake-synthetic.jsonl (data/README.md says where from); without them the ten minutes of the former in data/ stand in
# for both, and the report says so by the trace's name. The synthetic workloads are generated.
#
# LMETRIC names the program, WORKLOADS (like conversation-qwen2-7b) the fleets of the first and the last part, FULL=1 asks for three seeds, more rates and finer sweeps.
set -eu

out=${1:?usage: scripts/paper.sh OUT [TRACES]}
traces=${2:-}
lmetric=${LMETRIC:-target/release/lmetric}
here=$(cd "$(dirname "$0")" && pwd)
case $lmetric in /*) ;; */*) lmetric=$PWD/$lmetric ;; esac
engines=16
command -v "$lmetric" >/dev/null || { echo "paper: $lmetric is not there; build it or set LMETRIC" >&2; exit 2; }
mkdir -p "$out/traces"

trace() {
    if [ -n "$traces" ] && [ -f "$traces/$1.jsonl" ]; then echo "$traces/$1.jsonl"; else echo "$here/../data/mooncake-conversation-10min.jsonl"; fi
}
conversation=$(trace mooncake-conversation)
synthetic=$(trace mooncake-synthetic)
for kind in toolagent hotspot thinking; do
    [ -f "$out/traces/$kind.jsonl" ] || python3 "$here/../data/generate.py" $kind "$conversation" "$out/traces/$kind.jsonl"
done
[ -f "$out/traces/agentic.jsonl" ] || python3 "$here/../data/generate.py" agentic "$out/traces/agentic.jsonl"

file() {
    case $1 in
        conversation) echo "$conversation" ;;
        synthetic) echo "$synthetic" ;;
        *) echo "$out/traces/$1.jsonl" ;;
    esac
}

# study NAME TRACE MODEL FLAGS…
study() {
    study=$1 studied=$2 engine=$3
    shift 3
    [ -f "$out/$study.json" ] && return
    jitter=0s
    case $studied in agentic) ;; *) jitter=3s ;; esac
    echo "paper: $study" >&2
    "$lmetric" simulate --trace "$(file "$studied")" --model "$engine" --engines $engines --gpu H20 --jitter $jitter \
        --max-model-len 60000 --out "$out/$study.json" --csv "$out/$study.csv" "$@"
}

# The largest rate of each workload that some policy keeps up with, as a rate scale: measured before and kept in
# data/capacities.txt, or measured now and kept in OUT.
capacity() {
    fleet=$1
    known=$(awk -v fleet="$fleet" '$1 == fleet { print $2 }' "$here/../data/capacities.txt")
    if [ -n "$known" ] && [ -n "$traces" ] && [ "${FULL:-}" != 1 ]; then
        echo "$known"
        return
    fi
    if [ ! -s "$out/$fleet.capacity" ]; then
        study "$fleet-capacity" "$2" "$3" --policies "$capacity_policies" --fraction 0.5 --hotspot off
        sed -n 's/.*"capacity":{"rate_scale":\([0-9.]*\).*/\1/p' "$out/$fleet-capacity.json" >"$out/$fleet.capacity"
    fi
    cat "$out/$fleet.capacity"
}

policies='lmetric,lmetric-marginal,vllm,bailian,dynamo,llm-d,llm-d-ttft,aibrix,preble,polyserve'
few='lmetric,lmetric-marginal,vllm,dynamo,llm-d-ttft'
capacity_policies='lmetric-marginal'
rates=0.25,0.75
seeds=1
detector_seeds=1,2
step=0.1
if [ "${FULL:-}" = 1 ]; then
    policies=all
    few=$policies
    capacity_policies='lmetric,lmetric-marginal,llm-d-ttft,dynamo,llm-d'
    rates=0.125,0.25,0.375,0.625,0.75,0.875,1
    seeds=1,2,3
    detector_seeds=1,2,3,4,5
    step=0.05
fi

workloads=${WORKLOADS-'conversation-qwen3-30b-a3b toolagent-qwen3-30b-a3b agentic-qwen3-30b-a3b synthetic-qwen3-30b-a3b hotspot-qwen3-30b-a3b
    conversation-qwen2-7b toolagent-qwen2-7b'}
[ "${FULL:-}" = 1 ] && workloads="$workloads agentic-qwen2-7b synthetic-qwen2-7b hotspot-qwen2-7b"

# Every policy at half of capacity; figures 22 and 26.
for fleet in $workloads; do
    workload=${fleet%%-*} model=${fleet#*-}
    scale=$(capacity "$fleet" "$workload" "$model")
    study "$fleet" "$workload" "$model" --policies "$policies" --fraction 0.5 --capacity "$scale" --seeds $seeds
done

# What the paper tunes its baselines by: figures 11 and 12.
for workload in conversation toolagent; do
    scale=$(capacity "$workload-qwen3-30b-a3b" "$workload" qwen3-30b-a3b)
    study "$workload-sweep" "$workload" qwen3-30b-a3b --policies lmetric --fraction 0.5 --capacity "$scale" --seeds $seeds \
        --sweep "bailian.lambda=0:1:$step" --sweep aibrix.range=4,16,32
done

scale=$(capacity toolagent-qwen3-30b-a3b toolagent qwen3-30b-a3b)
# Figures 18 and 19, and the queue that most ports leave out.
study toolagent-ablations toolagent qwen3-30b-a3b --fraction 0.5 --capacity "$scale" --seeds $seeds \
    --policies 'lmetric,lmetric(work=miss-ratio),lmetric(crowd=tokens),lmetric(crowd=decode),lmetric(queue=false),lmetric-marginal,lmetric-marginal(alpha=1),lmetric-marginal(capacity=true)'
# Figures 15 and 16: an oracle, a tuned simulator, an untuned one.
study toolagent-simulators toolagent qwen3-30b-a3b --fraction 0.5 --capacity "$scale" --seeds $seeds \
    --policies 'lmetric,llm-d-ttft,llm-d-ttft(error=0.08),llm-d-ttft(error=0.122),llm-d-ttft(model=qwen2-7b)'
# Figures 26 and 34: Preble and PolyServe with what they are tuned by.
study toolagent-preble toolagent qwen3-30b-a3b --policies lmetric --fraction 0.5 --capacity "$scale" --seeds $seeds \
    --sweep preble.threshold=0.1,0.9 --sweep polyserve.tpot=0.01,0.04,0.08

# §5.2 and figure 21: the detector on and off.
for action in filter off; do
    study "hotspot-detector-$action" hotspot qwen2-7b --policies lmetric --rate-scale 1 --seeds $detector_seeds --hotspot $action
    study "thinking-detector-$action" thinking qwen3-30b-a3b --policies lmetric,vllm --rate-scale 1 --seeds $detector_seeds --hotspot $action
done

# Figure 29: a third of the fleet under lmetric, two thirds under vLLM's balancer.
scale=$(capacity conversation-qwen3-30b-a3b conversation qwen3-30b-a3b)
engines=18
study conversation-canary conversation qwen3-30b-a3b --policies vllm,lmetric --canary lmetric --rate-scale "$(awk "BEGIN { print $scale / 2 * 18 / 16 }")" --seeds $seeds
engines=16

# Figure 23: against the rate.
for fleet in $workloads; do
    workload=${fleet%%-*} model=${fleet#*-}
    scale=$(capacity "$fleet" "$workload" "$model")
    study "$fleet-rates" "$workload" "$model" --policies "$few" --fraction "$rates" --capacity "$scale" --seeds $seeds
done

cd "$out"
studies=$(ls ./*.json | grep -v -e capacity.json -e ratios.json)
# shellcheck disable=SC2086 # names of studies have no blanks
"$lmetric" report report.html $studies --json ratios.json --table >ratios.txt
echo "paper: $(echo "$studies" | wc -l) studies in $out/report.html" >&2
