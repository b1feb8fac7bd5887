#!/bin/bash
# Installs Envoy Gateway, its class `envoy`, and the CRDs of the Gateway API Inference
# Extension and of Istio's DestinationRule into the cluster that runs: up.sh
# What is there already is taken as it is. LMETRIC_CLUSTER as for cluster.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=$here/../cluster
dir=$(realpath "$("$cluster/cluster.sh" dir)")
. "$cluster/lib.sh"
"$here/build.sh" "$bin"
. "$dir/images.env"
inside() { "$cluster/enter.sh" "$dir" "$@"; }

tag=$(sha256sum <"$bin/envoy-gateway" | cut -c1-12)
image=e2e.local/envoy-gateway:$tag
loaded=$dir/images/envoy-gateway:$tag
if [ ! -e "$loaded" ]; then
  mkimage -user 65532 "$dir/envoy-gateway.tar" "$image" "$bin/envoy-gateway=/usr/local/bin/envoy-gateway"
  "$cluster/load.sh" "$dir" "$dir/envoy-gateway.tar"
  rm "$dir/envoy-gateway.tar"
  : >"$loaded"
fi
inside kubectl apply --server-side -f "$bin/gateway/crds" >/dev/null
inside helm upgrade --install envoy-gateway "$bin/gateway/chart" --namespace envoy-gateway-system --create-namespace \
  --values "$here/values.yaml" --set "global.images.envoyGateway.image=$image,global.images.envoyProxy.image=$ENVOY_IMAGE" \
  --wait --timeout 120s >/dev/null
inside kubectl apply --server-side -f "$here/class.yaml" >/dev/null
inside kubectl wait --for=condition=Accepted --timeout=60s gatewayclass/envoy >/dev/null
