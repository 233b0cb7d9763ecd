/** The page: one model, one thing at a time done with it, and a state that can be read from outside. */

import { showEngine, showModel, summary } from "./facts.js";
import { duration, megabytes, tokens } from "./format.js";
import { amount, KeptModels } from "./kept.js";
import { explain } from "./problems.js";
import { Sampling } from "./sampling.js";
import { builtIn, dropped, fromAddress, fromFiles, topLevel } from "./sources.js";
import { Run, SpeedPanel } from "./speed.js";
import { lacking, lackingFor } from "./support.js";
import { ChatView, TextView } from "./views.js";
import { readWeights, WeightsPicture } from "./weights.js";

const root = document.documentElement;
const $ = (id) => document.getElementById(id);
const [prompt, generate, stop, status, output, problem] = [
  "prompt",
  "generate",
  "stop",
  "status",
  "output",
  "problem",
].map($);
const sampling = new Sampling($("composer"));
const speed = new SpeedPanel({ decode: $("decode"), prefill: $("prefill"), note: $("run-note"), chart: $("chart") });
const picture = new WeightsPicture($("weights"));
const kept = new KeptModels($("kept"), (address) =>
  begin((signal) => open(address === builtIn.source ? builtIn : fromAddress(address), signal)),
);
const views = { text: new TextView(output, $("text")), chat: new ChatView(output, $("chat")) };

const openings = ["Once upon a time there was a little rabbit who", "The king had three sons, and", "One dark night"];

/** What is loaded, and where it came from. */
let model = null;
let choice = null;
let mode = "text";

/** @param state loading, ready, generating, stopped, failed or unsupported */
function setState(state, words) {
  root.dataset.state = state;
  status.textContent = words;
  const busy = state === "loading" || state === "generating";
  // Not `disabled`, which would take the focus away from whoever has just pressed it.
  for (const button of [generate, $("write-all")]) button.setAttribute("aria-disabled", busy || !model);
  stop.setAttribute("aria-disabled", state !== "generating");
  output.setAttribute("aria-busy", state === "generating");
  $("cancel").hidden = $("progress").hidden = state !== "loading";
  $("modes").disabled = $("new-chat").disabled = busy;
  if (busy) problem.hidden = true;
}

/** What is under way; it is stopped before the next thing begins. */
let task = { stop() {}, done: Promise.resolve() };

function begin(work) {
  const before = task;
  before.stop();
  const abort = new AbortController();
  const done = before.done.then(() => (abort.signal.aborted ? undefined : work(abort.signal))).catch(fail);
  task = { stop: () => abort.abort(), done };
}

// Loading

async function open(next, signal) {
  $("model-name").textContent = next.name;
  setState("loading", `Loading ${next.name}`);
  showProgress({ phase: "start", loaded: 0, total: 0 });
  let loaded;
  try {
    // Not at the top: a browser too old to read the package can still be told so.
    const { load } = await import("./ternlight/dist/index.js");
    loaded = await load(next.source, { signal, onProgress: showProgress, ...firstText(next) });
  } catch (error) {
    showName();
    const part = await keptOf(next);
    if (!signal.aborted) return failedToLoad(error, next, part);
    toggleChooser(!model || part !== null);
    return setState(model ? "ready" : "stopped", ["Loading was cancelled", part].filter(Boolean).join(": "));
  }
  model?.close();
  [model, choice] = [loaded, next];
  showLoaded();
  setState("ready", "Ready");
}

/** Computes what the page begins with while the weights come. Whoever writes something else has lost nothing. */
const firstText = ({ opens }) => (opens !== undefined && prompt.value ? { prefill: opens + prompt.value } : {});

/** What has arrived of a model whose load has ended early, in words; null where nothing has. */
async function keptOf({ source }) {
  await kept.refresh().catch(() => {});
  const part = typeof source === "string" ? kept.find(source) : null;
  return part && !part.complete ? `${amount(part)}, and Continue goes on from there` : null;
}

const phases = { header: "Reading the header", download: "Loading weights", pack: "Packing", ready: "Ready" };

