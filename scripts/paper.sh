#!/bin/sh
# The paper's comparisons, simulated: every system that it names on 16 H20 engines, in virtual time.
#
#   scripts/paper.sh OUT [TRACES]
#
# OUT gets one study for each comparison (JSON and CSV), report.html over all of them, ratios.json and ratios.txt. A study that is there is
# kept: after an interruption the script goes on where it was. TRACES holds mooncake-conversation.jsonl and
# mooncake-synthetic.jsonl (data/README.md says where from); without them the ten minutes of the former in data/ stand in
# for both, and the report says so by the trace's name. A hotspot.jsonl there is taken instead of the generated one; the other synthetic
# workloads are generated.
#
# LMETRIC names the program, WORKLOADS (like conversation-qwen2-7b) the fleets, PARTS what is run on them. FULL=1 asks for every policy on
# every fleet at three rates (two seeds at half of capacity), for a few of them at eight, for finer sweeps, and measures capacity anew.
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

# simulate NAME TRACE MODEL FLAGS…: a study that is there is kept
simulate() {
    study=$1 studied=$2 engine=$3
    shift 3
    [ -f "$out/$study.json" ] && return
    jitter=3s
    [ "${studied##*/}" = agentic.jsonl ] && jitter=0s
    echo "paper: $study" >&2
    "$lmetric" simulate --trace "$studied" --model "$engine" --engines $engines --gpu H20 --jitter $jitter \
        --out "$out/$study.part" --csv "$out/$study.csv" "$@"
    mv "$out/$study.part" "$out/$study.json"
}

# As the paper's engines are started.
study() {
    name=$1 workload=$2 model=$3
    shift 3
    simulate "$name" "$(file "$workload")" "$model" --max-model-len 60000 "$@"
}

# The largest rate of each workload that some policy keeps up with, as a rate scale: measured before and kept in
# data/capacities.txt, else measured by the first study of the fleet.
known() {
    [ -n "$traces" ] && [ "${FULL:-}" != 1 ] && awk -v fleet="$1" '$1 == fleet { print $2 }' "$here/../data/capacities.txt"
    return 0
}
measured() { sed -n 's/.*"capacity":{"rate_scale":\([0-9.]*\).*/\1/p' "$out/$1.json"; }

# by promise: each policy is asked only whether it keeps up with more than those before it
all='lmetric-marginal,llm-d-ttft,lmetric,dynamo,llm-d,aibrix,bailian,vllm,polyserve,preble,least-request,power-of-two,prefix-affinity,session-affinity,round-robin,random'
paper='lmetric,lmetric-marginal,vllm,bailian,dynamo,llm-d,llm-d-ttft,aibrix,preble,polyserve'
at_rates='lmetric,vllm,llm-d-ttft'
rates=0.25,0.75
seeds=1
detector_seeds=1,2
thinking_seeds=1
wide='--sweep bailian.lambda=0:1:0.1 --sweep aibrix.range=4,16 --sweep preble.threshold=0.1,0.9 --sweep polyserve.tpot=0.01,0.08 --sweep dynamo.overlapCredit=2 --sweep llm-d.prefix=6'
narrow='--sweep bailian.lambda=0.4,0.9 --sweep preble.threshold=0.1 --sweep polyserve.tpot=0.08'
if [ "${FULL:-}" = 1 ]; then
    paper=$all
    at_rates=$all
    seeds=1,2
    detector_seeds=1,2,3,4,5
    thinking_seeds=1,2,3,4,5
    wide='--sweep bailian.lambda=0:1:0.05 --sweep aibrix.range=2,4,8,16,32 --sweep preble.threshold=0.1,0.3,0.5,0.7,0.9 --sweep polyserve.tpot=0.01,0.02,0.04,0.08
        --sweep dynamo.overlapCredit=0.5,1,2,4 --sweep llm-d.prefix=1,2,3,6,12 --sweep prefix-affinity.loadFactor=1.1,1.25,1.5,2'
    narrow='--sweep bailian.lambda=0.2:1:0.2 --sweep aibrix.range=4,16 --sweep preble.threshold=0.1,0.9 --sweep polyserve.tpot=0.01,0.08 --sweep dynamo.overlapCredit=2 --sweep llm-d.prefix=6'
fi
parts=${PARTS-'policies ablations simulators detector canary rates sweeps curves marginal'}
wants() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac }

