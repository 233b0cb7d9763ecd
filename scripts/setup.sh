#!/usr/bin/env bash
# Installs what building and testing need and what is not there yet. Each part is quick when there is nothing to do.
#
#     scripts/setup.sh [rust|npm|hosts|docs|chromium|firefox|webkit]…
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup           $*" >&2; }

# rustup installs no toolchain by itself where that is switched off, so it is asked for by name.
rust() {
  local channel bindgen tools=.cache/tools
  command -v rustup >/dev/null || { say "Rust comes by rustup (rustup.rs), which is not here" && return 1; }
  channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  if ! rustup run "$channel" rustc --version >/dev/null 2>&1 ||
    ! rustup target list --toolchain "$channel" --installed | grep -q '^wasm32-unknown-unknown$' ||
    [ "$(rustup component list --toolchain "$channel" --installed | grep -cE '^(rust-src|rustfmt|clippy)')" -lt 3 ]; then
    say "Rust $channel with rust-src and the wasm target"
    rustup toolchain install "$channel" --profile minimal --component rust-src,rustfmt,clippy \
      --target wasm32-unknown-unknown --no-self-update
  fi

  # The tool refuses a module made with another version of its crate than its own.
  bindgen=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
  if [ "$("$tools/bin/wasm-bindgen" --version 2>/dev/null)" != "wasm-bindgen $bindgen" ]; then
    say "wasm-bindgen-cli $bindgen (some minutes)"
    # Its own lock file may name a version that has been withdrawn since.
    cargo install wasm-bindgen-cli --version "$bindgen" --root "$tools" --locked ||
      cargo install wasm-bindgen-cli --version "$bindgen" --root "$tools"
  fi
}

# npm keeps what it installed beside the packages; where that is the wanted list there is nothing to do.
packages() {
  local list="$1/package-lock.json" stamp="$1/node_modules/.installed"
  if ! cmp -s "$list" "$stamp"; then
    say "npm packages of $1"
    # `npm ci` refuses a list without other platforms' optional packages, which not every registry has.
    npm install --prefix "$1" --no-save --no-audit --no-fund
    cp "$list" "$stamp"
  fi
}

# A browser from Debian, unless its program is there: name, program, packages.
browser() {
  local name="$1" program="$2" packages="${*:3}"
  if compgen -G "$program" >/dev/null; then return; fi
  if ! command -v apt-get >/dev/null; then
    say "no $name at $program: set ${name^^} to the path of one"
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    say "tests need $name, please run:  sudo sh -c 'apt-get update && apt-get install --yes $packages'"
    return 1
  fi
  say "$name from Debian"
  apt-get update --quiet
  # shellcheck disable=SC2086
  apt-get install --yes --quiet --no-install-recommends $packages
}

chromium() { browser chromium "${CHROMIUM:-/usr/bin/chromium}" chromium; }
firefox() { browser firefox "${FIREFOX:-/usr/bin/firefox-esr}" firefox-esr; }
webkit() {
  browser webkit "${WEBKIT:-/usr/lib/*/webkit2gtk-4*/MiniBrowser}" webkit2gtk-driver xvfb
}

[ $# -gt 0 ] || set -- rust npm
for part; do
  case $part in
    rust) rust ;;
    npm) packages pkg ;;
    hosts) packages pkg/test/hosts ;;
    docs) packages docs ;;
    chromium | firefox | webkit) $part ;;
    *) say "no part is named $part" && exit 2 ;;
  esac
done
