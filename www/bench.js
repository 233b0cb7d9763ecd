/**
 * The benchmark as a page: the same code and the same JSON as `ternlight bench`. What the form holds may stand in the
 * address, and `run` there begins at once: `bench.html?shape=2b4t&repeat=3&run`.
 */
import { fill, tag } from "./facts.js";
import { size } from "./format.js";
import { heatMaps } from "./heat.js";

const $ = (id) => document.getElementById(id);
const form = $("bench");
const { elements } = form;
const numbers = ["prompt", "decode", "batch", "ctx", "repeat"];
/** Options of `load` that the model or a measurement decides where the form leaves them open. */
const kernels = ["flavour", "activations", "dotProduct", "weightPrefetch"];

const { bench, DEFAULTS, shapes, synthetic } = await import("./ternlight/dist/bench.js");
const demo = new URL("./ternlight/models/ternlight-demo/", import.meta.url).href;

let report = null;
/** What the report is of, as its file is called. */
let kind = "bench";
let abort = null;

function setState(state, words) {
  document.documentElement.dataset.state = state;
  $("status").textContent = words;
  $("stop").disabled = state !== "running";
  for (const button of [form.querySelector("[type=submit]"), $("device")]) button.disabled = state === "running";
  $("save").disabled = !report;
}

function fromAddress() {
  const asked = new URLSearchParams(location.search);
  elements.shape.append(...Object.keys(shapes).map((name) => new Option(name)));
  for (const name of numbers) elements[name].value = DEFAULTS[name];
  for (const [name, value] of asked) {
    if (elements[name]?.type === "checkbox") elements[name].checked = value !== "0";
    else if (elements[name]) elements[name].value = value;
  }
  setState("ready", "Ready");
  if (asked.has("run")) form.requestSubmit();
}

/** Measures until there is a report, or a problem to show. */
async function measure(name, work) {
  abort = new AbortController();
  [report, kind] = [null, name];
  $("problem").hidden = true;
  for (const id of ["profile", "trace", "json"]) $(id).hidden = true;
  setState("running", "Loading");
  try {
    report = await work();
    $("json").hidden = false;
    $("json").querySelector("pre").textContent = JSON.stringify(report, null, 2);
    setState("done", "Done");
  } catch (error) {
    if (abort.signal.aborted) return setState("ready", "Stopped");
    $("problem").hidden = false;
    $("problem").querySelector("p").textContent = `${error.code ?? error.name}: ${error.message}`;
    setState("failed", "");
  }
}

const run = () =>
  measure("bench", async () => {
    const [shape, type] = [elements.shape.value, elements.type.value.trim()];
    const words = { shape, ...(type ? { type } : {}) };
    const given = (name) => elements[name].value !== "";
    const options = Object.fromEntries(numbers.filter(given).map((name) => [name, elements[name].valueAsNumber]));
    const found = await bench({
      source: shape ? synthetic(words) : demo,
      name: shape ? Object.values(words).join(" ") : "ternlight-demo",
      options: { ...options, profile: elements.profile.checked, trace: elements.trace.checked },
      load: {
        signal: abort.signal,
        ...(given("threads") ? { threads: elements.threads.valueAsNumber } : {}),
        ...Object.fromEntries(kernels.filter(given).map((name) => [name, elements[name].value])),
      },
      onNote: (note) => setState("running", note[0].toUpperCase() + note.slice(1)),
    });
    show(found);
    return found;
  });

/** What this machine reads and multiplies, as `ternlight device-report` tells it. */
const device = () =>
  measure("device", async () => {
    const { deviceReport } = await import("./ternlight/dist/doctor.js");
    setState("running", "Measuring this device");
    const found = await deviceReport({ signal: abort.signal });
    fill($("results"), [
      ["Browser", found.runtime, `${found.cores} cores`],
      ["Engine", found.flavour, `${found.threads} threads`],
      ["Reads", `${one(found.readGbPerSecond)} GB/s`],
      ["Multiplies", `${one(found.gmacPerSecond)} GMAC/s`],
    ]);
    return found;
  });

