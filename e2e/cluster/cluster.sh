#!/bin/bash
# The cluster of this checkout, one command:
#   cluster.sh up BINARIES ENVOY   build, start or reuse it, two nodes of eight H20, with fresh images
#   cluster.sh exec COMMAND...     run a command inside, for instance kubectl get nodes
#   cluster.sh down                end it and remove all its state
#   cluster.sh dir                 where its state is
# Programs are built once into LMETRIC_CACHE (default ~/.cache/lmetric); state is in
# LMETRIC_CLUSTER (default a folder of the cache named after this checkout).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${LMETRIC_CACHE:-$HOME/.cache/lmetric}/cluster
bin=$cache/bin
dir=${LMETRIC_CLUSTER:-$cache/run/$(basename "$root")-$(cksum <<<"$root" | cut -d' ' -f1)}

inside() { "$here/enter.sh" "$dir" "$@"; }

running() { # ours, of these programs, and in good health
  [ -e "$dir/ready" ] && [ "$(cat "$dir/ready")" = "$(cat "$bin/.stamp")" ] &&
    (. "$here/lib.sh" && holds "$dir/init.pid" "$dir") &&
    inside kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>&1 &&
    [ "$(inside kubectl --request-timeout=5s get nodes --no-headers 2>/dev/null | grep -cw Ready)" = 2 ]
}

end() {
  [ -e "$dir/env" ] && "$here/down.sh" "$dir"
  rm -rf "$dir"
}

case ${1:-} in
up)
  "$here/check.sh"
  "$here/build.sh" "$bin"
  mkdir -p "$(dirname "$dir")"
  if [ "$(stat -fc %T "$(dirname "$dir")")" = overlayfs ]; then
    echo "error: $(dirname "$dir") is on an overlay, which cannot hold the nodes' layers; set LMETRIC_CLUSTER to a folder on a disk" >&2
    exit 1
  fi
  exec 9>"$dir.lock"
  flock 9
  if ! running; then
    if [ -e "$dir" ]; then end; fi
    start=$SECONDS
    "$here/up.sh" "$bin" "$dir" 2
    "$here/gpus.sh" "$dir"
    cp "$bin/.stamp" "$dir/ready"
    echo "cluster started in $((SECONDS - start)) s"
  fi
  "$here/images.sh" "$dir" "${2:?folder of binaries}" "${3:?Envoy}"
  ;;
exec)
  shift
  [ -e "$dir/ready" ] || { echo "error: no cluster runs here; make cluster starts one" >&2; exit 1; }
  inside "$@"
  ;;
down)
  # without a name of its own, that of e2e-core as well, which LMETRIC_KEEP may have left
  for dir in "$dir" ${LMETRIC_CLUSTER-"$dir-core"}; do
    if [ -e "$dir" ]; then
      exec 9>"$dir.lock"
      flock 9
      end
      rm -f "$dir.lock"
    fi
  done
  rmdir "$cache/run" 2>/dev/null || true
  ;;
dir) echo "$dir" ;;
*)
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
