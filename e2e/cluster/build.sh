#!/bin/bash
# Builds every program and image that up.sh needs into a folder: build.sh BIN
# Skipped when nothing that goes into them has changed; Go's own cache makes a
# changed one take seconds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/cni" "$1/images"
bin=$(realpath "$1")
exec 9>"$bin/.lock"
flock 9
sources() { find "$here" \( -name '*.go' -o -name go.mod -o -name go.sum -o -name build.sh \) -print0 | sort -z; }
stamp=$(sources | xargs -0 cat | sha256sum | cut -d' ' -f1)
if [ "$(cat "$bin/.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
rm -f "$bin/.stamp"
echo "building Kubernetes, containerd, CoreDNS and helm into $bin: 11 minutes on two idle cores the first time"
export CGO_ENABLED=0

build() { # MODULE OUT PACKAGE [FLAGS...]
  local module=$1 out=$2 package=$3 start=$SECONDS
  shift 3
  (cd "$here/$module" && go build -trimpath -buildvcs=false "$@" -o "$bin/$out" "$package")
  printf '%4d s  %9d KiB  %s\n' $((SECONDS - start)) $(($(stat -c %s "$bin/$out") / 1024)) "$out"
}
strip='-s -w'
# The version is what the API server reports and clients compare.
v=$(cd "$here" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${v#v1.}
version="-X k8s.io/component-base/version.gitVersion=$v -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
for c in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
  build . $c k8s.io/kubernetes/cmd/$c -ldflags "$strip $version"
done
for c in etcd pause mkimage; do build . $c ./$c -ldflags "$strip"; done
for c in containerd containerd-shim-runc-v2 ctr; do
  build runtime $c github.com/containerd/containerd/v2/cmd/$c -ldflags "$strip" -tags no_zfs,no_devmapper,no_tracing
done
for c in main/bridge main/loopback ipam/host-local; do
  build runtime cni/${c##*/} github.com/containernetworking/plugins/plugins/$c -ldflags "$strip"
done
build coredns coredns . -ldflags "$strip"
build helm helm helm.sh/helm/v4/cmd/helm -ldflags "$strip"

for image in pause coredns; do
  "$bin/mkimage" "$bin/images/$image.tar" e2e.local/$image:1 "$bin/$image"
done
echo "$stamp" >"$bin/.stamp"
