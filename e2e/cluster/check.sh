#!/bin/bash
# Names what this machine lacks for a cluster, each with its remedy. Debian
# packages are installed where that is allowed (LMETRIC_INSTALL=0 forbids it).
set -uo pipefail
missing=0
need() { # WHAT REMEDY
  printf 'missing: %s\n  remedy: %s\n' "$1" "$2" >&2
  missing=1
}

if [ "$(id -u)" != 0 ]; then need "root (namespaces, cgroups and mounts need it)" "run as root, for instance with sudo -E make cluster"; fi

# command=package
tools=(curl=curl flock=util-linux ip=iproute2 ldd=libc-bin nft=nftables nsenter=util-linux openssl=openssl runc=runc strip=binutils unshare=util-linux)
lacking() {
  local tool
  for tool in "${tools[@]}"; do command -v "${tool%%=*}" >/dev/null 2>&1 || echo "${tool#*=}"; done | sort -u
}
packages=$(lacking)
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && [ "${LMETRIC_INSTALL:-1}" != 0 ] && command -v apt-get >/dev/null; then
  echo "installing $(xargs <<<"$packages")" >&2
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >/dev/null
  packages=$(lacking)
fi
for package in $packages; do need "the Debian package $package" "apt-get install $package"; done

wanted=$(sed -n 's/^go //p' "$(dirname "$0")/runtime/go.mod")
if ! command -v go >/dev/null 2>&1; then
  need "Go $wanted or later (it builds Kubernetes)" "install Go and put its bin folder on PATH"
else
  found=$(go env GOVERSION 2>/dev/null)
  if [ "$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -n 1)" != "$wanted" ]; then
    need "Go $wanted or later (found: ${found:-none that works})" "install a newer Go and put its bin folder first on PATH"
  fi
fi

if [ "$(stat -fc %T /sys/fs/cgroup 2>/dev/null)" = cgroup2fs ]; then
  need "cgroup v1 (this machine has cgroup v2 alone, which these scripts do not handle)" \
    "use a machine started with systemd.unified_cgroup_hierarchy=0, or a container with v1 controllers under /sys/fs/cgroup"
elif [ "$(id -u)" = 0 ]; then
  probe=/sys/fs/cgroup/memory/e2e-check-$$
  if mkdir "$probe" 2>/dev/null; then rmdir "$probe"; else
    need "write access to /sys/fs/cgroup/memory (pods get groups there)" "mount the cgroup v1 controllers read-write"
  fi
fi
exit "$missing"
