#!/bin/bash
# Shows it all on a running cluster: demo.sh BINARIES ENVOY
# Installs the chart, applies the sixteen-H20 example, sends chats, shows the pool.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
"$here/cluster.sh" up "${1:?folder of binaries}" "${2:?Envoy}"
dir=$("$here/cluster.sh" dir)
. "$dir/images.env"
inside() { "$here/cluster.sh" exec "$@"; }
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say '$ helm install lmetric charts/lmetric'
inside helm upgrade --install lmetric "$root/charts/lmetric" --namespace lmetric-system --create-namespace --wait --timeout 90s \
  --set "image.repository=${LMETRIC_IMAGE%:*},image.tag=${LMETRIC_IMAGE##*:}" \
  --set "envoy.image.repository=${ENVOY_IMAGE%:*},envoy.image.tag=${ENVOY_IMAGE##*:}"

say '$ kubectl apply -k …   # examples/sixteen-h20 with this machine'"'"'s image, quantities and times'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$root/manifests/examples/sixteen-h20.yaml" "$work/pool.yaml"
small='{requests: {cpu: 20m, memory: 64Mi}, limits: null}'
cat >"$work/kustomization.yaml" <<K
resources: [pool.yaml]
patches:
- target: {kind: InferencePool}
  patch: |
    apiVersion: lmetric.io/v1alpha1
    kind: InferencePool
    metadata: {name: any}
    spec:
      engine: {image: "$VLLM_IMAGE"}
      resources: {cpu: 100m, memory: 128Mi, sharedMemory: 16Mi}
      cache: {type: None, size: null, storageClassName: null, accessMode: null, claimName: null, path: null, retain: null}
      lifecycle: {startupTimeout: 2m, drainTimeout: 10s}
      picker: {resources: $small}
      gateway: {standalone: {resources: $small}}
K
inside kubectl apply --server-side -k "$work"
name=$(inside kubectl get lmpool -o 'jsonpath={.items[0].metadata.name}')
model=$(inside kubectl get lmpool "$name" -o 'jsonpath={.spec.model.servedNames[0]}')
inside kubectl wait --for=condition=Ready --timeout=180s "inferencepools.lmetric.io/$name"
replicas=$(inside kubectl get lmpool "$name" -o 'jsonpath={.spec.replicas}')
inside kubectl wait "--for=jsonpath={.status.readyReplicas}=$replicas" --timeout=180s "inferencepools.lmetric.io/$name"

say '$ kubectl get lmpool,pods -o wide'
inside kubectl get lmpool,pods -o wide

ip=$(inside kubectl get service "$name-envoy" -o 'jsonpath={.spec.clusterIP}')
for question in 'What is a key-value cache?' 'Why do prefixes repeat?' 'What is a key-value cache?'; do
  say "$question"
  inside curl -fsS -m 60 "http://$ip/v1/chat/completions" -H 'content-type: application/json' \
    -d "{\"model\": \"$model\", \"max_tokens\": 24, \"messages\": [{\"role\": \"system\", \"content\": \"You are a patient teacher of distributed systems who answers in few words.\"}, {\"role\": \"user\", \"content\": \"$question\"}]}"
  echo
done
say 'The cluster stays: e2e/cluster/cluster.sh exec kubectl get lmpool, and make cluster-down to end it.'