const one = (value) => value.toFixed(value < 10 ? 2 : 1);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const speed = ({ median, least, most }) => [`${one(median)} tokens/s`, `${one(least)} to ${one(most)}`];

function show({ engine, model, machine, settings, prefill, decode, endToEnd, memory, roofline, ratios, ...parts }) {
  const { profile, trace } = parts;
  const { p50, p95, p99, jitter } = decode.stepMs;
  fill($("results"), [
    ["Model", model.name ?? model.source, `${size(model.weightBytes)} a step`],
    [
      "Engine",
      `${engine.flavour}, ${engine.dotProduct}`,
      `${engine.threads} threads, activations ${engine.activations}, cache ${engine.kvCacheType}`,
    ],
    ["Browser", machine.runtime, `${machine.cores} cores`],
    [`Prefill of ${settings.prompt}`, ...speed(prefill.tokensPerSecond)],
    [`Decode of ${settings.decode}`, ...speed(decode.tokensPerSecond)],
    ...(endToEnd ? [["End to end", ...speed(endToEnd.tokensPerSecond)]] : []),
    ["A step", `p50 ${one(p50)} ms`, `p95 ${one(p95)}, p99 ${one(p99)}, jitter ${one(jitter)} ms`],
    ["Decode reads", `${one(decode.gbPerSecond)} GB/s`, `${size(decode.bytesPerToken)} a token`],
    ["Prefill multiplies", `${one(prefill.gmacPerSecond)} GMAC/s`],
    ["Memory", size(memory.wasmBytes), `grown by ${memory.grownBytes} bytes`],
    ["Roofline", `${one(roofline.gbPerSecond)} GB/s`, `${one(roofline.gmacPerSecond)} GMAC/s`],
    ["Decode ÷ read", percent(ratios.decodeToRead), inside(ratios.decodeMatricesToRead)],
    ["Prefill ÷ multiply", percent(ratios.prefillToMultiply), inside(ratios.prefillMatricesToMultiply)],
  ]);
  $("profile").hidden = !profile;
  if (profile) $("tables").replaceChildren(...["prefill", "decode"].map((phase) => table(phase, profile[phase])));
  $("trace").hidden = !trace;
  if (trace) $("maps").replaceChildren(...heatMaps(trace), matrixTable(trace.matrices));
}

const inside = (share) => share !== null && `matrices alone ${percent(share)}`;

function table(phase, rows) {
  const cells = rows.map(({ operation, ms, share, calls, gbPerSecond, gmacPerSecond }) => {
    const rates = [gbPerSecond, gmacPerSecond].map((value) => (value > 0 ? one(value) : ""));
    return [operation, one(ms), percent(share), calls > 0 ? String(calls) : "", ...rates];
  });
  return tableOf(phase, ["operation", "ms", "share", "calls", "GB/s", "GMAC/s"], cells);
}

function matrixTable(rows) {
  const cells = rows.map(({ name, bytes, ms, gbPerSecond, readMs, unpackShare }) => {
    return [
      name,
      size(bytes),
      ms.toFixed(4),
      one(gbPerSecond),
      readMs.toFixed(4),
      unpackShare === null ? "" : percent(unpackShare),
    ];
  });
  return tableOf(
    "each matrix alone, with one token",
    ["", "bytes", "ms", "GB/s", "read alone, ms", "unpacking"],
    cells,
  );
}

function tableOf(caption, head, rows) {
  const element = document.createElement("table");
  const line = (cells, kind) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => tag(kind, cell)));
    return row;
  };
  element.append(tag("caption", caption), line(head, "th"), ...rows.map((cells) => line(cells, "td")));
  return element;
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(report, null, 2)], { type: "application/json" }));
  link.download = `ternlight-${kind}-${report.date.slice(0, 10)}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
$("device").addEventListener("click", device);
$("stop").addEventListener("click", () => abort.abort());
$("save").addEventListener("click", save);
fromAddress();
