#!/bin/bash
# Makes every node look like one with eight H20: gpus.sh DIR
# Capacity alone would do after the kubelet has copied it, up to 10 s later.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(realpath "$1")
for node in "$dir"/node*/; do
  node=$(basename "$node")
  "$here/enter.sh" "$dir" kubectl patch node "$node" --subresource=status -p \
    '{"status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"}}}' >/dev/null
  "$here/enter.sh" "$dir" kubectl label --overwrite node "$node" \
    nvidia.com/gpu.product=NVIDIA-H20 nvidia.com/gpu.count=8 nvidia.com/gpu.family=hopper nvidia.com/gpu.memory=97871 >/dev/null
done