workloads=${WORKLOADS-'conversation-qwen3-30b-a3b toolagent-qwen3-30b-a3b agentic-qwen3-30b-a3b synthetic-qwen3-30b-a3b hotspot-qwen3-30b-a3b
    conversation-qwen2-7b toolagent-qwen2-7b'}
[ "${FULL:-}" = 1 ] && [ -z "${WORKLOADS+named}" ] && workloads="$workloads agentic-qwen2-7b synthetic-qwen2-7b"

# on FLEET NAME FLAGS…: a study at fractions of the fleet's capacity
on() {
    fleet=$1 of=$2
    shift 2
    scale=$(known "$fleet")
    [ -n "$scale" ] || scale=$(measured "$fleet")
    study "$of" "${fleet%%-*}" "${fleet#*-}" --capacity "$scale" --seeds $seeds "$@"
}

# Every policy at half of capacity; figures 22 and 26.
for fleet in $workloads; do
    if [ -z "$(known "$fleet")" ]; then
        study "$fleet" "${fleet%%-*}" "${fleet#*-}" --policies "$all" --fraction 0.5 --seeds $seeds
    elif wants policies; then
        policies=$paper
        [ "$fleet" = conversation-qwen3-30b-a3b ] && policies=$all
        on "$fleet" "$fleet" --policies "$policies" --fraction 0.5
    fi
done

# Each baseline as the paper tunes it, on the same requests; figures 11, 12, 26 and 34.
if wants sweeps; then
    for fleet in $workloads; do
        case $fleet in conversation-qwen3* | toolagent-qwen3*) sweeps=$wide ;; *) sweeps=$narrow ;; esac
        # shellcheck disable=SC2086 # several flags
        seeds=1 on "$fleet" "$fleet-sweep" --policies bailian --fraction 0.5 $sweeps
    done
fi

# Figures 18 and 19, and the queue that most ports leave out.
wants ablations && on toolagent-qwen3-30b-a3b toolagent-ablations --fraction 0.5 \
    --policies 'lmetric(work=miss-ratio),lmetric(crowd=tokens),lmetric(crowd=decode),lmetric(queue=false)'

# Figures 15 and 16: an oracle (above), a tuned simulator, an untuned one.
wants simulators && on toolagent-qwen3-30b-a3b toolagent-simulators --fraction 0.5 \
    --policies 'llm-d-ttft(error=0.08),llm-d-ttft(model=qwen2-7b)'

# §5.2 and figure 21: the detector on and off. hotspot with prompts of any length, as the trace has them.
if wants detector; then
    hotspot=$out/traces/hotspot.jsonl
    [ -n "$traces" ] && [ -f "$traces/hotspot.jsonl" ] && hotspot=$traces/hotspot.jsonl
    for action in filter off; do
        simulate "hotspot-detector-$action" "$hotspot" qwen2-7b --policies lmetric --rate-scale 1 --seeds $detector_seeds --hotspot $action
    done
    study thinking-detector-filter thinking qwen3-30b-a3b --policies lmetric --rate-scale 1 --seeds $thinking_seeds --hotspot filter
    study thinking-detector-off thinking qwen3-30b-a3b --policies lmetric,vllm --rate-scale 1 --seeds $thinking_seeds --hotspot off
fi

# Figure 29: a third of the fleet under lmetric, two thirds under vLLM's balancer.
if wants canary; then
    scale=$(known conversation-qwen3-30b-a3b)
    [ -n "$scale" ] || scale=$(measured conversation-qwen3-30b-a3b)
    engines=18
    rate=$(awk "BEGIN { print $scale / 2 * 18 / 16 }")
    study conversation-canary conversation qwen3-30b-a3b --policies vllm,lmetric --canary lmetric --rate-scale "$rate" --seeds $seeds
    # what the canary's requests had before
    study conversation-canary-before conversation qwen3-30b-a3b --policies vllm --canary vllm --rate-scale "$rate" --seeds $seeds
    engines=16
fi

# Figure 23: against the rate.
if wants rates; then
    for fleet in $workloads; do
        seeds=1 on "$fleet" "$fleet-rates" --policies "$at_rates" --fraction "$rates"
    done
fi

if [ "${FULL:-}" = 1 ] && wants curves; then
    for fleet in $workloads; do
        seeds=1 on "$fleet" "$fleet-curves" --policies lmetric,lmetric-marginal,vllm,llm-d-ttft --fraction 0.125,0.375,0.625,0.875,1
    done
fi

# What lmetric-marginal's α and its cache term are chosen and judged by (scripts/judge-marginal.py): the first 15 minutes of each.
if [ "${FULL:-}" = 1 ] && wants marginal; then
    variants='lmetric,lmetric-marginal'
    for alpha in 0.5 0.75 1; do variants="$variants,lmetric-marginal(alpha=$alpha)"; done
    for alpha in 0.75 1; do variants="$variants,lmetric-marginal(alpha=$alpha,capacity=true)"; done
    variants="$variants,lmetric-marginal(capacity=true)"
    for fleet in $workloads; do
        seeds=1,2 on "$fleet" "marginal-$fleet" --policies "$variants" --fraction 0.5,0.85 --window 0:900 --hotspot off
    done
    study marginal-thinking thinking qwen3-30b-a3b --policies "$variants" --rate-scale 1 --seeds 1,2 --hotspot off
fi

cd "$out"
if [ -f marginal-thinking.json ]; then python3 "$here/judge-marginal.py" marginal-*.json >marginal.md; fi
studies=$(ls ./*.json | grep -v -e ratios.json -e ./marginal-)
# shellcheck disable=SC2086 # names of studies have no blanks
"$lmetric" report report.html $studies --json ratios.json --table >ratios.txt
runs=$(cat ./*.csv | grep -c -v '^policy,') || true
echo "paper: $(echo "$studies" | wc -l) studies, $runs runs in $out/report.html" >&2
