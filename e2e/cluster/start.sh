#!/bin/bash
# The part of up.sh that runs inside the namespaces: start.sh NODES
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(dirname "$KUBECONFIG")
. "$here/lib.sh"

# 172.30.0.1 is the control plane, 172.30.0.(10+i) node i. Pods and ClusterIPs
# lie behind the nodes.
ip link set lo up
ip link add br0 type bridge
ip addr add 172.30.0.1/24 dev br0
ip link set br0 up
for i in $(seq "$1"); do ip route add "10.244.$i.0/24" via "172.30.0.$((10 + i))"; done
ip route add 10.96.0.0/16 via 172.30.0.11
# clients outside of the cluster may have any address in here
ip route add local 10.97.0.0/16 dev lo
echo 1 >/proc/sys/net/ipv4/ip_forward

run etcd etcd --data-dir "$dir/etcd" --unsafe-no-fsync
wait_for 30 etcd curl -fsS -m 2 http://127.0.0.1:2379/health
"$here/apiserver.sh" "$dir"
pki=$dir/pki
for c in controller-manager scheduler; do
  # one that loses its Lease ends and begins anew, with no memory of what it missed
  flags=(--leader-elect-lease-duration=8s --leader-elect-renew-deadline=6s --leader-elect-retry-period=1s)
  for f in kubeconfig authentication-kubeconfig authorization-kubeconfig; do flags+=("--$f=$dir/$c.kubeconfig"); done
  if [ $c = controller-manager ]; then
    flags+=(--kube-api-qps=200 --kube-api-burst=400 --use-service-account-credentials=true)
    flags+=(--horizontal-pod-autoscaler-sync-period=5s)
    flags+=(--node-monitor-grace-period=12s --node-monitor-period=1s)
    flags+=(--service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt")
  fi
  keep $c kube-$c "${flags[@]}"
done

for i in $(seq "$1"); do "$here/node.sh" "$dir" "$i" & done
wait_for 60 'ready nodes' sh -c "kubectl get nodes --no-headers | grep -cw Ready | grep -qx $1"
kubectl apply -f "$here/manifests/coredns.yaml" >/dev/null
kubectl -n kube-system rollout status --timeout=90s deployment/coredns >/dev/null
