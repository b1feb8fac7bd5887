#!/usr/bin/env bash
# Renders manifests/ from the chart, and the chart's copy of the CRDs from crds/. Usage: render-manifests.sh [--check]
# With --check nothing is written; it fails where a file is not what would be written.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
'' | --check) ;;
*) echo "usage: render-manifests.sh [--check]" >&2 && exit 2 ;;
esac
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
chart=$out/chart
cp -r charts/lmetric "$chart"
rm -rf "$chart/files/crds"
mkdir -p "$chart/files/crds" "$out/manifests"/{crd,rbac,operator}
cp crds/*.yaml "$chart/files/crds/"

head='# Rendered from charts/lmetric by scripts/render-manifests.sh; edit the chart.'
render() { # TEMPLATE...: without what only means something to helm
  scripts/helm.sh template lmetric "$chart" --namespace lmetric-system --skip-tests --set crds.keep=false "${@/#/--show-only=templates/}" |
    sed -E -e '/^# Source: /d' -e '/^ +helm\.sh\/chart: /d' -e '/^ +app\.kubernetes\.io\/managed-by: Helm$/d' -e '/^$/d'
}
namespace='---
apiVersion: v1
kind: Namespace
metadata:
  name: lmetric-system
  labels:
    app.kubernetes.io/part-of: lmetric
    pod-security.kubernetes.io/enforce: restricted'
{
  echo "$head"
  render crds.yaml
} >"$out/manifests/crd/crds.yaml"
{
  echo "$head"
  render serviceaccount.yaml rbac.yaml picker-role.yaml aggregated-roles.yaml
} >"$out/manifests/rbac/rbac.yaml"
{
  echo "$head"
  render deployment.yaml service.yaml poddisruptionbudget.yaml networkpolicy.yaml
} >"$out/manifests/operator/operator.yaml"
printf '%s\n%s\n' "$head" "$namespace" >"$out/manifests/operator/namespace.yaml"
{
  echo "$head"
  echo "$namespace"
  tail -qn +2 "$out"/manifests/{crd/crds,rbac/rbac,operator/operator}.yaml
} >"$out/manifests/install.yaml"

stale=0
place() { # FROM TO
  if cmp -s "$1" "$2"; then return; fi
  if [ -n "${check:-}" ]; then
    echo "stale: $2; remedy: scripts/render-manifests.sh" >&2
    stale=1
  else
    cp "$1" "$2" && echo "$2"
  fi
}
check=${1:-}
for file in "$chart"/files/crds/*; do place "$file" "charts/lmetric/files/crds/$(basename "$file")"; done
for file in charts/lmetric/files/crds/*; do
  if [ -e "crds/$(basename "$file")" ]; then continue; fi
  if [ -n "$check" ]; then echo "stale: $file is in no crds/; remedy: scripts/render-manifests.sh" >&2 && stale=1; else rm "$file"; fi
done
while read -r file; do place "$out/$file" "$file"; done < <(cd "$out" && find manifests -type f | sort)
exit "$stale"
