/** The page: one model, one thing at a time done with it, and a state that can be read from outside. */

import { showEngine, showModel, summary } from "./facts.js";
import { duration, left, megabytes, tokens } from "./format.js";
import { builtIn } from "./models/sources.js";
import { Sampling } from "./sampling.js";
import { Speech } from "./speech.js";
import { Run, SpeedPanel } from "./speed.js";
import { lacking } from "./support.js";
import { TextView } from "./views.js";
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
/** @param how a function of models/chosen.js */
const openChosen = (how, ...given) =>
  begin(async (signal) => {
    const chosen = await part("chosen");
    return open(await chosen[how](...given), signal);
  });
const openFrom = (address) => openChosen("fromAddress", address);

/** What is loaded when it is opened: by name, the module, and what is made of it once. */
const parts = {
  chat: async () => new (await import("./chat/view.js")).ChatView(output, $("chat"), host),
  json: async () => new (await import("./play/json.js")).JsonView(output, $("json")),
  tools: async () => new (await import("./play/tools.js")).ToolsView(output, $("tools"), host),
  several: async () => {
    const { Several } = await import("./several.js");
    return new Several({ lines: $("beginnings"), list: $("streams"), total: $("together") });
  },
  chosen: () => import("./models/chosen.js"),
  links: () => import("./links.js"),
  chooser: async () => {
    const { Chooser } = await import("./models/chooser.js");
    return new Chooser({ picker: $("picker"), kept: $("kept") }, { load: openFrom, fail: host.fail });
  },
  storage: async () => {
    const { StoragePanel } = await import("./storage/panel.js");
    return new StoragePanel($("storage"), { load: openFrom, fail: host.fail, changed: () => made.chat?.forgotten() });
  },
};
const made = { text: new TextView(output, $("text")) };
const begun = {};

async function part(name) {
  if (made[name]) return made[name];
  // Once, also for two that ask while it loads.
  begun[name] ??= parts[name]();
  try {
    made[name] = await begun[name];
  } catch (error) {
    delete begun[name];
    throw Object.assign(new Error(`${name} could not be loaded: ${error.message}`), { code: "PartMissing" });
  }
  return made[name];
}

/** What the parts know of the page. */
const host = {
  prompt,
  model: () => model,
  /** @returns whether it begins */
  start(request) {
    const idle = isIdle();
    if (idle) begin((signal) => write(signal, request));
    return idle;
  },
  say(words) {
    status.textContent = words;
  },
  // Beside what is under way, which goes on.
  fail: (error, where) => (isBusy() ? tell(error, where) : fail(error, where)),
};

const openings = ["Once upon a time there was a little rabbit who", "The king had three sons, and", "One dark night"];

/** What is loaded, and where it came from. */
let model = null;
let choice = null;
const modes = ["text", "chat", "json", "tools"];
let mode = "text";

const isIdle = () => generate.getAttribute("aria-disabled") === "false";
const isBusy = () => ["loading", "generating"].includes(root.dataset.state);

/** @param state loading, ready, generating, stopped, failed or unsupported */
function setState(state, words) {
  root.dataset.state = state;
  status.textContent = words;
  const busy = isBusy();
  // Not `disabled`, which would take the focus away from whoever has just pressed it.
  for (const button of [generate, $("write-all")]) button.setAttribute("aria-disabled", busy || !model);
  stop.setAttribute("aria-disabled", state !== "generating");
  output.setAttribute("aria-busy", state === "generating");
  if (state !== "loading" && document.activeElement === $("cancel")) $("choose").focus();
  $("cancel").hidden = $("progress").hidden = state !== "loading";
  $("modes").disabled = $("panel").disabled = $("new-chat").disabled = busy;
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
  const settings = await settingsOf(next);
  await made.chat?.leave();
  model?.close();
  [model, choice] = [loaded, { ...next, settings }];
  showLoaded();
  setState("ready", "Ready");
  stayOffline();
}

/** Computes what the page begins with while the weights come. Whoever writes something else has lost nothing. */
const firstText = ({ opens }) => (opens !== undefined && prompt.value ? { prefill: opens + prompt.value } : {});

/** What the catalogue says that a model is run with; null where it does not know the model. */
async function settingsOf({ source }) {
  if (typeof source !== "string") return null;
  return part("chooser")
    .then((chooser) => chooser.settingsOf(source))
    .catch(() => null);
}

/** What has arrived of a model whose load has ended early, in words; null where nothing has. */
async function keptOf({ source, address = source }) {
  if (typeof address !== "string") return null;
  const { kept } = await part("chooser");
  return kept.restOf(address).catch(() => null);
}

const phases = { header: "Reading the header", download: "Loading weights", pack: "Packing", ready: "Ready" };

