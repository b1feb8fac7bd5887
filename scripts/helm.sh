#!/usr/bin/env bash
# Runs helm: $HELM, else the one that `make cluster` built, else the one on PATH. Usage: helm.sh ARGUMENT...
set -euo pipefail
built=${LMETRIC_CACHE:-$HOME/.cache/lmetric}/cluster/bin/helm
for helm in "${HELM:-}" "$built" "$(command -v helm || true)"; do
  if [ -n "$helm" ] && [ -x "$helm" ]; then exec "$helm" "$@"; fi
done
echo "missing: helm; remedy: make cluster builds one, or put one on PATH, or name it in HELM" >&2
exit 1
