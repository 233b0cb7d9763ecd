/**
 * Writes the figures of the documents from the reports in benches/results. In a Markdown file, what stands between
 * `<!-- figures:NAME -->` and `<!-- /figures -->` is replaced by the result of the function NAME below.
 *
 *     node docs/scripts/figures.mjs            writes them
 *     node docs/scripts/figures.mjs --check    exits with 1 where one is out of date
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { median } from "../../benches/median.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));
const results = path.join(root, "benches", "results");
export const documents = [
  "README.md",
  "docs/performance.md",
  ...["operating", "machine", "batch", "quality"].map((name) => `docs/guide/${name}.md`),
];

/** Processors by the names that people know. */
const GENERATIONS = { "family 25, model 17": "Zen 4", "family 26, model 2": "Zen 5" };
const named = (text) => Object.entries(GENERATIONS).reduce((all, [id, name]) => all.replaceAll(id, name), text);

/** The newest report of a row; null where there is none. */
function newest(row) {
  const name = readdirSync(results).findLast(
    (file) => /^\d{4}-\d\d-\d\d-/.test(file) && file.slice(11) === `${row}.json`,
  );
  return name ? JSON.parse(named(readFileSync(path.join(results, name), "utf8"))) : null;
}

function report(row) {
  const found = newest(row);
  if (!found) throw new Error(`benches/results has no report of ${row}`);
  return found;
}

/** A figure whose measurement wants a machine of its own: until its report is there, the command stands in its place. */
function measured(row, command, show) {
  const found = newest(row);
  return found ? show(found) : `Not measured yet: \`${command}\`.`;
}

/** The first table after a text in a document of benches/results, for figures whose tools print no JSON. */
function tableAfter(name, words) {
  const text = readFileSync(path.join(results, name), "utf8");
  const at = text.indexOf(words);
  const [table] = (at >= 0 && /^\|.*\|\n(?:\|.*\|\n)+/m.exec(text.slice(at))) || [];
  if (!table) throw new Error(`benches/results/${name} has no table after ${JSON.stringify(words)}`);
  return table.trim();
}

