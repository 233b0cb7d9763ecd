#!/usr/bin/env bash
# Installs what building and testing need and what is not there yet. Each part is quick when there is nothing to do.
#
#     scripts/setup.sh [rust|npm|test-runner|hosts|clients|python-clients|conformance|docs|chromium|firefox|webkit|redis|postgresql|operations]…
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup           $*" >&2; }

# rustup installs no toolchain by itself where that is switched off, so it is asked for by name.
rust() {
  local channel
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
  local wanted has
  wanted=$(locked_version wasm-bindgen Cargo.lock)
  has=$(locked_version wasm-bindgen-cli-support scripts/bindgen/Cargo.lock)
  if [ "$wanted" != "$has" ]; then
    say "Cargo.lock has wasm-bindgen $wanted, but scripts/bindgen/Cargo.lock has $has: please change its Cargo.toml"
    return 1
  fi
  tool bindgen "wasm-bindgen $wanted"
}

# The version of a crate in a lock file.
locked_version() { sed -n "/^name = \"$1\"$/{n;s/version = \"\(.*\)\"/\1/p}" "$2"; }

# Compiles a tool of scripts/bindgen, from its lock file and nothing else: name, description, more arguments for cargo.
tool() {
  [ -x ".cache/tools/build/debug/$1" ] || say "$2 (a minute or two of compiling)"
  cargo build --quiet --locked --manifest-path scripts/bindgen/Cargo.toml --target-dir .cache/tools/build \
    --bin "$1" "${@:3}"
}

# Runs `cargo test` for wasm.
test_runner() { tool wasm-bindgen-test-runner "wasm-bindgen's test runner" --features test-runner; }

# npm keeps what it installed beside the packages; where that is the wanted list there is nothing to do. A new package in
# clients/ is wanted from the moment that it has a package.json, whether the lock file knows it or not.
packages() {
  local stamp="$1/node_modules/.installed" list
  list=$(cat "$1/package-lock.json" "$1/package.json" "${@:2}")
  if [ "$list" != "$(cat "$stamp" 2>/dev/null)" ]; then
    say "npm packages of $1/package.json"
    # `npm ci` refuses a list without other platforms' optional packages, which not every registry has.
    npm install --prefix "$1" --no-save --no-audit --no-fund
    echo "$list" >"$stamp"
  fi
}

# Python packages of a list, in an environment of their own: folder, list, more arguments for pip.
python_packages() {
  if cmp --silent "$1/.installed" "$2"; then return; fi
  say "Python packages of $2"
  # Cleared: of an installation that was broken off, pip takes what is half there for whole.
  "${PYTHON:-python3}" -m venv --clear "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check "${@:3}" --requirement "$2"
  cp "$2" "$1/.installed"
}

# A program from Debian, a browser mostly, unless it is there: name, program, packages.
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

# The small ones of the clients in Python: 80 MB. Where there is no Python and none can be installed, their tests are skipped.
python_clients() {
  if ! "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null; then
    browser python "${PYTHON:-/usr/lib/python3*/ensurepip}" python3 python3-venv
  fi
  python_packages .cache/python-clients pkg/test/clients/requirements.txt --only-binary :all:
}

chromium() { browser chromium "${CHROMIUM:-/usr/bin/chromium}" chromium; }
firefox() { browser firefox "${FIREFOX:-/usr/bin/firefox-esr}" firefox-esr; }
redis() { browser redis "${REDIS:-/usr/bin/redis-server}" redis-server; }
postgresql() { browser postgresql "/usr/lib/postgresql/*/bin/postgres" postgresql; }
webkit() {
  browser webkit "${WEBKIT:-/usr/lib/*/webkit2gtk-4*/MiniBrowser}" webkit2gtk-driver xvfb
}

# What metrics and deploy/ are checked with.
operations() {
  browser prometheus "${PROMTOOL:-/usr/bin/promtool}" prometheus
  browser nginx "${NGINX:-/usr/sbin/nginx}" nginx-light
  browser debootstrap /usr/sbin/debootstrap debootstrap
}

[ $# -gt 0 ] || set -- rust npm
for part; do
  case $part in
    rust) rust ;;
    npm) packages . pkg/package.json $(compgen -G 'clients/*/package.json') ;;
    hosts) packages pkg/test/hosts ;;
    clients) packages pkg/test/clients ;;
    python-clients) python_clients ;;
    conformance) python_packages .cache/conformance pkg/test/conformance/requirements.txt ;;
    docs) packages docs ;;
    test-runner) test_runner ;;
    chromium | firefox | webkit | redis | postgresql | operations) $part ;;
    *) say "no part is named $part" && exit 2 ;;
  esac
done
