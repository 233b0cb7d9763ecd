#!/usr/bin/env bash
# Fuzzes every parser for SOAK_SECONDS each (300), from seeds cut out of the golden files. Names of targets choose among them.
# A finding stays in fuzz/artifacts, and its target ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${SOAK_SECONDS:-300}
targets=${*:-gguf_header safetensors_header checkpoint blocks adapter}
golden=tests/golden corpus=fuzz/corpus

if ! rustup toolchain list | grep -q '^nightly'; then
  rustup toolchain install nightly --profile minimal
fi
command -v cargo-fuzz > /dev/null || cargo +stable install cargo-fuzz --locked

# seed TARGET NAME: keeps what comes in as a beginning for the fuzzer.
seed() {
  mkdir -p "$corpus/$1"
  cat > "$corpus/$1/$2"
}
# A model folder as the targets read it: its config, a zero, some bytes of its weights.
folder() {
  cat "$1/config.json"
  printf '\0'
  head -c "$2" "$1/model.safetensors"
}
# Small changes to small files find most.
small() {
  test "$(wc -c < "$1")" -lt 600000
}

for file in "$golden"/gguf/*.gguf; do
  name=$(basename "$file")
  head -c 65536 "$file" | seed gguf_header "$name"
  if small "$file"; then seed checkpoint "$name" < "$file"; fi
done
for file in "$golden"/models/*/model.safetensors; do
  directory=$(dirname "$file")
  folder "$directory" 16384 | seed safetensors_header "$(basename "$directory")"
  if small "$file"; then folder "$directory" 600000 | seed checkpoint "$(basename "$directory")"; fi
done
for directory in "$golden"/lora/*/; do
  { cat "$directory/adapter_config.json"; printf '\0'; cat "$directory/adapter_model.safetensors"; } |
    seed adapter "$(basename "$directory")"
done
seed adapter gguf < "$golden/lora/llama_f32.lora.gguf"
for id in 2 3 6 7 8 10 11 12 13 14 34 35 36 41 42 142 143; do
  { printf "\\x$(printf %x "$id")"; head -c 1024 "$golden/gguf/blocks.safetensors"; } | seed blocks "type-$id"
done

# Answers of servers, files of a cache, tokenizers, configurations, GGUF metadata and templates, of which `make test` does a few.
if [ $# = 0 ]; then
  HOSTILE_CASES=${SOAK_CASES:-50000} pkg/test/hosts/node_modules/node24/bin/node --test --test-concurrency=1 \
    pkg/test/source/hostile.test.ts pkg/test/text/fuzz.test.ts

  # Schedules of conversations, of which `make test` does eighteen.
  SCHEDULES=${SOAK_SCHEDULES:-600} cargo test --locked --release --features threads --test integration schedules

  # Mixed clients of a server, each of whose answers is compared, and the server's memory; a report for the record.
  SERVE_SECONDS=${SOAK_SERVE_SECONDS:-600} SERVE_REPORT=benches/results/$(date +%F)-crowd.json \
    pkg/test/hosts/node_modules/node24/bin/node --test pkg/test/server/crowd.test.ts

  # A long answer's memory.
  MEMORY_TOKENS=2000 pkg/test/hosts/node_modules/node24/bin/node --test pkg/test/api/memory.test.ts

  # Batches: a campaign of faults on both brokers, seven real workers on each, and ten million lines in a heap of 64 MB.
  scripts/setup.sh redis postgresql
  BATCH_FAULT_RUNS=${SOAK_FAULT_RUNS:-66} BATCH_FAULT_REPORT=benches/results/$(date -u +%F)-batch-faults.json \
    pkg/test/hosts/node_modules/node24/bin/node --test clients/batch/test/faults.test.mjs
  BATCH_ENGINE_BROKERS=redis,postgres,database BATCH_ENGINE_SEEDS=7 pkg/test/hosts/node_modules/node24/bin/node --test clients/batch/test/engine.test.mjs
  BATCH_LINES=${SOAK_LINES:-10000000} pkg/test/hosts/node_modules/node24/bin/node --test pkg/test/batch/output.test.ts
fi

for target in $targets; do
  echo "$target, for $seconds seconds"
  cargo +nightly fuzz run "$target" -- \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0
done
