#!/bin/bash
# Ends a cluster that up.sh started: down.sh DIR. DIR stays, for its logs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(realpath "$1")
. "$here/lib.sh"
if holds "$dir/unshare.pid" "$dir"; then kill -KILL "$(cat "$dir/unshare.pid")"; fi
# The namespace's first process ends after all others; then the groups are empty.
for _ in $(seq 100); do
  if ! holds "$dir/init.pid" "$dir"; then
    find /sys/fs/cgroup/*/"$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
    compgen -G "/sys/fs/cgroup/*/$cgroup" >/dev/null || exit 0
  fi
  sleep 0.1
done
echo "processes or groups left of $cgroup" >&2
exit 1