function showProgress({ phase, loaded, total, bytesPerSecond }) {
  const bar = $("progress");
  if (total > 0) bar.value = loaded / total;
  else bar.removeAttribute("value");
  const amount = total > 0 ? `${megabytes(loaded)} of ${megabytes(total)} MB` : "";
  const pace = bytesPerSecond > 0 ? `${megabytes(bytesPerSecond)} MB/s` : "";
  const rest = left((total - loaded) / bytesPerSecond);
  const words = [phases[phase] ?? "Starting the engine", amount, pace, rest].filter(Boolean).join(" · ");
  bar.setAttribute("aria-valuetext", words);
  $("model-summary").textContent = words;
}

async function failedToLoad(error, next, part) {
  const problems = await import("./problems.js").catch(() => null);
  const lack = model ? null : await problems?.lackingFor(error);
  if (lack) return unsupported(lack, error);
  await fail(error, `${next.name}: `, part && `${part}.`);
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
  sampling.reset(info, choice.builtIn === true, choice.settings);
  $("openings").hidden = !choice.builtIn;
  // What someone has written while they waited is theirs.
  if (["", ...openings].includes(prompt.value)) prompt.value = choice.builtIn ? openings[0] : "";
  for (const name of modes) made[name]?.clear();
  speed.clear();
  toggleChooser(false);
  // Templates know chats and tools.
  for (const radio of $("modes").querySelectorAll("input")) {
    radio.parentElement.hidden = !info.template && ["chat", "tools"].includes(radio.value);
  }
  setMode(info.template ? "chat" : "text");
  const shown = choice;
  const read = choice.read ? readWeights(choice.read) : Promise.resolve(null);
  // A picture that cannot be had is none that is missed.
  read.catch(() => null).then((weights) => shown === choice && picture.show(weights));
}

// Generating

/** @param request what the view is asked for; what stands in the prompt, where it is left out */
async function write(signal, request = null) {
  const said = prompt.value;
  const options = sampling.read();
  const run = new Run(null);
  setState("generating", "Writing");
  let settle = () => {};
  try {
    const view = await part(mode);
    const begun = await view.begin(model, request ?? { text: said }, { options, opening: sampling.opening });
    settle = begun.settle;
    run.promptTokens = begun.promptTokens;
    if (!request && mode !== "text" && mode !== "json") prompt.value = "";
    const finished = await follow(begun, run, signal);
    // What had no answer may be said again.
    if (!request && !finished.text) prompt.value = said;
    settle(finished.text, finished);
    speed.finish(run, finished.timings, options.seed);
    const stopped = finished.finishReason === "stopped";
    setState(stopped ? "stopped" : "ready", ending(finished, options.maxTokens));
  } catch (error) {
    settle("");
    if (!request) prompt.value = said;
    await fail(error);
  }
}

/** Brings a generation to the page, a frame at a time. */
async function follow({ generation, writer }, run, signal) {
  if (signal.aborted) generation.stop();
  signal.addEventListener("abort", () => generation.stop());
  const speech = new Speech($("spoken"));
  let frame = requestAnimationFrame(function paint() {
    writer.flush();
    speed.show(run);
    frame = requestAnimationFrame(paint);
  });
  try {
    for await (const piece of generation) {
      run.add(piece.tokens.length);
      writer.push(piece.text);
      speech.push(piece.text);
    }
    return await generation.finished;
  } finally {
    cancelAnimationFrame(frame);
    run.end();
    writer.flush();
    speech.end();
  }
}

async function writeSeveral(signal) {
  setState("generating", "Writing");
  try {
    const several = await part("several");
    const words = await several.run(model, { options: sampling.read(), opening: sampling.opening }, signal);
    setState(signal.aborted ? "stopped" : "ready", words);
  } catch (error) {
    await fail(error);
  }
}

function ending({ finishReason, timings: { predictedN, predictedMs, ttftMs } }, maxTokens) {
  const amount = `${tokens(predictedN)} in ${duration(ttftMs + predictedMs)}`;
  if (finishReason === "stopped") return `Stopped after ${amount}`;
  if (finishReason === "stop") return `Ended by the model after ${amount}`;
  return `${amount}${predictedN < maxTokens ? ": the context is full" : ""}`;
}

// What goes wrong

async function fail(error, where = "", more = null) {
  // A model whose worker has died opens no sessions.
  try {
    model?.session();
  } catch {
    model = null;
    showName();
  }
  await tell(error, where, [more, model ? `${choice.name} is still loaded.` : "No model is loaded."]);
  setState("failed", "");
  if (!model) toggleChooser(true);
}