function showProgress({ phase, loaded, total, bytesPerSecond }) {
  const bar = $("progress");
  if (total > 0) bar.value = loaded / total;
  else bar.removeAttribute("value");
  const amount = total > 0 ? `${megabytes(loaded)} of ${megabytes(total)} MB` : "";
  const pace = bytesPerSecond > 0 ? `${megabytes(bytesPerSecond)} MB/s` : "";
  const words = [phases[phase] ?? "Starting the engine", amount, pace].filter(Boolean).join(" · ");
  bar.setAttribute("aria-valuetext", words);
  $("model-summary").textContent = words;
}

async function failedToLoad(error, next, part) {
  const lack = model ? null : await lackingFor(error);
  if (lack) return unsupported(lack, error);
  fail(error, `${next.name}: `, part && `${part}.`);
  if (part) toggleChooser(true);
}

/** Of the model that is loaded, whatever else was tried. */
function showName() {
  $("model-name").textContent = model ? choice.name : "No model";
  $("model-summary").textContent = model ? summary(model.info, choice.note) : "Choose one of your own, or the built-in";
}

function showLoaded() {
  const { info } = model;
  showName();
  for (const section of document.querySelectorAll(".known")) section.hidden = false;
  showEngine($("engine-facts"), info);
  showModel($("model-facts"), info);
  sampling.reset(info, choice.builtIn === true);
  $("openings").hidden = !choice.builtIn;
  // What someone has written while they waited is theirs.
  if (["", ...openings].includes(prompt.value)) prompt.value = choice.builtIn ? openings[0] : "";
  for (const view of Object.values(views)) view.clear();
  speed.clear();
  toggleChooser(false);
  $("modes").hidden = !info.template;
  setMode(info.template ? "chat" : "text");
  const shown = choice;
  const read = choice.read ? readWeights(choice.read) : Promise.resolve(null);
  // A picture that cannot be had is none that is missed.
  read.catch(() => null).then((weights) => shown === choice && picture.show(weights));
}

// Generating

async function write(signal) {
  const said = prompt.value;
  const options = sampling.read();
  const run = new Run(null);
  setState("generating", "Writing");
  let settle = () => {};
  try {
    const begun = await views[mode].begin(model, said, { options, opening: sampling.opening });
    settle = begun.settle;
    run.promptTokens = begun.promptTokens;
    const finished = await follow(begun, run, signal);
    settle(finished.text);
    if (mode === "chat") prompt.value = finished.text ? "" : said;
    speed.finish(run, finished.timings, options.seed);
    const stopped = finished.finishReason === "stopped";
    setState(stopped ? "stopped" : "ready", ending(finished, options.maxTokens));
  } catch (error) {
    settle("");
    fail(error);
  }
}

/** Brings a generation to the page, a frame at a time. */
async function follow({ generation, writer }, run, signal) {
  if (signal.aborted) generation.stop();
  signal.addEventListener("abort", () => generation.stop());
  let frame = requestAnimationFrame(function paint() {
    writer.flush();
    speed.show(run);
    frame = requestAnimationFrame(paint);
  });
  try {
    for await (const piece of generation) {
      run.add(piece.tokens.length);
      writer.push(piece.text);
    }
    return await generation.finished;
  } finally {
    cancelAnimationFrame(frame);
    run.end();
    writer.flush();
  }
}

/** Loaded when someone wants it. */
async function writeSeveral(signal) {
  setState("generating", "Writing");
  try {
    const { Several } = await import("./several.js");
    const several = new Several({ lines: $("beginnings"), list: $("streams"), total: $("together") });
    const words = await several.run(model, { options: sampling.read(), opening: sampling.opening }, signal);
    setState(signal.aborted ? "stopped" : "ready", words);
  } catch (error) {
    fail(error);
  }
}

function ending({ finishReason, timings: { predictedN, predictedMs, ttftMs } }, maxTokens) {
  const amount = `${tokens(predictedN)} in ${duration(ttftMs + predictedMs)}`;
  if (finishReason === "stopped") return `Stopped after ${amount}`;
  if (finishReason === "stop") return `Ended by the model after ${amount}`;
  return `${amount}${predictedN < maxTokens ? ": the context is full" : ""}`;
}

// What goes wrong

