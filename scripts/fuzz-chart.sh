#!/usr/bin/env bash
# Lints the chart and renders it with the values of charts/lmetric/ci and with values drawn by chance; everything has to
# parse, no object may be there twice, and values that mean nothing have to be refused. manifests/ has to be fresh. Usage:
#   fuzz-chart.sh [--server] [SEED [COUNT]]
# With --server each result also goes to `kubectl apply --dry-run=server`, without the kinds that the cluster lacks; so do
# the examples, if the cluster has the CRD. For that time there is a namespace lmetric-fuzz.
# Needs helm and kubectl.
set -euo pipefail
cd "$(dirname "$0")/.."
server=
if [ "${1:-}" = --server ]; then server=1 && shift; fi
seed=${1:-1} count=${2:-12}
chart=charts/lmetric
built=${LMETRIC_CACHE:-$HOME/.cache/lmetric}/cluster/bin
if ! command -v kubectl >/dev/null; then PATH=$PATH:$built; fi
command -v kubectl >/dev/null || { echo "missing: kubectl; remedy: make cluster builds one, or put one on PATH" >&2 && exit 1; }
namespace=lmetric-fuzz
work=$(mktemp -d)
finish() {
  rm -rf "$work"
  if [ -n "$server" ]; then kubectl delete namespace "$namespace" --wait=false >/dev/null; fi
}
if [ -n "$server" ]; then
  kubectl create namespace "$namespace" >/dev/null
  for _ in {1..30}; do
    if kubectl -n "$namespace" get serviceaccount default >/dev/null 2>&1; then break; fi
    sleep 0.5
  done
  known=$(kubectl api-resources --no-headers | awk '{print $NF}' | tr '\n' ' ')
fi
trap finish EXIT
failed=0
fail() { # WHAT OUTPUT
  echo "FAILED: $1" >&2
  sed 's/^/  /' "$2" >&2
  failed=1
}

scripts/helm.sh lint --strict "$chart" >"$work/lint" 2>&1 || fail lint "$work/lint"
scripts/render-manifests.sh --check >"$work/log" 2>&1 || fail manifests "$work/log"

# kustomize reads every key once, and every object by its name once.
printf 'resources: [all.yaml]\n' >"$work/kustomization.yaml"
check() { # NAME FLAG...
  local name=$1
  shift
  if ! scripts/helm.sh template lmetric "$chart" --namespace "$namespace" "$@" >"$work/all.yaml" 2>"$work/log"; then
    fail "$name: template $*" "$work/log"
  elif ! kubectl kustomize "$work" >"$work/read.yaml" 2>"$work/log"; then
    fail "$name: parse $*" "$work/log"
  elif [ -n "$server" ] && ! apply; then
    fail "$name: apply $*" "$work/log"
  else
    echo "ok: $name"
  fi
}
apply() {
  # documents of kinds that the cluster does not know
  awk -v RS='---\n' -v ORS='---\n' -v known="$known" '
    BEGIN {split(known, list, " "); for (i in list) kinds[list[i]] = 1}
    match($0, /(^|\n)kind: [A-Za-z]+/) {kind = substr($0, RSTART, RLENGTH); sub(/.*: /, "", kind); if (kind in kinds) print}
  ' "$work/read.yaml" >"$work/known.yaml"
  kubectl apply --dry-run=server -f "$work/known.yaml" >"$work/log" 2>&1
}
for values in "$chart"/ci/*.yaml; do check "$(basename "$values")" --values "$values"; done
check exclude --set 'excludeNamespaces={team-a,team-b}'
check other-name --set fullnameOverride=llm,nameOverride=llm,commonLabels.team=ml

# values drawn by chance
RANDOM=$seed
switches=(podDisruptionBudget.enabled serviceAccount.create rbac.create rbac.pickerRole rbac.aggregate rbac.clusterReads crds.install crds.keep
  networkPolicy.enabled monitoring.podMonitor.enabled monitoring.prometheusRule.enabled monitoring.dashboards.enabled)
choices=(
  'replicas=0' 'replicas=1' 'replicas=3' 'watchNamespace=default' 'watchNamespace=lmetric-fuzz' 'image.tag=v1'
  "image.digest=sha256:$(printf %064d 1)" 'image.pullPolicy=Always' 'imagePullSecrets[0].name=registry' 'picker.image=other/picker:1' 'log.filter=info\,kube=debug'
  'extraArgs[0]=--concurrency=4' 'podLabels.a=b' 'podAnnotations.a=b' 'nodeSelector.a=b' 'tolerations[0].operator=Exists' 'priorityClassName=system-cluster-critical'
  'podDisruptionBudget.maxUnavailable=50%' 'serviceAccount.name=other' 'topologySpreadConstraints=null' 'resources.limits=null' 'networkPolicy.apiServerPorts=null'
  'monitoring.podMonitor.interval=15s' 'monitoring.podMonitor.labels.release=prometheus' 'monitoring.prometheusRule.alertLabels.team=ml' 'fullnameOverride=x'
  'commonLabels.app\.kubernetes\.io/part-of=platform' 'crds.annotations.a=b' 'service.annotations.a=b' 'monitoring.dashboards.annotations.folder=LLM'
)
for ((i = 0; i < count; i++)); do
  flags=()
  for switch in "${switches[@]}"; do
    if ((RANDOM % 3 == 0)); then flags+=(--set "$switch=$( ((RANDOM % 2)) && echo true || echo false)"); fi
  done
  for choice in "${choices[@]}"; do
    if ((RANDOM % 4 == 0)); then flags+=(--set "$choice"); fi
  done
  check "seed $seed.$i" "${flags[@]}"
done

if [ -n "$server" ] && [[ " $known " == *" InferencePool "* ]]; then
  for example in manifests/examples/*.yaml; do
    kubectl apply --namespace "$namespace" --dry-run=server -f "$example" >"$work/log" 2>&1 || fail "$example" "$work/log"
  done
fi

# values that mean nothing
refuse() { # VALUE WORD
  if scripts/helm.sh template lmetric "$chart" --set "$1" >"$work/log" 2>&1; then
    fail "$1 is accepted" /dev/null
  elif ! grep -qF -- "$2" "$work/log"; then
    fail "$1 is refused without naming $2" "$work/log"
  fi
}
refuse replicaz=2 replicaz
refuse image.tagg=1 tagg
refuse replicas=many /replicas
refuse replicas=-1 /replicas
refuse image.pullPolicy=Sometimes /image/pullPolicy
refuse image.digest=abc /image/digest
refuse 'image.repository=a b' /image/repository
refuse watchNamespace=a.b /watchNamespace
refuse 'excludeNamespaces[0]=a.b' /excludeNamespaces
refuse 'watchNamespace=a,excludeNamespaces[0]=b' 'remove one of them'
refuse fullnameOverride=Upper /fullnameOverride
refuse 'networkPolicy.apiServerPorts[0]=70000' /networkPolicy/apiServerPorts
refuse podDisruptionBudget.maxUnavailable=most /podDisruptionBudget/maxUnavailable
refuse monitoring.podMonitor.interval=often /monitoring/podMonitor/interval
refuse 'imagePullSecrets[0]=registry' /imagePullSecrets
exit "$failed"
