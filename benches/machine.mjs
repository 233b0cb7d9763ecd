/**
 * What the settings of a Linux machine around the process are worth, by turns with the machine as it is:
 *
 *   node benches/machine.mjs [--shape 138m] [--repeat 5] [--decode 200] [--only pinned] [--system]
 *
 * runs `ternlight bench --json` pinned, with other numbers of threads, beside a busy program, with a quota, under other governors, with and
 * without huge pages and with a part of its memory in zram. It prints a step's p50 and p99, its jitter ÷ p50, and the p99 against that of the
 * same turn's plain run. What this machine does not permit is named with the reason. Settings that hold for the whole machine are changed
 * only with --system, which wants root, and are put back. Writes results/DATE-machine.json. Node 20 or newer and a built package.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { median } from "./median.mjs";

const cli = fileURLToPath(new URL("../pkg/dist/cli.js", import.meta.url));
const { values } = parseArgs({
  options: {
    shape: { type: "string", default: "138m" },
    repeat: { type: "string", default: "5" },
    decode: { type: "string", default: "200" },
    only: { type: "string", default: "" },
    system: { type: "boolean", default: false },
  },
});
const [repeat, cores] = [Number(values.repeat), availableParallelism()];
const bench = ["bench", "--shape", values.shape, "--prompt-tokens", "32", "--decode", values.decode];
const measure = [...bench, "--repeat", "1", "--no-roofline", "--json"];

/** A variant that this machine does not permit, and why. */
class NotHere extends Error {}
const need = (holds, why) => {
  if (!holds) throw new NotHere(why);
};
const read = (file) => (existsSync(file) ? readFileSync(file, "utf8").trim() : null);
const writable = (file) => {
  try {
    accessSync(file, constants.W_OK);
    return true;
  } catch {
    return false;
  }
};
const has = (program) => ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].some((folder) => existsSync(`${folder}/${program}`));

/** Puts a machine-wide setting to a value, and answers with what puts it back. */
function set(file, value, before = read(file)) {
  need(before !== null, `there is no ${file}${file.includes("cpufreq") ? ", as in most virtual machines" : ""}`);
  need(values.system, `${file} is set only with --system`);
  need(writable(file), `${file} may not be written`);
  writeFileSync(file, value);
  return () => writeFileSync(file, before);
}

/** A cgroup of either version with limits of processor time or memory; answers with how to get into it and what removes it. */
function cgroup(limits) {
  const root = "/sys/fs/cgroup";
  const second = existsSync(`${root}/cgroup.controllers`);
  const files = second
    ? { quota: ["", "cpu.max", (share) => `${share * 100_000} 100000`], memory: ["", "memory.max", String] }
    : {
        quota: ["/cpu", "cpu.cfs_quota_us", (share) => String(share * 100_000)],
        memory: ["/memory", "memory.limit_in_bytes", String],
      };
  const folders = [];
  const end = () => {
    for (const folder of folders.reverse()) rmdirSync(folder);
  };
  try {
    for (const [name, value] of Object.entries(limits)) {
      const [controller, file, written] = files[name];
      const folder = `${root}${controller}/ternlight-bench`;
      mkdirSync(folder);
      folders.push(folder);
      writeFileSync(`${folder}/${file}`, written(value));
    }
  } catch (error) {
    end();
    throw new NotHere(`no cgroup may be made here (${error.code ?? error.message})`);
  }
  const join = folders.map((folder) => `echo $$ > ${folder}/cgroup.procs; `).join("");
  return { wrap: (command) => ["sh", "-c", `${join}exec "$@"`, "sh", ...command], end };
}

const pinned = (list) => (command) => ["taskset", "--cpu-list", list, ...command];

/** A program that does nothing, as fast as it can. */
function busy(nice) {
  const child = spawn("nice", ["-n", String(nice), process.execPath, "-e", "for (;;);"], { stdio: "ignore" });
  return { end: () => child.kill("SIGKILL") };
}

/** A governor for every core. */
function governor(name) {
  const ends = cpus().map((_, i) => set(`/sys/devices/system/cpu/cpu${i}/cpufreq/scaling_governor`, name));
  return { end: () => ends.forEach((end) => end()) };
}

function hugePages(mode) {
  const file = "/sys/kernel/mm/transparent_hugepage/enabled";
  return { end: set(file, mode, /\[(\w+)\]/.exec(read(file) ?? "")?.[1] ?? null) };
}

/** Less memory than the plain run has taken, and compressed memory for the rest. */
function zram(share) {
  need(plainBytes > 0, "the plain run's memory is not known");
  const swap = "/dev/zram0";
  const own = !read("/proc/swaps").includes(swap);
  if (own) {
    need(existsSync(swap), `there is no ${swap}`);
    need(values.system, `${swap} becomes swap only with --system`);
    need(read("/sys/block/zram0/disksize") === "0", `${swap} is used for something else`);
    set("/sys/block/zram0/disksize", String(2 * plainBytes));
    for (const program of ["mkswap", "swapon"]) execFileSync(program, [swap], { stdio: "ignore" });
  }
  const end = () => {
    if (!own) return;
    execFileSync("swapoff", [swap]);
    writeFileSync("/sys/block/zram0/reset", "1");
  };
  try {
    const { wrap, end: leave } = cgroup({ memory: Math.round(share * plainBytes) });
    return {
      wrap,
      end() {
        leave();
        end();
      },
    };
  } catch (error) {
    end();
    throw error;
  }
}