function fail(error, where = "", more = null) {
  // A model whose worker has died opens no sessions.
  try {
    model?.session();
  } catch {
    model = null;
    showName();
  }
  const { title, advice, technical } = explain(error);
  const rest = model ? `${choice.name} is still loaded.` : "No model is loaded.";
  showProblem(`${where}${title}`, [advice, more, rest].filter(Boolean).join(" "), technical);
  setState("failed", "");
  if (!model) toggleChooser(true);
}

function unsupported(lack, error) {
  showProblem(
    "ternlight cannot run here.",
    `${lack} A current Chrome, Edge, Firefox or Safari has all it takes.`,
    error && explain(error).technical,
  );
  setState("unsupported", "");
}

function showProblem(title, advice, technical) {
  problem.querySelector("h2").textContent = title;
  problem.querySelector("p").textContent = advice;
  problem.querySelector("details").hidden = !technical;
  problem.querySelector("details").open = false;
  problem.querySelector("pre").textContent = technical ?? "";
  problem.hidden = false;
  problem.scrollIntoView({ block: "nearest" });
}

// Controls

function setMode(next) {
  mode = next;
  for (const radio of $("modes").querySelectorAll("input")) radio.checked = radio.value === next;
  for (const name of Object.keys(views)) $(name).hidden = name !== next;
  $("new-chat").hidden = next !== "chat";
  prompt.placeholder = next === "chat" ? "Enter sends, Shift+Enter begins a new line" : "The beginning of a text";
}

function toggleChooser(open = $("chooser").hidden) {
  $("chooser").hidden = !open;
  $("choose").setAttribute("aria-expanded", open);
  if (open) kept.refresh().catch(() => {});
}

const openFiles = (chosen) =>
  begin(async (signal) => {
    const { files, place } = await chosen;
    return open(fromFiles(files, place), signal);
  });

$("choose").onclick = () => toggleChooser();
$("built-in").onclick = () => begin((signal) => open(builtIn, signal));
$("cancel").onclick = () => task.stop();
for (const [button, input, chosen] of [
  ["pick-files", "files", (files) => files],
  ["pick-folder", "folder", topLevel],
]) {
  $(button).onclick = () => $(input).click();
  $(input).onchange = ({ target }) => {
    openFiles({ files: chosen([...target.files]) });
    // The same file may be chosen again.
    target.value = "";
  };
}

$("address").onsubmit = (event) => {
  event.preventDefault();
  begin(async (signal) => open(fromAddress($("url").value), signal));
};

$("composer").onsubmit = (event) => {
  event.preventDefault();
  if (generate.getAttribute("aria-disabled") === "false") begin(write);
};
$("write-all").onclick = ({ target }) => {
  if (target.getAttribute("aria-disabled") === "false" && $("composer").reportValidity()) begin(writeSeveral);
};
stop.onclick = () => root.dataset.state === "generating" && task.stop();
$("new-chat").onclick = () => {
  views.chat.clear();
  speed.clear();
  setState("ready", "New chat");
  prompt.focus();
};
$("modes").onchange = ({ target }) => setMode(target.value);

prompt.onkeydown = (event) => {
  // While letters are composed, Enter belongs to the input method.
  const sends = mode === "chat" && event.key === "Enter" && !event.shiftKey && !event.isComposing;
  if (!sends) return;
  event.preventDefault();
  $("composer").requestSubmit();
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented) {
    event.preventDefault();
    $("composer").requestSubmit();
  } else if (event.key === "Escape") {
    task.stop();
  }
});

// Files may be dropped anywhere.

const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");

document.addEventListener("dragover", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("drop").hidden = false;
});
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) $("drop").hidden = true;
});
document.addEventListener("drop", (event) => {
  $("drop").hidden = true;
  if (!carriesFiles(event)) return;
  event.preventDefault();
  openFiles(dropped(event.dataTransfer));
});

for (const text of openings) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.onclick = () => {
    prompt.value = text;
    prompt.focus();
  };
  $("openings").append(button);
}

// The controls are right for the built-in model before it is there.
sampling.reset({ contextLength: 512 }, true);
prompt.value = openings[0];
$("beginnings").value = [...openings, "In a great forest"].join("\n");
$("openings").hidden = false;

const lack = lacking();
if (lack) unsupported(lack);
else begin((signal) => open(builtIn, signal));
