# make demo    the demo page on loopback (PORT=8080, or the next free one); it says what it does meanwhile
# make quick   format, lints and the tests that a small change needs, in under 3 minutes; not the other wasm flavours,
#              threads, browsers, bundlers, other runtimes, golden and integration tests (scripts/quick.mjs lists them).
#              BASE=HEAD: what has changed since that commit
# make test    every test there is
# make conformance   clients and harnesses in Python against the server; installs about 1 GB in .cache/conformance
# make lint    format, clippy, biome, types, commit subjects
# make ok      both: what a change needs before it is done
# make build   the package, ready for `npm pack` in pkg/
# make executables   the command line as one file each, made by Bun and Deno, in target/executables;
#              Deno's wants the runtime denort, which it downloads and no registry has: DENORT_BIN names one that is there
# make profile   a package in target/profile whose functions have names, for profilers (docs/guide/profiling.md)
# make docs    the site of the documents in docs/.site, with the API and the demo page, for any static host
# make licences   licences of all that is shipped, and known vulnerabilities where a database of them is at hand
# make soak    fuzzing, SOAK_SECONDS (300) for each parser, and SOAK_SERVE_SECONDS (600) of mixed clients of a server,
#              and SOAK_FAULT_RUNS (64) batches with faults; wants a
#              nightly toolchain and fetches what is missing

SHELL := bash
PORT ?= 8080
BASE ?= HEAD
BIN := node_modules/.bin

.PHONY: demo build quick executables profile docs test conformance ok soak format lint licences tools clean

demo:
	@node scripts/demo.mjs $(PORT)

build: tools
	@node pkg/scripts/build.mjs

profile: tools
	@node pkg/scripts/build.mjs profile

executables: build
	@scripts/setup.sh hosts
	@node pkg/scripts/executables.mjs

# DOCS_BASE=/folder/ where the site will not lie at the top of its host.
docs: build
	@scripts/setup.sh docs hosts chromium
	@pkg/test/hosts/node_modules/node24/bin/node docs/scripts/site.mjs

tools:
	@scripts/setup.sh rust npm

quick:
	@node scripts/quick.mjs $(BASE)

test:
	@node scripts/check.mjs test

conformance: build
	@scripts/setup.sh hosts conformance
	@.cache/conformance/bin/python pkg/test/conformance/conformance.py pkg/test/hosts/node_modules/node24/bin/node pkg/dist/cli.js

lint:
	@node scripts/check.mjs lint

ok:
	@node scripts/check.mjs lint test

soak: build
	scripts/soak.sh

licences: tools
	@node pkg/scripts/licences.mjs

format: tools
	cargo fmt --all
	$(BIN)/biome check --write

clean:
	rm -rf target pkg/dist clients/*/dist docs/.site
