# Shared by the scripts here; each sets dir first.
. "$dir/env"
export PATH=$bin:$PATH KUBECONFIG=$dir/admin.kubeconfig

# new_namespaces STATE [UNSHARE-OPTIONS]: a process that holds new PID, mount and
# network namespaces. STATE/unshare.pid ends them all; STATE/init.pid is to enter.
# pause ignores its argument: by it a later script knows the process again.
new_namespaces() {
  local state=$1 child
  shift
  setsid unshare --pid --fork --kill-child --mount --mount-proc --propagation private --net "$@" \
    "$bin/pause" "$state" </dev/null >"$state/init.log" 2>&1 9>&- &
  echo $! >"$state/unshare.pid"
  for _ in $(seq 100); do
    child=$(tr -d ' ' <"/proc/$!/task/$!/children")
    if [ -n "$child" ] && [ "$(cat "/proc/$child/comm")" = pause ]; then
      echo "$child" >"$state/init.pid"
      return
    fi
    sleep 0.05
  done
  echo "no new namespaces; see $state/init.log" >&2
  return 1
}

# holds PIDFILE STATE: whether the process is one of new_namespaces for STATE,
# and not a stranger that got its number.
holds() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && { tr '\0' '\n' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qxF -- "$2"
}

# run NAME COMMAND...: in the background, logging to log/NAME.log
run() {
  local name=$1
  shift
  "$@" </dev/null >>"$dir/log/$name.log" 2>&1 9>&- &
}

# keep NAME COMMAND...: the same, and again whenever it ends, as kubelets do with a control plane's pods; not before the
# API server is there, since a scheduler that begins without one waits for half a minute and more
keep() {
  local name=$1
  shift
  while :; do
    "$@" || true
    until curl -fsSk -m 2 -o /dev/null https://172.30.0.1:6443/readyz; do sleep 1; done
  done </dev/null >>"$dir/log/$name.log" 2>&1 9>&- &
}

wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || { echo "no $what; see $dir/log" >&2; exit 1; }
    sleep 0.1
  done
}
