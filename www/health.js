/**
 * The health page: one model or server is watched at a time, and read once a second. What stands in the address is watched at once:
 * `health.html?model=demo`, `?model=URL`, `?server=http://127.0.0.1:8000`. A key never stands there.
 */
import { countOf, quantile } from "./exposition.js";
import { fill, tag } from "./facts.js";
import { decimal, duration, integer, percent, rate, size } from "./format.js";
import { History, RECENT } from "./history.js";
import { fromAddress, fromFiles } from "./models/chosen.js";
import { builtIn } from "./models/sources.js";
import { explain } from "./problems.js";
import { badge, showSignals, signalsOf, titleOf, worst } from "./states.js";
import { lacking } from "./support.js";
import { draw, newChart } from "./timeline.js";
import { passes, Server, TabModel } from "./watched.js";
import { Work } from "./work.js";

/** Between two readings, in milliseconds. */
const EVERY = 1000;

const $ = (id) => document.getElementById(id);
const root = document.documentElement;
const seconds = (value) => (value < 0.01 ? `${decimal(1000 * value)} ms` : duration(1000 * value));
const whole = (value) => (value === null ? "unknown" : integer(value));

/** What is drawn of the load: a name, how its figure is written, and the lines. */
const GAUGES = [
  { title: "Tokens a second", show: rate, lines: [["", "rate"]] },
  {
    title: "Requests",
    show: integer,
    lines: [
      ["running", "running"],
      ["waiting", "waiting"],
    ],
  },
  { title: "KV cache in use", show: percent, least: 0.01, lines: [["", "kv"]] },
  { title: "Memory", show: size, least: 1e6, lines: [["", "memory"]] },
  { title: "First token, p95 of 10 s", show: seconds, least: 0.001, lines: [["", "first"]] },
  { title: "Gap of tokens, p95 of 10 s", show: seconds, least: 0.001, lines: [["", "gap"]] },
];
const OLD = "What was read last is shown.";
const TIMES = {
  first_token: "First token",
  gap: "Gap between tokens",
  queue: "In the queue",
  request: "Whole request",
};

/** What is watched now; null where nothing is. */
let watched = null;
let histories = new Map();
let last = null;
const work = new Work($("work"), (error) => report(error));

/** @param state idle, loading, watching, unreachable or failed */
function setState(state, words) {
  root.dataset.state = state;
  $("status").textContent = words;
  $("end").disabled = state === "idle" || state === "failed";
}

function report(error) {
  const { title, advice } = typeof error.detail === "object" ? explain(error) : { title: error.message, advice: "" };
  $("problem").hidden = false;
  $("problem").querySelector("h2").textContent = title;
  $("problem").querySelector("p").textContent = [advice, title === error.message ? "" : error.message].join(" ").trim();
}

/** Ends what is under way or watched, of which nothing more is heard. */
let turn = new AbortController();

async function begin(words, open) {
  const { signal } = await end();
  if (signal.aborted) return;
  for (const part of ["problem", "watched", "known"]) $(part).hidden = true;
  setState("loading", words);
  try {
    const found = await open(signal, (said) => signal.aborted || setState("loading", said));
    if (signal.aborted) return found.end();
    watched = found;
    await follow(signal, found);
  } catch (error) {
    if (signal.aborted || (await end()).signal.aborted) return;
    report(error);
    setState("failed", "Nothing is watched.");
  }
}

/** What was read stays in sight, as what it is. @returns what ends whatever comes next */
async function end() {
  turn.abort();
  const next = new AbortController();
  turn = next;
  const before = watched;
  watched = null;
  work.end();
  $("work").hidden = $("models").hidden = true;
  histories = new Map();
  last = null;
  showOverall("unknown", OLD);
  await before?.end();
  return next;
}