const physical = () => {
  const list = Array.from({ length: cores }, (_, i) => read(`/sys/devices/system/cpu/cpu${i}/topology/thread_siblings_list`));
  return list.includes(null) ? cores : new Set(list).size;
};

const whole = physical();
const beside = (nice) => () => busy(nice);
const several = () => need(whole > 1, "there is one core");
const needTaskset = () => need(has("taskset"), "there is no taskset");

/**
 * Each begins before a run: what it wraps the command in, its threads where they are not those that a load takes by itself, and what ends it.
 * A load takes a thread for each physical core, at most eight of them, and no more than whole cores of its quota.
 */
const variants = {
  plain: () => ({}),
  "pinned to all its cores": () => {
    needTaskset();
    return { wrap: pinned(`0-${cores - 1}`) };
  },
  "one thread": () => ({ threads: 1 }),
  "one thread, pinned": () => {
    needTaskset();
    return { wrap: pinned("0"), threads: 1 };
  },
  "a thread for each hyper-thread": () => {
    need(whole < cores, "the cores have no hyper-threads, or do not tell");
    return { threads: cores };
  },
  "beside a busy program": beside(0),
  "beside a busy program at nice 19": beside(19),
  "beside a busy program, one thread fewer": () => {
    several();
    return { ...busy(0), threads: Math.min(8, whole) - 1 };
  },
  "a quota of three quarters": () => cgroup({ quota: 0.75 * whole }),
  "a quota of three quarters, a thread for each core": () => {
    several();
    return { ...cgroup({ quota: 0.75 * whole }), threads: whole };
  },
  "governor performance": () => governor("performance"),
  "governor powersave": () => governor("powersave"),
  "huge pages always": () => hugePages("always"),
  "huge pages never": () => hugePages("never"),
  "70 % of its memory, the rest in zram": () => zram(0.7),
};

/** The most memory of the plain run, in bytes. */
let plainBytes = 0;
let end = () => {};
process.once("SIGINT", () => {
  end();
  process.exit(130);
});

async function measured(begin) {
  const { wrap = (command) => command, threads, end: ending = () => {} } = begin();
  end = ending;
  try {
    const flags = threads ? ["--threads", String(threads)] : [];
    const [program, ...args] = wrap([process.execPath, cli, ...measure, ...flags]);
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"] });
    let out = "";
    child.stdout.setEncoding("utf8").on("data", (text) => {
      out += text;
    });
    const [code, signal] = await once(child, "close");
    if (code !== 0) throw new NotHere(`the benchmark ended with ${signal ?? code}`);
    const { decode, memory, engine } = JSON.parse(out);
    need(!threads || engine.threads === threads, `the runtime gives ${engine.threads} of ${threads} threads`);
    plainBytes ||= memory.peakRssBytes ?? 0;
    const { p50, p99, jitter } = decode.stepMs;
    return { tokensPerSecond: decode.tokensPerSecond.median, p50, p99, jitter, threads: engine.threads };
  } finally {
    end = () => {};
    ending();
  }
}

const before = loadavg()[0];
const [runs, absent] = [{}, {}];
for (let turn = 0; turn < repeat; turn++)
  for (const [name, begin] of Object.entries(variants)) {
    if (absent[name] || (name !== "plain" && !name.includes(values.only))) continue;
    try {
      (runs[name] ??= []).push(await measured(begin));
    } catch (error) {
      if (!(error instanceof NotHere)) throw error;
      delete runs[name];
      absent[name] = error.message;
    }
  }

console.log("| | threads | tokens/s | step p50, ms | p99, ms | jitter ÷ p50 | p99 ÷ plain |\n|---|--:|--:|--:|--:|--:|--:|");
for (const [name, all] of Object.entries(runs)) {
  const of = (value) => median(all.map(value));
  const cells = [of((run) => run.tokensPerSecond).toFixed(1), of((run) => run.p50).toFixed(2), of((run) => run.p99).toFixed(2)];
  const ratio = of((run) => run.jitter / run.p50).toFixed(3);
  const against = median(all.map((run, i) => run.p99 / runs.plain[i].p99)).toFixed(2);
  console.log(`| ${[name, all[0].threads, ...cells, ratio, against].join(" | ")} |`);
}
for (const [name, why] of Object.entries(absent)) console.log(`not here: ${name}: ${why}`);
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-machine.json`, import.meta.url);
const settings = { shape: values.shape, repeat, decode: Number(values.decode), system: values.system };
writeFileSync(file, `${JSON.stringify({ date, machine, settings, absent, runs })}\n`);