async function tell(error, where = "", more = []) {
  const { title, advice, technical } = await explained(error);
  showProblem(`${where}${title}`, [advice, ...more].filter(Boolean).join(" "), technical);
}

/** In words, which come with the first error. Without a network a page that was never kept has none. */
async function explained(error) {
  try {
    return (await import("./problems.js")).explain(error);
  } catch {
    return { title: "Something went wrong.", advice: "", technical: String(error) };
  }
}

async function unsupported(lack, error) {
  const technical = error && (await explained(error)).technical;
  showProblem(
    "ternlight cannot run here.",
    `${lack} A current Chrome, Edge, Firefox or Safari has all it takes.`,
    technical,
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
  for (const name of modes) $(name).hidden = name !== next;
  $("new-chat").hidden = next === "text" || next === "json";
  $("new-chat").textContent = next === "tools" ? "Begin again" : "New chat";
  prompt.placeholder = next === "text" ? "The beginning of a text" : "Enter sends, Shift+Enter begins a new line";
  part(next)
    .then(({ panel = null }) => {
      if (mode !== next) return;
      $("panel").hidden = panel === null;
      $("panel").replaceChildren($("panel").firstElementChild, ...(panel ? [panel] : []));
    })
    .catch(host.fail);
}

function toggle(panel, button, open) {
  if (!open && $(panel).contains(document.activeElement)) $(button).focus();
  $(panel).hidden = !open;
  $(button).setAttribute("aria-expanded", open);
}

function toggleChooser(open = $("chooser").hidden) {
  toggle("chooser", "choose", open);
  if (open)
    part("chooser")
      .then((chooser) => chooser.open())
      .catch(host.fail);
  else made.chooser?.close();
}

function toggleStorage(open = $("storage").hidden) {
  toggle("storage", "store", open);
  if (open)
    part("storage")
      .then((storage) => storage.refresh())
      .catch(host.fail);
}

$("choose").onclick = () => toggleChooser();
$("store").onclick = () => toggleStorage();
$("copy-link").onclick = () =>
  part("links")
    .then((links) => links.copyLink(choice ?? builtIn, prompt.value))
    .then(host.say)
    .catch(host.fail);
$("built-in").onclick = () => begin((signal) => open(builtIn, signal));
$("cancel").onclick = () => task.stop();
for (const [button, input, how] of [
  ["pick-files", "files", "fromFiles"],
  ["pick-folder", "folder", "fromFolder"],
]) {
  $(button).onclick = () => $(input).click();
  $(input).onchange = ({ target }) => {
    openChosen(how, [...target.files]);
    // The same file may be chosen again.
    target.value = "";
  };
}

$("address").onsubmit = (event) => {
  event.preventDefault();
  openFrom($("url").value);
};

$("composer").onsubmit = (event) => {
  event.preventDefault();
  host.start();
};
$("many").onsubmit = (event) => {
  event.preventDefault();
  if (isIdle() && $("composer").reportValidity()) begin(writeSeveral);
};
stop.onclick = () => root.dataset.state === "generating" && task.stop();
$("new-chat").onclick = () => {
  made[mode]?.clear();
  speed.clear();
  problem.hidden = true;
  setState("ready", "New chat");
  prompt.focus();
};
$("modes").onchange = ({ target }) => setMode(target.value);

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  // While letters are composed, keys belong to the input method.
  // Safari ends the composition before the key that ended it, which it gives the code 229.
  if (event.isComposing || event.keyCode === 229) return;
  const sends = event.ctrlKey || event.metaKey || (target === prompt && mode !== "text" && !event.shiftKey);
  if (key === "Enter" && sends) {
    event.preventDefault();
    (target.form ?? $("composer")).requestSubmit();
  } else if (key === "Escape") {
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
  // Entries are gone when the drop has been handled.
  const { files, items } = event.dataTransfer;
  openChosen("fromDrop", [...files], [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean));
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

/** The page's own files are kept when nobody waits for anything. */
function stayOffline() {
  const idle = globalThis.requestIdleCallback ?? setTimeout;
  // Where it cannot be kept the page works as before.
  const keep = () => import("./offline/register.js").then(({ register }) => register(model.info.flavour));
  idle(() => keep().catch(() => {}));
}

/** Loads the built-in model, or what a link asks for. A model that is there stays until then. */
async function first(signal) {
  const load = (next) => open(next, signal);
  if (location.hash.length < 2) return model ? undefined : load(builtIn);
  const settle = (words) => {
    showName();
    setState(model ? "ready" : "stopped", words);
  };
  const { follow } = await part("links");
  await follow({ prompt, section: $("ask"), loaded: model && choice, load, settle }, signal);
}

const lack = lacking();
if (lack) unsupported(lack);
else begin(first);
addEventListener("hashchange", () => lack || begin(first));
