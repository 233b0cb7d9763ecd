# make demo    the demo page on loopback (PORT=8080, or the next free one)
# make test    every test there is
# make ok      format, lints and tests: what a change needs
# make build   the package, ready for `npm pack` in pkg/
# make docs    the site of the documents in docs/.site, with the API and the demo page, for any static host
# make soak    fuzzing, SOAK_SECONDS (300) for each parser; wants a nightly toolchain and fetches what is missing

SHELL := bash
PORT ?= 8080
# It runs TypeScript as it is; tests for Node 20 and others name theirs.
NODE24 := pkg/test/hosts/node_modules/node24/bin/node
BIN := pkg/node_modules/.bin
WASM_TESTS := single-relaxed single-simd128
WASM_LINTS := single-relaxed threads-relaxed convert constrain

.PHONY: demo build docs test ok soak format lint tools test-rust test-wasm test-package clean

demo: build
	@node scripts/serve.mjs $(PORT)

build: tools
	@node pkg/scripts/build.mjs

# DOCS_BASE=/folder/ where the site will not lie at the top of its host.
docs: build
	@scripts/setup.sh docs hosts chromium
	@$(NODE24) docs/scripts/site.mjs

tools:
	@scripts/setup.sh rust npm

test: test-rust test-wasm test-package

# Without threads there is less, and nothing else: the library's own tests suffice.
test-rust: tools
	cargo test --locked --lib
	cargo test --locked --features threads
	cargo test --locked --package ternlight-constrain --package ternlight-convert

# The pool's crate has no Node support (pkg/src/wasm/threads.ts), so builds with threads are tested as a package.
test-wasm: tools
	@scripts/setup.sh hosts
	@for flavour in $(WASM_TESTS); do \
	  echo "cargo test for $$flavour, in Node 24"; \
	  node pkg/scripts/cargo.mjs $$flavour test --lib || exit; \
	done

test-package: build
	@scripts/setup.sh hosts chromium firefox webkit
	$(NODE24) pkg/test/all.mjs "pkg/test/**/*.test.{ts,mjs}"

ok: lint test

soak:
	scripts/soak.sh

lint: build
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --all-targets --features threads -- -D warnings
	@for flavour in $(WASM_LINTS); do \
	  echo "cargo clippy for $$flavour"; \
	  node pkg/scripts/cargo.mjs $$flavour clippy --all-targets -- -D warnings || exit; \
	done
	$(BIN)/biome ci
	$(BIN)/tsc --project pkg

format: tools
	cargo fmt --all
	$(BIN)/biome check --write

clean:
	rm -rf target pkg/dist docs/.site
