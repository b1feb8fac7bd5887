#!/bin/bash
# Makes images of the workspace's own binaries and Envoy and gives them to every
# node: images.sh DIR BINARIES ENVOY
#   BINARIES  cargo's output folder
#   ENVOY     Envoy's binary
# An image's tag holds a hash of its contents, so that a node never runs an old
# one. Writes the names to DIR/images.env; what is loaded already is skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(realpath "$1") binaries=$(realpath "$2") envoy=$(realpath "$3")
root=$(cd "$here/../.." && pwd)
. "$here/lib.sh"
mkdir -p "$dir/images"
work=$(mktemp -d "$dir/images/XXXXXX")
trap 'rm -rf "$work"' EXIT

stripped() { # BINARY: a copy without debug information
  if [ ! -x "$binaries/$1" ]; then
    echo "missing: $binaries/$1; remedy: e2e/cluster/binaries.sh" >&2
    exit 1
  fi
  strip --strip-debug -o "$work/${1##*/}" "$binaries/$1"
}

image() { # VARIABLE NAME PREFIX FILE[=PATH]...: makes and loads it
  local variable=$1 name=$2 prefix=$3 hash loaded file
  shift 3
  hash=$( (printf '%s\n' "${mkimage_flags[@]}" "${@##*=}" && for file in "$@"; do sha256sum <"${file%%=*}"; done) | sha256sum | cut -c1-12)
  echo "$variable=e2e.local/$name:$prefix$hash" >>"$work/images.env"
  loaded=$dir/images/$name:$prefix$hash
  if [ ! -e "$loaded" ]; then
    mkimage "${mkimage_flags[@]}" "$work/$name.tar" "e2e.local/$name:$prefix$hash" "$@"
    "$here/load.sh" "$dir" "$work/$name.tar"
    : >"$loaded"
  fi
}

again() { # VARIABLE OF: the image of variable OF under a second tag, as a next release has one
  local first second loaded node
  first=$(sed -n "s/^$2=//p" "$work/images.env")
  second=${first%:*}:next-${first##*:}
  echo "$1=$second" >>"$work/images.env"
  loaded=$dir/images/${second##*/}
  if [ ! -e "$loaded" ]; then
    for node in "$dir"/node*/; do
      NODE=$(basename "$node") "$here/enter.sh" "$dir" ctr -n k8s.io images tag --force "$first" "$second" >>"$dir/log/import.log" 2>&1
    done
    : >"$loaded"
  fi
}

mkimage_flags=(-user 65532)
for program in lmetric-operator lmetric-epp static/lmetric-drain lmetric vllm-sim; do stripped "$program"; done
image LMETRIC_IMAGE lmetric '' "$work/lmetric=/lmetric" "$work/lmetric-operator=/lmetric-operator" \
  "$work/lmetric-epp=/lmetric-epp" "$work/lmetric-drain=/lmetric-drain"

# Stands in for vLLM's own image: the same command, the same flags. Its version
# is in the tag, where the operator looks for it.
mkimage_flags=(-user 0 -env VLLM_SIM_TOKENIZER=/usr/share/vllm-sim/tokenizer)
tokenizer=()
for file in "$root"/crates/tokenize/testdata/tiny-qwen2/*.json; do
  tokenizer+=("$file=/usr/share/vllm-sim/tokenizer/$(basename "$file")")
done
image VLLM_IMAGE vllm v0.33.0- "$work/vllm-sim=/usr/local/bin/vllm" "${tokenizer[@]}"
image VLLM_IMAGE_NEXT vllm v0.33.1- "$work/vllm-sim=/usr/local/bin/vllm" "${tokenizer[@]}"

mkimage_flags=(-user 65532)
image ENVOY_IMAGE envoy '' "$envoy=/usr/local/bin/envoy"

again LMETRIC_IMAGE_NEXT LMETRIC_IMAGE
again ENVOY_IMAGE_NEXT ENVOY_IMAGE
mv "$work/images.env" "$dir/images.env"