const one = (value) => (value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en"));
const percent = (share) => `${Math.round(100 * share)} %`;
const range = ({ median, least, most }) =>
  least === most ? one(median) : `${one(median)} (${one(least)}–${one(most)})`;
const table = (head, rows) =>
  [head, head.map((_, i) => (i < 2 ? "---" : "--:")), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");

/** The rows in the order of the table, and what is special in each. */
const rows = {
  "b2b-chromium": "",
  "b2b-firefox": "",
  "b2b-webkit": "strict SIMD",
  b2b: "",
  "b2b-512": "prompt 512",
  "b2b-1thread": "one thread",
  "b2b-simd128": "prompt 32, `--flavour simd128`",
  "b2b-batch4": "4 conversations, prompt 16 each; all together",
  "b2b-batch16": "16 conversations, prompt 16 each",
  "b2b-ctx512-f16": "prompt 16 behind 512 tokens, `--kv f16`",
  "b2b-ctx512-q8": "prompt 16 behind 512 tokens, `--kv q8`",
  "b2b-ctx4096-f16": "prompt 16 behind 4,096 tokens, `--kv f16`; one run",
  "b2b-ctx4096-q8": "prompt 16 behind 4,096 tokens, `--kv q8`; one run",
  "b2b-q1_0": "`--type q1_0`",
  "2b4t": "",
  "138m-q1_0-chromium": "",
  "138m-q1_0": "",
  "135m-chromium": "",
  "135m": "",
  "fairy-chromium": "prompt 64, decode 128",
  fairy: "prompt 64, decode 128",
};

/** The rows of hybrids. */
const hybridRows = {
  "hybrid-4b": "Qwen3.5 4B: Q4_K, int14",
  "hybrid-4b-512": "the same, prompt 512",
  "hybrid-4b-1thread": "the same, prompt 32",
  "hybrid-4b-int8": "4B in Q4_K, int8",
  "hybrid-4b-q1_0": "4B in Q1_0, int8",
  "hybrid-27b": "Bonsai 27B: Q1_0, int8",
  "hybrid-27b-1thread": "the same",
  "hybrid-27b-ternary": "Ternary-Bonsai 27B: PQ2_0, int8, two memories",
  "hybrid-27b-ternary-1thread": "the same",
};
const DELTA_NET = ["convolve", "recur"];
const MATRICES = ["qkv", "output", "gate_up", "down", "head"];

export const figures = {
  readme() {
    const { prefill, decode, engine, model, machine } = report("b2b-chromium");
    const { cpu, cores } = report("b2b").machine;
    const size = (model.parameters / 1e9).toFixed(1);
    return `${one(decode.tokensPerSecond.median)} tokens/s decode and ${one(prefill.tokensPerSecond.median)} tokens/s prefill: a ternary model of ${size} billion parameters in ${machine.runtime}, ${engine.threads} threads on ${cores} cores of an ${name(cpu)} (AVX-512), while the page renders nothing; one that shows each piece [takes a core at times](docs/guide/threads.md#when-there-are-threads). Repeat it, without a download, with \`npx ternlight bench --shape b2b --threads 2\` in Node, or with \`bench.html\` of \`make demo\` in a browser.`;
  },

  machine() {
    const { cpu, cores, runtime } = report("b2b").machine;
    const browser = report("b2b-chromium").machine.runtime;
    return `${cores} cores of an ${name(cpu)} (a server with AVX-512 and VNNI), ${runtime} and ${browser}. Unless a row says otherwise: two threads, a prompt of 128 tokens, 32 tokens after it, f32 keys and values.`;
  },

  rows() {
    const lines = Object.entries(rows).map(([row, special]) => {
      const { prefill, decode, ratios } = report(row);
      const { p50, p99 } = decode.stepMs;
      return [
        row,
        special,
        range(prefill.tokensPerSecond),
        range(decode.tokensPerSecond),
        `${p50.toFixed(2)}, ${p99.toFixed(2)}`,
        percent(ratios.decodeToRead),
        percent(ratios.prefillToMultiply),
      ];
    });
    const head = [
      "Row",
      "",
      "Prefill, tokens/s",
      "Decode, tokens/s",
      "A step, p50 and p99, ms",
      "Decode ÷ read",
      "Prefill ÷ multiply",
    ];
    return table(head, lines);
  },

  hybrids: () =>
    measured("hybrid-4b", "node benches/rows.mjs hybrid", ({ machine }) => {
      const lines = Object.entries(hybridRows).flatMap(([row, special]) => {
        const found = newest(row);
        if (!found) return [];
        const { prefill, decode, ratios, engine, profile } = found;
        const share = (passes) => {
          const own = passes.filter(({ operation }) => DELTA_NET.includes(operation));
          return more(own.reduce((sum, { share }) => sum + share, 0));
        };
        const matrices = profile.decode.filter(({ operation }) => MATRICES.includes(operation));
        const [products, ms] = [({ gmacPerSecond, ms }) => gmacPerSecond * ms, ({ ms }) => ms].map((of) =>
          matrices.reduce((sum, row) => sum + of(row), 0),
        );
        return [
          [
            special,
            `${engine.threads}`,
            range(prefill.tokensPerSecond),
            range(decode.tokensPerSecond),
            percent(ratios.decodeToRead),
            one(products / ms),
            share(profile.prefill),
            share(profile.decode),
          ],
        ];
      });
      const head = [
        "Shape and types",
        "threads",
        "prefill, tokens/s",
        "decode, tokens/s",
        "decode ÷ read",
        "decode, 10⁹ products a second",
        "delta nets' own part of prefill",
        "of decode",
      ];
      return `Node 24, ${on(machine)} (\`node benches/rows.mjs hybrid\`); the own part of the gated delta nets is their convolution and recurrence, beside the matrices:\n\n${table(head, lines)}`;
    }),

  hybrid_load: () =>
    measured("hybrid-load", "node benches/hybrid.mjs load", ({ machine, shape, threads, prompt, runs }) => {
      const warm = runs.slice(1);
      const of = (key) => median(warm.map((run) => run[key]));
      const [load, first] = [of("loaded"), of("first")].map((ms) => (ms / 1000).toFixed(1));
      const [most, total] = [of("most"), of("total")].map((bytes) => (bytes / 1e9).toFixed(2));
      return `A file of the shape \`${shape}\` (3.84 GB with a vocabulary of 248,320) that the system has in its cache is loaded in ${load} s, and the first token behind a prompt of ${prompt} tokens is there ${first} s after the call; the process had ${most} GB at most, of which the model is said to take ${total} (${threads} threads, ${on(machine)}, medians of ${warm.length} processes, ${warm.map((run) => (run.first / 1000).toFixed(1)).join(" and ")} s to the first token: \`node benches/hybrid.mjs load\`).`;
    }),

  hybrid_page: () =>
    measured("hybrid-page", "node benches/hybrid.mjs page", ({ machine, visits }) => {
      const lines = visits.map(({ name, loaded, first, held }, i) => [
        ["first", "second"][i],
        name,
        (loaded / 1000).toFixed(1),
        (first / 1000).toFixed(1),
        String(Math.max(0, ...held.map(([, ms]) => ms))),
      ]);
      const head = [
        "Visit",
        "the file comes",
        "loaded after, s",
        "first piece of an answer after, s",
        "page held at most, ms",
      ];
      return `The same file in Chromium, from a server on loopback that shares the two cores, ${on(machine)} (\`node benches/hybrid.mjs page\`):\n\n${table(head, lines)}`;
    }),

  hybrid_costs: () =>
    measured("hybrid-crossing", "node benches/hybrid.mjs crossing", ({ machine, parts, crossingMs }) => {
      const whole = report("hybrid-27b");
      const step = 1000 / whole.decode.tokensPerSecond.median;
      const rotation = report("hybrid-rotation");
      const guesses = report("hybrid-mtp");
      const learned = report("hybrid-mtp-model");
      if (learned.rows > learned.steps) throw new Error("the small model is said to guess nothing");
      return [
        `${on(machine)}, two threads:`,
        "",
        `- A crossing between two memories takes ${(1000 * crossingMs).toFixed(0)} µs with rows of 5,120 values (${parts} memories against one, by turns; \`node benches/hybrid.mjs crossing\`): a step of the 27B shape in two memories crosses twice, in ${((200 * crossingMs) / step).toFixed(2)} % of the time that it takes on ${on(whole.machine)}.`,
        `- With inputs rotated in blocks of 1,024, a step of layers of the 27B shape takes ${(100 * rotation.share).toFixed(1)} ± ${(100 * rotation.deviation).toFixed(1)} % more, by ${rotation.loads.length} loads with it and without on ${on(rotation.machine)} (\`node benches/hybrid.mjs rotation\`); the transform alone is 0.4 % of it ([results](../benches/results/hybrids.md#rotation)).`,
        `- With a head for further tokens an answer is ${guesses.allRight.ratio.toFixed(2)} times as fast as without guesses where all of them are right (ternary weights) and ${guesses.ratio.toFixed(2)} times where none is (Q4_K), since guessing rests soon (16 layers of the 4B shape on ${on(guesses.machine)}, \`node benches/hybrid.mjs mtp\`). Where the head's own work and a second row take as long as the step that a right guess saves, nothing is guessed, as in a small model that \`benches/mtp_model.py\` has trained (the same with MODEL).`,
      ].join("\n");
    }),

  peers: () => tableAfter("peers.md", "## Side by side on"),

  loads() {
    const runtimes = ["node", "chromium"].map((runtime) => report(`loads-${runtime}`));
    const [{ size, result }] = runtimes;
    const speed = ({ result, size }, name) => String(Math.round(size / result[name].median / 1e3));
    const lines = Object.keys(result)
      .filter((name) => name !== "hash")
      .map((name) => [name.replaceAll('"', "`"), "", ...runtimes.map((one) => speed(one, name))]);
    const times = [
      "demo model from the cache, `load()` to first token",
      "ms",
      ...runtimes.map(({ first }) => String(Math.round(first.first))),
    ];
    return table([`A file of ${Math.round(size / 1e6)} MB, MB/s`, "", "Node 24", "Chromium 156"], [...lines, times]);
  },

  peaks: () => tableAfter("loads.md", "## Memory of a load"),

  crowd() {
    const { clients, seconds, answers, wrong, tokensPerSecond, firstPieceMs, shortFirstPieceMs, gapMs, memory } =
      report("crowd-600s");
    const ms = ({ p50, p95, p99 }) => [p50, p95, p99].map((value) => Math.round(value)).join(", ");
    const [begin, end] = memory.wasmBytes.map((bytes) => (bytes / 1e6).toFixed(1));
    return `A load test of ${Math.round(seconds)} s with ${clients} clients on the demo model (\`npx ternlight loadtest ternlight-demo --seconds 600\`): ${answers.whole.toLocaleString("en")} whole answers and ${answers.brokenOff.toLocaleString("en")} broken off, ${wrong} of which differ from what their prompt gets alone; ${Math.round(tokensPerSecond).toLocaleString("en")} tokens/s together; first pieces after ${ms(firstPieceMs)} ms (p50, p95, p99), of short prompts after ${ms(shortFirstPieceMs)} ms; gaps of ${gapMs.p95.toFixed(1)} ms at p95 and ${Math.round(gapMs.most)} ms at most; the engine's memory is ${begin} MB after a tenth of the time and ${end} MB at the end.`;
  },

  executables: () =>
    measured("executables", "node benches/executables.mjs", ({ machine, bytes, firstMs }) => {
      const ms = (name, { [name]: runs } = {}) => (runs ? String(Math.round(median(runs))) : "");
      const lines = Object.keys(firstMs.cached).map((name) => [
        name,
        bytes[name] ? `${Math.round(bytes[name] / 1e6)} MB` : "",
        ms(name, firstMs.cached),
        ms(name, firstMs.dropped ?? undefined),
      ]);
      const head = ["Program", "", "first token, ms", "files not in the system's cache, ms"];
      return `From the start of a process to the first byte of an answer of the demo model, medians, ${on(machine)} (\`node benches/executables.mjs\`):\n\n${table(head, lines)}`;
    }),

  machine_settings: () =>
    measured("machine", "node benches/machine.mjs --system", ({ machine, settings, absent, runs }) => {
      const lines = Object.entries(runs).map(([name, all]) => {
        const of = (value) => median(all.map(value));
        const against = median(all.map((run, i) => run.p99 / runs.plain[i].p99));
        const [p50, p99] = [of((run) => run.p50), of((run) => run.p99)].map((ms) => ms.toFixed(2));
        const ratio = of((run) => run.jitter / run.p50).toFixed(2);
        return [
          name,
          all[0].threads === 1 ? "1 thread" : `${all[0].threads} threads`,
          one(of((run) => run.tokensPerSecond)),
          p50,
          p99,
          ratio,
          against.toFixed(2),
        ];
      });
      const head = ["", "", "tokens/s", "step p50, ms", "p99, ms", "jitter ÷ p50", "p99 ÷ plain"];
      const missing = Object.entries(absent).map(([name, why]) => `- ${name}: ${why}`);
      const rest = missing.length > 0 ? `\n\nNot to be had there:\n\n${missing.join("\n")}` : "";
      return `\`node benches/machine.mjs --shape ${settings.shape} --repeat ${settings.repeat} --decode ${settings.decode}${settings.system ? " --system" : ""}\`, ${on(machine)}, medians:\n\n${table(head, lines)}${rest}`;
    }),

  scheduling: () =>
    measured("scheduling", "node benches/scheduling.mjs", ({ machine, settings, rows }) => {
      const line = (name, about, runs) => {
        const of = (value) => one(median(runs.map(value)));
        const times = ["firstMs", "wholeMs"].map((time) => of((row) => row[time].p95));
        return [name, about, of((row) => row.servedPerSecond), of((row) => row.tokensPerSecond), ...times];
      };
      const batching = Object.entries(rows.batching).map(([name, runs]) => line(name, "", runs));
      const tiers = Object.entries(rows.tiers).flatMap(([order, runs]) =>
        Object.entries(settings.tiers).map(([tier, { promptTokens, maxTokens }]) =>
          line(
            order,
            `${tier}: ${promptTokens} and ${maxTokens} tokens`,
            runs.map((row) => row[tier]),
          ),
        ),
      );
      const head = ["Order", "", "requests/s", "tokens/s", "first token p95, ms", "whole p95, ms"];
      return `${settings.users} users with prompts of ${settings.promptTokens} tokens and answers of 16 to 112 on ${settings.places} places of the demo model, and ${settings.tierUsers} users for each of three lengths on 8 places; ${settings.threads} threads, ${on(machine)}, medians (\`node benches/scheduling.mjs\`):\n\n${table(head, [...batching, ...tiers])}`;
    }),

  servers: () =>
    measured("servers", "LLAMA_SERVER=… node benches/servers.mjs", ({ machine, settings, model, rows }) => {
      const lines = Object.entries(rows).flatMap(([name, byUsers]) =>
        Object.entries(byUsers).map(([users, runs]) => {
          const of = (value) => one(median(runs.map(value)));
          const times = [(row) => row.firstMs.p50, (row) => row.firstMs.p95, (row) => row.wholeMs.p95].map(of);
          return [
            name,
            `${users} ${users === "1" ? "user" : "users"}`,
            of((row) => row.servedPerSecond),
            of((row) => row.tokensPerSecond),
            ...times,
          ];
        }),
      );
      const head = ["Server", "", "requests/s", "tokens/s", "first token p50, ms", "p95, ms", "whole p95, ms"];
      return `${model} behind each server in the same run, ${settings.threads} threads, ${settings.places} places, prompts of ${settings.promptTokens} words and answers of ${settings.maxTokens} tokens; ${on(machine)}, medians (\`node benches/servers.mjs\`):\n\n${table(head, lines)}`;
    }),

  batch_overhead: () =>
    measured("batch-overhead", "node benches/batch.mjs overhead", ({ machine, result }) => {
      const { lines, tokens, chunk, alone, batch, overhead, cpu } = result;
      const of = (runs) => median(runs.map(({ answered }) => answered)).toFixed(2);
      return `${lines} lines of ${tokens} tokens in chunks of ${chunk} take ${of(batch)} s, and ${of(alone)} s from the engine alone, on one thread: ${more(overhead)} more time and ${more(cpu)} more processor time, medians of ${batch.length} turns (\`node benches/batch.mjs overhead\`, ${on(machine)}).`;
    }),

  batch_beside: () =>
    measured("batch-beside", "node benches/batch.mjs beside", ({ machine, result }) => {
      const { lines, tokens, linesPerSecond } = result;
      const line = (name, { one: whole, two }) => [
        name,
        "",
        one(median(whole)),
        one(median(two)),
        median(two.map((rate, turn) => rate / whole[turn])).toFixed(2),
      ];
      const lanes = [
        line("one process, `--workers`", linesPerSecond.command),
        line("processes on a queue in Redis", linesPerSecond.queue),
      ];
      const head = ["", "", "one worker, two threads: lines/s", "two workers, one thread each", "ratio"];
      return `${lines.toLocaleString("en")} lines of ${tokens} tokens by the demo model, ${on(machine)}, medians of ${linesPerSecond.queue.one.length} turns (\`node benches/batch.mjs beside\`):\n\n${table(head, lanes)}`;
    }),

  batch_workers: () =>
    measured("batch-workers", "node benches/batch.mjs workers", ({ machine, result }) => {
      const counts = [...new Set(result.table.map(({ workers }) => workers))];
      const lines = [...new Set(result.table.map(({ broker }) => broker))].map((kind) => [
        PLACES[kind],
        "",
        ...result.table
          .filter(({ broker }) => broker === kind)
          .map(({ efficiency }) => `${(100 * efficiency).toFixed(1)} %`),
      ]);
      const head = [
        "Queue and place of answers",
        "",
        ...counts.map((count) => (count === 1 ? "1 worker" : `${count} workers`)),
      ];
      return `Efficiency: the time that the engines alone would take, with ${result.places} places of which each takes ${result.ms}, ${2 * result.ms} or ${3 * result.ms} ms a line, against the time from the first chunk that is added to the last answer that is collected; all processes and the broker on ${on(machine)} (\`node benches/batch.mjs workers\`).\n\n${table(head, lines)}`;
    }),

  batch_million: () =>
    measured("batch-million", "node benches/batch.mjs million", ({ machine, result }) => {
      const lines = result.table.map(({ broker, lines, submitted, added, collected, brokerBytes, keptBytes }) => [
        PLACES[broker],
        "",
        ...[submitted, added, collected].map(({ seconds }) => Math.round(lines / seconds).toLocaleString("en")),
        ...[Math.max(submitted.peakRss, added.peakRss, collected.peakRss), brokerBytes, keptBytes].map(megabytes),
      ]);
      const [{ lines: count }] = result.table;
      const head = [
        "Queue and place of answers",
        "",
        "submitted, lines/s",
        "added to the queue",
        "answered and collected",
        "memory of who does so, MB",
        "all in the queue, MB",
        "in the broker at the end, MB",
      ];
      return `${count.toLocaleString("en")} lines in chunks of ${result.chunk}, with two workers whose engine takes no time; submitting and collecting are processes with a heap of ${result.heapMb} MB, whose peak of resident memory is shown. PostgreSQL's figures are the size of its database (\`node benches/batch.mjs million\`, ${on(machine)}).\n\n${table(head, lines)}`;
    }),

  batch_paper() {
    const [beside, million] = ["batch-beside", "batch-million"].map(newest);
    if (!beside || !million)
      return "Not measured yet: `node benches/batch.mjs beside` and `node benches/batch.mjs million`.";
    const { tokens, linesPerSecond } = beside.result;
    const each = median(linesPerSecond.queue.two);
    const all = MACHINES * each;
    const days = BILLION / all / 86_400;
    const rows = Object.fromEntries(million.result.table.map((row) => [row.broker, row]));
    const rate = ({ lines, collected }) => lines / collected.seconds;
    const waiting = ({ brokerBytes, chunks }) => brokerBytes / chunks;
    const chunks = BILLION / million.result.chunk;
    const redis = rows.redis;
    const lines = [
      `Machines of ${on(beside.machine)} answer ${one(each)} lines/s of ${tokens} tokens each by the demo model; ${MACHINES} of them ${Math.round(all).toLocaleString("en")} lines/s, a billion lines in ${days.toFixed(1)} days, ${Math.round(all / million.result.chunk)} chunks/s. A model that is a hundred times slower takes a hundred times as long, and asks a hundredth of all that follows.`,
      `The collector, with the broker and two workers on ${on(million.machine)}, passes ${Object.entries(rows)
        .map(([kind, row]) => `${Math.round(rate(row)).toLocaleString("en")} lines/s with ${PLACES[kind]}`)
        .join(", ")}: as many as ${Object.values(rows)
        .map((row) => Math.round(rate(row) / each))
        .join(
          ", ",
        )} such machines answer. ${Math.min(...Object.values(rows).map(rate)) < all ? "That breaks first, where lines are as short as these" : "That suffices"}: split the lines into several jobs, which are collected side by side.`,
      `Submitting a billion lines takes ${Object.entries(rows)
        .map(
          ([kind, { lines, submitted }]) =>
            `${((BILLION * submitted.seconds) / lines / 3600).toFixed(1)} h with ${PLACES[kind]}`,
        )
        .join(", ")}.`,
      `The broker: a chunk that waits takes ${Object.entries(rows)
        .map(([kind, row]) => `${(waiting(row) / 1e3).toFixed(1)} kB with ${PLACES[kind]}`)
        .join(
          ", ",
        )}. At most 4096 wait for a job that is collected, ${megabytes(4096 * waiting(redis))} MB in Redis for a job of any size; with \`--detach\` all ${(chunks / 1e6).toFixed(0)} million do, ${((chunks * waiting(redis)) / 1e9).toFixed(0)} GB.`,
    ];
    return lines.map((line) => `- ${line}`).join("\n");
  },

  gaps: () => tableAfter("server.md", "## Beside a long prompt"),

  advice: () =>
    measured("advice", "node benches/advice.mjs", ({ machine, duration, results }) => {
      const off = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(0)} %`;
      const lines = results.map(({ shape, load, predicted, sweep, chosen, best, errors }) => {
        const own = sweep.find(({ size }) => size === chosen);
        const fastest = sweep.reduce((most, one) => (one.tokensPerSecond > most.tokensPerSecond ? one : most)).size;
        return [
          shape,
          `${load.users} × ${load.promptTokens} + ${load.answerTokens}`,
          `${one(predicted.tokensPerSecond)} → ${one(own.tokensPerSecond)} (${off(errors.tokens)})`,
          `${one(predicted.answerMs.p95)} → ${one(own.p95Ms)} (${off(errors.p95)})`,
          String(chosen),
          String(best),
          String(fastest),
        ];
      });
      const head = [
        "Model",
        "users × prompt + answer",
        "tokens/s",
        "p95, ms",
        "at once",
        "fewest with 97 % of the best speed",
        "fastest",
      ];
      return `Predicted → measured by a load test of ${duration} s with the recommended settings; how many requests at once were recommended, and of a sweep over all that were considered the fewest with 97 % of the best tokens/s and those with the most; ${on(machine)} (\`node benches/advice.mjs --seconds ${duration}\`):\n\n${table(head, lines)}`;
    }),

  prefault: () =>
    measured("prefault", "node benches/prefault.mjs", ({ machine, settings, runs }) => {
      const lines = Object.entries(runs).map(([name, all]) => {
        const of = (key) => median(all.map((run) => run[key]));
        const [load, faults] = [String(Math.round(of("loadMs"))), of("perToken").toFixed(2)];
        return [name, "", load, faults, of("longest").toFixed(1), String(Math.round(of("memoryBytes") / 1e6))];
      });
      const head = ["", "", "load, ms", "page faults a token", "longest gap, ms", "memory, MB"];
      return `\`${settings.shape}\`, ${settings.answers} answers of ${settings.answerTokens} tokens to prompts of ${settings.promptTokens}, ${settings.threads} threads, ${on(machine)}, medians by turns (\`node benches/prefault.mjs\`):\n\n${table(head, lines)}`;
    }),

  health: () =>
    measured("health", "node benches/health.mjs", ({ machine, settings, rows }) => {
      const lines = Object.entries(rows).map(([name, { runs, more, deviation }]) => {
        const share = `${(100 * more).toFixed(2)} % ± ${(100 * deviation).toFixed(2)} %`;
        return [name, "", median(runs.off).toFixed(3), median(runs.on).toFixed(3), String(runs.on.length), share];
      });
      const head = ["Model", "", "a step, ms", "with `health`, ms", "pairs", "more"];
      return `${settings.threads} threads, ${on(machine)}: medians of steps, and the mean of the pairs' ratios without the outermost tenth with its deviation (\`node benches/health.mjs\`):\n\n${table(head, lines)}`;
    }),

  settings: () =>
    ["demo", "smollm2"]
      .map((model) =>
        measured(`settings-${model}`, benchOf("settings", model), ({ machine, command, rows }) => {
          const lines = rows.map((row) => [
            row.pareto ? "★" : "",
            row.kv,
            `${row.perplexity.toFixed(3)}, ${row.interval.map((end) => end.toFixed(1)).join("–")}`,
            row.kl.toFixed(5),
            `${(100 * row.sameWinner).toFixed(1)} %`,
            one(row.promptPerSecond),
            one(row.predictedPerSecond),
            (row.memory / 1e6).toFixed(1),
          ]);
          const head = ["", "kv", "perplexity, 95 %", "KL, nats", "same winner", "prompt/s", "tokens/s", "memory, MB"];
          const picture = `![${names[model]}: perplexity over memory by setting](../images/settings-${model}.svg)`;
          return `${names[model]}, \`${command}\`, ${on(machine)}:\n\n${table(head, lines)}\n\n${picture}`;
        }),
      )
      .join("\n\n"),

  slice: () =>
    measured("slice", "node benches/slice.mjs --shape b2b --vocab 128256,32768", ({ machine, settings, rows }) => {
      const megabytes = (bytes) => one(bytes / 1e6);
      const lines = rows.map(({ vocab, tokensPerSecond, headShare, headBytes, memory }) => [
        vocab.toLocaleString("en"),
        "",
        range(spread(tokensPerSecond)),
        (1000 / median(tokensPerSecond)).toFixed(1),
        more(headShare),
        ...[headBytes, memory.weights, memory.total].map(megabytes),
      ]);
      const [whole, small] = rows.map(({ tokensPerSecond }) => median(tokensPerSecond));
      const head = [
        "Tokens",
        "",
        "tokens/s",
        "ms a token",
        "the head's share",
        "head, MB",
        "weights, MB",
        "memory, MB",
      ];
      const { shape, threads, repeat, decode } = settings;
      return `Speed and memory at the size of BitNet 2B (\`node benches/slice.mjs --shape ${shape}\`; ${threads} threads, ${decode} tokens, median of ${repeat} by turns, ${on(machine)}); ${(100 * (1 - whole / small)).toFixed(1)} % of a token's time is saved:\n\n${table(head, lines)}`;
    }),

  prune: () =>
    ["demo", "smollm2"]
      .map((model) =>
        measured(`prune-${model}`, benchOf("prune", model), ({ machine, settings, rows }) => {
          const [whole] = rows;
          const share = ({ ms, wholeMs }) => median(ms.map((one, i) => one / wholeMs[i]));
          const off = (share, layers) => `${(100 * (share / (layers / whole.layers) - 1)).toFixed(1)} %`;
          const lines = rows.map((row) => [
            String(row.layers),
            "",
            row.perplexity < 1000 ? row.perplexity.toFixed(2) : short(row.perplexity),
            row.random.length > 0 ? short(mean(row.random)) : "",
            row.random.length > 0 ? short(Math.exp(mean(row.random.map(Math.log)))) : "",
            (row.bytes / 1e6).toFixed(2),
            off(row.bytes / whole.bytes, row.layers),
            median(row.ms).toFixed(3),
            off(share(row), row.layers),
          ]);
          const head = [
            "Layers",
            "",
            "perplexity",
            "by chance",
            "by logarithms",
            "their MB",
            "off their share",
            "their ms",
            "off their share",
          ];
          const { by, tokens, random, repeat } = settings;
          const chance = `the mean of ${random} random choices, and that of their logarithms`;
          return `${names[model]}, by \`${by}\`, on ${tokens} held-out tokens, beside ${chance}; bytes of the layers' tensors and time of their operations in a token (median of ${repeat}, each beside one of the whole model), and how far both are from the share of layers; ${on(machine)}:\n\n${table(head, lines)}`;
        }),
      )
      .join("\n\n"),
};

const mean = (all) => all.reduce((sum, value) => sum + value, 0) / all.length;
const names = { demo: "The demo model", smollm2: "SmolLM2-135M-Instruct Q4_1" };

/** How a bench is run over one of these models; benches/results/README.md has the whole lines. */
const benchOf = (bench, model) => `node benches/${bench}.mjs … --name ${model}`;

const spread = (runs) => ({ median: median(runs), least: Math.min(...runs), most: Math.max(...runs) });

/** Perplexities from some tens to millions. */
const short = (value) =>
  value < 1000 ? value.toFixed(2) : value < 1e6 ? Math.round(value).toLocaleString("en") : value.toExponential(1);

/** Brokers as benches/batch.mjs calls them. */
const PLACES = { redis: "Redis and a folder", postgres: "PostgreSQL and a folder", database: "PostgreSQL alone" };
/** The paper on which batches are reckoned. */
const [MACHINES, BILLION] = [100, 1e9];

const more = (share) => `${(100 * share).toFixed(1)} %`;
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** A machine in words. */
const on = ({ cpu, cores }) => `${cores} cores of an ${name(cpu)}`;

/** Processors as people write them. */
const name = (cpu) => cpu.replaceAll("(R)", "").replace(" Processor", "");

/** A document with its figures as the reports have them. */
export function filled(document) {
  return document.replace(/(<!-- figures:(\w+) -->\n)[\s\S]*?(<!-- \/figures -->)/g, (_, begin, figure, end) => {
    if (!figures[figure]) throw new Error(`no figure is named ${figure}`);
    return `${begin}\n${figures[figure]()}\n\n${end}`;
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const check = process.argv.includes("--check");
  for (const name of documents) {
    const file = path.join(root, name);
    const before = readFileSync(file, "utf8");
    const after = filled(before);
    if (before === after) continue;
    if (check) {
      console.error(`${name}: figures are out of date: node docs/scripts/figures.mjs writes them`);
      process.exitCode = 1;
    } else writeFileSync(file, after);
  }
}
