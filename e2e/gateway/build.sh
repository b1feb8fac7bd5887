#!/bin/bash
# Builds Envoy Gateway from its Go module, and copies its chart and the CRDs of other
# gateways out of theirs: build.sh BIN
# All of it is under the Apache License 2.0. Skipped when nothing has changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
bin=$(realpath "$1")
inference=sigs.k8s.io/gateway-api-inference-extension@v1.6.0
istio=istio.io/api@v1.32.0
exec 9>"$bin/.gateway.lock"
flock 9
stamp=$(cat "$here"/{go.mod,go.sum,build.sh} | sha256sum | cut -d' ' -f1)
if [ "$(cat "$bin/.gateway.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
rm -f "$bin/.gateway.stamp"
echo "building Envoy Gateway into $bin: 4 minutes on two idle cores the first time"
cd "$here"
CGO_ENABLED=0 nice -n 19 go build -trimpath -buildvcs=false -ldflags '-s -w' \
  -o "$bin/envoy-gateway" github.com/envoyproxy/gateway/cmd/envoy-gateway

folder() { go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)",/\1/p'; }
rm -rf "$bin/gateway"
mkdir -p "$bin/gateway/crds"
# The chart lacks only its values.yaml.
cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' github.com/envoyproxy/gateway)/charts/gateway-helm" "$bin/gateway/chart"
mv "$bin/gateway/chart/values.tmpl.yaml" "$bin/gateway/chart/values.yaml"
cp --no-preserve=mode "$(folder "$inference")/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml" "$bin/gateway/crds/inferencepools.yaml"
# of Istio's, only that of DestinationRule
awk 'BEGIN { RS = "---\n"; ORS = "" } /\n  name: destinationrules\.networking\.istio\.io\n/ { print }' \
  "$(folder "$istio")/kubernetes/customresourcedefinitions.gen.yaml" >"$bin/gateway/crds/destinationrules.yaml"
grep -q 'kind: DestinationRule' "$bin/gateway/crds/destinationrules.yaml"
echo "$stamp" >"$bin/.gateway.stamp"