/** Reads again and again until something else is watched. */
async function follow(signal, source) {
  let answered = null;
  while (!signal.aborted) {
    const begun = performance.now();
    try {
      const read = await source.read();
      if (signal.aborted) return;
      answered = performance.now();
      show(source, read);
    } catch (error) {
      if (signal.aborted) return;
      // A server that never answered is more likely a wrong address.
      if (!passes(error) || answered === null) throw error;
      showOverall("unknown", OLD);
      setState("unreachable", `No answer for ${duration(performance.now() - answered)}. ${error.message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(100, EVERY - (performance.now() - begun))));
  }
}

function show(source, { exposition, status, watched: looked }) {
  const names = exposition.valuesOf("ternlight_requests_running", "model");
  const now = performance.now();
  for (const name of names) {
    if (!histories.has(name)) histories.set(name, new History(name));
    histories.get(name).add(now, exposition);
  }
  const about = status === "ok" ? "" : `, which says “${status}”`;
  setState(
    "watching",
    names.length > 0 ? `Watching ${source.name}${about}` : `${source.name}${about} has no model ready`,
  );
  last = { exposition, looked, name: source.model ? source.name : null };
  chooseModel(names);
  $("watched").hidden = names.length === 0;
  $("known").hidden = names.length === 0;
  $("work").hidden = !source.model;
  if (source.model) work.begin(source.model);
  render();
}

function chooseModel(names) {
  const list = $("model");
  if (names.join("\n") !== Array.from(list.options, ({ value }) => value).join("\n")) {
    const chosen = list.value;
    list.replaceChildren(...names.map((name) => new Option(name)));
    if (names.includes(chosen)) list.value = chosen;
  }
  $("models").hidden = names.length < 2;
}

function render() {
  const model = $("model").value;
  const history = histories.get(model);
  if (!last || !history) return;
  const { rows } = history;
  const row = rows.at(-1);
  const signals = signalsOf(last.exposition, model);
  showOverall(worst(signals), inWords(signals, last.looked));
  showSignals($("signals"), signals, rows, row.at);
  showGauges(rows, row);
  showTimes(history);
  showFacts(model);
}

function showOverall(state, said) {
  if (root.dataset.health !== state) {
    root.dataset.health = state;
    $("overall").replaceChildren(badge(state));
    document.title = `${state} · ternlight health`;
  }
  if ($("said").textContent !== said) $("said").textContent = said;
}

function inWords(signals, looked) {
  const bad = signals.filter(({ state }) => state === "warn" || state === "alert");
  const unwatched = looked ? "" : " Without the option health, only repetition and NaNs are known.";
  if (bad.length === 0) return `No signal that is known has reached a threshold.${unwatched}`;
  const each = bad.map(({ name, state }) => `${titleOf(name)}: ${state}`);
  return `${each.join(". ")}.${unwatched}`;
}

function showGauges(rows, row) {
  const list = $("gauges");
  for (const [i, { title, show, least, lines }] of GAUGES.entries()) {
    const figure = list.children[i] ?? list.appendChild(newGauge(title));
    const figures = lines.map(([name, key]) => `${row[key] === null ? "–" : show(row[key])} ${name}`.trim());
    figure.querySelector(".value").textContent = figures.join(", ");
    const drawn = lines.map(([name, key]) => ({ name, points: rows.map((one) => ({ at: one.at, value: one[key] })) }));
    draw(figure.querySelector("svg"), { title, lines: drawn, show, least, now: row.at });
  }
}

function newGauge(title) {
  const figure = document.createElement("figure");
  const value = tag("p", "");
  value.className = "value";
  figure.append(tag("h3", title), value, newChart());
  return figure;
}

function showTimes(history) {
  const body = $("times").tBodies[0];
  const lines = Object.entries(TIMES).map(([name, title]) => {
    const found = history.recent(name, RECENT);
    const cells = [0.5, 0.9, 0.99].map((at) => {
      const value = found && quantile(found, at);
      return value ? `${value.over ? "over " : ""}${seconds(value.value)}` : "–";
    });
    const head = tag("th", title);
    head.scope = "row";
    const line = document.createElement("tr");
    line.append(head, ...[found ? integer(countOf(found)) : "–", ...cells].map((cell) => tag("td", cell)));
    return line;
  });
  body.replaceChildren(...lines);
}

function showFacts(model) {
  const { exposition } = last;
  const value = (name) => exposition.value(`ternlight_${name}`, { model });
  const [info, build] = ["model_info", "build_info"].map(
    (name) => exposition.all(`ternlight_${name}`, { model })[0]?.labels ?? {},
  );
  const refused = value("refusals_total");
  fill($("facts"), [
    ["Name", last.name ?? model],
    ["Architecture", info.architecture ?? "unknown", info.format],
    [
      "Parameters",
      info.parameters ? integer(Number(info.parameters)) : "unknown",
      `${decimal(Number(info.bits_per_weight))} bits each`,
    ],
    ["Build", [build.flavour, build.dot_product].filter(Boolean).join(", "), `cache in ${build.kv_cache_type}`],
    ["Threads", whole(value("threads"))],
    ["Requests at once", whole(value("max_sequences")), "at most"],
    ["Prompt tokens", whole(value("prompt_tokens_total")), `${whole(value("cached_tokens_total"))} more were cached`],
    ["Tokens written", whole(value("generated_tokens_total"))],
    ["KV cache", `${whole(value("kv_cache_tokens"))} tokens`, `${whole(value("kv_cache_used_tokens"))} in use`],
    ["Refused", whole(refused), "calls"],
    ["Failed", whole(value("errors_total") ?? 0), "calls"],
  ]);
}

function load(choice) {
  return begin(`Loading ${choice.name}`, async (signal, say) => {
    const lack = lacking();
    if (lack) throw new Error(lack);
    const { load } = await import("./ternlight/dist/index.js");
    const onProgress = ({ loaded, total }) => total > 0 && say(`Loading ${choice.name}: ${percent(loaded / total)}`);
    return new TabModel(await load(choice.source, { health: true, signal, onProgress }), choice.name);
  });
}

const watchServer = (address, key) => begin(`Asking ${address}`, async () => new Server(address, key));

/** Begins with what a form has; what is wrong with that is said. */
function tryTo(start) {
  try {
    return start();
  } catch (error) {
    report(error);
  }
}

function chooseKind(kind) {
  document.querySelector(`[name=kind][value=${kind}]`).checked = true;
  $("server").hidden = kind !== "server";
  $("tab").hidden = kind !== "tab";
}

$("kinds").addEventListener("change", ({ target }) => chooseKind(target.value));
$("server").addEventListener("submit", (event) => {
  event.preventDefault();
  watchServer($("server-url").value, $("key").value);
});
$("built-in").addEventListener("click", () => load(builtIn));
$("address").addEventListener("submit", (event) => {
  event.preventDefault();
  tryTo(() => load(fromAddress($("url").value)));
});
$("pick-files").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", ({ target }) => {
  if (target.files.length > 0) tryTo(() => load(fromFiles([...target.files])));
  target.value = "";
});
$("end").addEventListener("click", async () => {
  setState("idle", "Nothing is watched.");
  await end();
});
$("model").addEventListener("change", render);
addEventListener("resize", render);

const asked = new URLSearchParams(location.search);
if (asked.has("model")) {
  chooseKind("tab");
  const address = asked.get("model");
  tryTo(() => load(address === "demo" ? builtIn : fromAddress(address)));
} else if (asked.has("server")) {
  $("server-url").value = asked.get("server");
  watchServer(asked.get("server"), "");
}
