/** Derives advice from what was found. A pure function, so that every case can be tested. */
import type { Advice, DoctorReport, ModelReport, SourceReport, SystemReport } from "./report.ts";

const GB = 2 ** 30;
const MIB = 2 ** 20;
/** Positions from which attention reads about as much as it costs to notice. */
const LONG_CONTEXT = 2048;
/** Governors that keep clocks low until a load has lasted for a while. */
const SAVING = ["powersave", "conservative"];
/** What a process takes beside its model: the runtime, and an instance's code, stacks and buffers. */
const RUNTIME_BYTES = 256 * MIB;

export function advise(report: Omit<DoctorReport, "advice">): Advice[] {
  const { source, system, model } = report;
  const all = [
    ...ofRuntime(report),
    ...(source ? ofSource(source) : []),
    ...(system ? ofSystem(system, report.threads) : []),
    ...(model ? ofModel(model, report) : []),
  ];
  const order = ["error", "warning", "note"];
  return all.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
}

function ofRuntime({
  engineError,
  isolated,
  simd,
  threads,
  threadsReason,
  memory,
  storage,
}: Omit<DoctorReport, "advice">) {
  const advice: Advice[] = [];
  const say = (level: Advice["level"], text: string) => advice.push({ level, text });
  if (simd === null) {
    say(
      "error",
      "WebAssembly does not run here with SIMD: take Chromium 91, Firefox 89, Safari 16.4, Node 20 or newer, and where there is a content security policy add script-src 'wasm-unsafe-eval'",
    );
  } else if (engineError !== null) {
    say(
      "error",
      `the engine does not start: ${engineError}. worker.js and the wasm file it takes must lie where the package has them, be served with their types, and be allowed by worker-src and script-src`,
    );
  }
  if (isolated === false) {
    say(
      "warning",
      "the page is not cross-origin isolated, so it computes on one thread: send Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp with the page and its scripts, or where no headers can be set, copy dist/isolate.js of the package to the top folder of the site and include it with a script element",
    );
  } else if (threads === 1 && threadsReason !== null) {
    say("warning", `it computes on one thread: ${threadsReason}`);
  }
  if (simd === "simd128") {
    say(
      "note",
      "there is no relaxed SIMD here, or not a right one: the simd128 build is taken, which is somewhat slower",
    );
  }
  if (memory.reservable < 4 * GB) {
    const most = Math.floor(memory.reservable / 2 ** 20);
    say("warning", `one memory may have ${most} MiB at most here: larger models do not load`);
  }
  if (storage && storage.quota - storage.usage < GB) {
    const rest = Math.max(0, Math.floor((storage.quota - storage.usage) / 2 ** 20));
    say("warning", `${rest} MiB of storage are left for this page: what is larger is downloaded anew each time`);
  } else if (storage && !storage.persisted) {
    say(
      "note",
      "what this page keeps may be thrown away when the device runs short: navigator.storage.persist() asks for more",
    );
  }
  return advice;
}

function ofSource({ error, status, range, size, validator, cors, format }: SourceReport) {
  const advice: Advice[] = [];
  const say = (level: Advice["level"], text: string) => advice.push({ level, text });
  if (status === null && cors === false) {
    say(
      "error",
      "the server answers, but lets no page of another origin read it: it must send Access-Control-Allow-Origin",
    );
    return advice;
  }
  if (status === null) {
    say("error", `the address does not answer (${error}), or not to pages of other origins`);
    return advice;
  }
  if (error !== null) {
    say("error", `the server answered ${status}`);
    return advice;
  }
  if (format === "web page")
    say("error", "the server sent a web page instead of a file: the address is not the file's own");
  else if (format === "unknown") say("warning", "the file begins like neither GGUF nor safetensors");
  if (!range) {
    say(
      "warning",
      "the server knows no ranges (it answered 200, not 206): the file comes whole, by one connection, and an interrupted download begins anew",
    );
  }
  if (size === null) {
    say(
      "warning",
      "the file's size is not shown: send Content-Length, and to other origins Access-Control-Expose-Headers: Content-Range, ETag",
    );
  }
  if (validator === null) {
    say(
      "warning",
      "neither ETag nor Last-Modified is shown: nothing tells whether what was kept of the file is still good",
    );
  }
  if (cors === false) say("note", "pages of other origins may not read it: that takes Access-Control-Allow-Origin");
  return advice;
}

const mib = (bytes: number) => `${Math.ceil(bytes / MIB)} MiB`;

/** What the system gives to this many threads. */
function ofSystem({ physicalCores, governors, cpuLimit }: SystemReport, threads: number) {
  const advice: Advice[] = [];
  const say = (level: Advice["level"], text: string) => advice.push({ level, text });
  if (physicalCores !== null && threads > physicalCores) {
    say(
      "warning",
      `${threads} threads are to compute on ${physicalCores} physical cores: hyper-threads share the units that multiply, so that each step waits for the slower ones and gains little or nothing; take threads: ${physicalCores} (--threads ${physicalCores})`,
    );
  }
  const saving = governors.filter((name) => SAVING.includes(name));
  if (saving.length > 0) {
    say(
      "warning",
      `the CPU governor is ${saving.join(" and ")}: clocks rise late or not at all, and every step takes longer for it, first tokens most; set performance (cpupower frequency-set -g performance)`,
    );
  }
  if (cpuLimit !== null && threads > cpuLimit) {
    const whole = Math.max(1, Math.floor(cpuLimit));
    say(
      "warning",
      `the control group may use ${Number(cpuLimit.toFixed(2))} cores (cpu.max), and ${threads} ${threads === 1 ? "thread is" : "threads are"} to compute: once the share of a period is used up all stand still until it ends, commonly up to 100 ms; raise the limit to ${threads} cores${threads > whole ? `, or take threads: ${whole}` : ""}`,
    );
  }
  return advice;
}

function ofModel(
  { error, askedThreads, contextLength, memory, f16KvBytes }: ModelReport,
  { cores, system }: Pick<DoctorReport, "cores" | "system">,
) {
  const advice: Advice[] = [];
  const say = (level: Advice["level"], text: string) => advice.push({ level, text });
  const limit = system?.memoryLimit ?? null;
  const needed = memory.total + RUNTIME_BYTES;
  if (error !== null) {
    say("error", `the model does not fit: ${error}; can-run, or canRun(), names settings with which it does`);
  } else if (limit !== null && needed > limit) {
    say(
      "error",
      `the control group may take ${mib(limit)} (memory.max), and the model needs ${mib(memory.total)} beside the runtime's own ${mib(RUNTIME_BYTES)}: the system ends the process while it loads or answers; raise the limit to ${mib(needed)}, or take a shorter contextLength, a smaller kvCacheType or head`,
    );
  }
  if (askedThreads !== null && askedThreads > cores) {
    say(
      "warning",
      `${askedThreads} threads were asked for, and there are ${cores} cores: ${cores} are taken, because further ones would keep the others waiting in every step; take threads: ${cores}, or leave it out`,
    );
  }
  if (contextLength >= LONG_CONTEXT && memory.kv > 1.5 * f16KvBytes) {
    say(
      "warning",
      `keys and values are stored as f32 for a context of ${contextLength} tokens: ${mib(memory.kv)} instead of ${mib(f16KvBytes)} as f16, and attention reads twice as much for each token of a long conversation; take kvCacheType: "f16" (--kv f16), or q8 for half of that`,
    );
  }
  return advice;
}
