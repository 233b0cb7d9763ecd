/** What Linux's files tell of processors and limits, from trees of them. */

import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { load } from "ternlight";
import { wholeCores, wholeCoresOf } from "../../src/platform/node.ts";
import { processorName, system } from "../../src/platform/system.ts";
import { DEMO } from "../api/support/model.ts";

type Tree = Record<string, string>;
const of = (tree: Tree) => system((path) => tree[path] ?? null);
const allowed = (list: string): Tree => ({ "/proc/self/status": `Name:\tnode\nCpus_allowed_list:\t${list}\n` });

/** Cores of two hyper-threads, where the second threads come behind all first ones. */
function topology(cores: number): Tree {
  const files: Tree = {};
  for (let cpu = 0; cpu < 2 * cores; cpu++) {
    const folder = `/sys/devices/system/cpu/cpu${cpu}`;
    files[`${folder}/topology/thread_siblings_list`] = `${cpu % cores},${(cpu % cores) + cores}\n`;
    files[`${folder}/cpufreq/scaling_governor`] = cpu === 0 ? "powersave\n" : "performance\n";
  }
  return files;
}

const cpuinfo = (...cores: [socket: number, core: number][]) => ({
  "/proc/cpuinfo": cores
    .map(([socket, core], i) => `processor\t: ${i}\nphysical id\t: ${socket}\ncore id\t\t: ${core}\nflags : x`)
    .join("\n\n"),
});

test("cores are counted without hyper-threads, and only those that the process may run on", () => {
  const cases: [string, Tree, number | null, number | null][] = [
    ["siblings", { ...topology(4), ...allowed("0-7") }, 8, 4],
    ["both threads of two cores", { ...topology(4), ...allowed("0-1,4-5") }, 4, 2],
    ["one thread of each", { ...topology(4), ...allowed("0-3") }, 4, 4],
    ["one processor", { ...topology(4), ...allowed("6") }, 1, 1],
    ["cpuinfo alone", cpuinfo([0, 0], [0, 1], [0, 0], [0, 1], [1, 0]), null, 3],
    ["cpuinfo of an affinity", { ...cpuinfo([0, 0], [0, 1], [0, 0], [1, 0]), ...allowed("0,2") }, 2, 1],
    [
      "a processor that names no cores",
      { "/proc/cpuinfo": "processor : 0\nBogoMIPS : 50\n", ...allowed("0-3") },
      4,
      null,
    ],
    ["no files", {}, null, null],
  ];
  for (const [name, tree, processors, physicalCores] of cases) {
    const found = of(tree);
    assert.deepEqual([found.processors, found.physicalCores], [processors, physicalCores], name);
  }
  assert.deepEqual(of({ ...topology(2), ...allowed("0-3") }).governors, ["powersave", "performance"]);
  assert.deepEqual(of({ ...topology(2), ...allowed("1-3") }).governors, ["performance"]);
});

test("limits are the tightest of the control group and of those around it", () => {
  const limits = (tree: Tree) => {
    const { cpuLimit, memoryLimit } = of(tree);
    return [cpuLimit, memoryLimit];
  };
  const own = { "/proc/self/cgroup": "0::/kube/pod\n" };
  assert.deepEqual(limits({}), [null, null]);
  assert.deepEqual(limits(own), [null, null]);
  const max = { "/sys/fs/cgroup/kube/pod/cpu.max": "max 100000\n", "/sys/fs/cgroup/kube/pod/memory.max": "max\n" };
  assert.deepEqual(limits({ ...own, ...max }), [null, null]);
  const outer = { "/sys/fs/cgroup/kube/cpu.max": "150000 100000\n", "/sys/fs/cgroup/kube/memory.max": "536870912\n" };
  assert.deepEqual(limits({ ...own, ...max, ...outer }), [1.5, 2 ** 29]);
  const inner = {
    "/sys/fs/cgroup/kube/pod/cpu.max": "25000 50000\n",
    "/sys/fs/cgroup/kube/pod/memory.max": "1048576\n",
  };
  assert.deepEqual(limits({ ...own, ...outer, ...inner }), [0.5, 2 ** 20]);
  // In a container the root of the file system is its own group.
  const root = {
    "/proc/self/cgroup": "0::/\n",
    "/sys/fs/cgroup/cpu.max": "200000 100000\n",
    "/sys/fs/cgroup/memory.max": "7\n",
  };
  assert.deepEqual(limits(root), [2, 7]);
  const first = {
    "/proc/self/cgroup": "5:cpu,cpuacct:/box\n4:memory:/box\n0::/\n",
    "/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "300000\n",
    "/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1073741824\n",
  };
  assert.deepEqual(limits(first), [3, 2 ** 30]);
  const open = {
    "/proc/self/cgroup": "5:cpu:/\n4:memory:/\n",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
  };
  assert.deepEqual(limits(open), [null, null]);
});

test("a load takes a thread for each whole core", async (context) => {
  const whole = (physicalCores: number | null, cpuLimit: number | null) => wholeCoresOf({ physicalCores, cpuLimit });
  assert.equal(whole(4, null), 4);
  assert.equal(whole(4, 2.9), 2);
  assert.equal(whole(4, 0.5), 1);
  assert.equal(whole(2, 8), 2);
  assert.equal(whole(null, 2), null);
  const model = await load(DEMO);
  context.after(() => model.close());
  assert.equal(model.info.threads, Math.min(8, wholeCores() ?? Number.POSITIVE_INFINITY, availableParallelism()));
});

test("a processor's name comes with its generation, where Linux tells it", () => {
  const info = (text: string | null) => () => text;
  const first = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1";
  assert.equal(processorName(" AMD EPYC ", info(`${first}\n\nprocessor\t: 1`)), "AMD EPYC (family 25, model 17)");
  assert.equal(processorName("Neoverse-N1", info("processor\t: 0\nCPU part\t: 0xd0c")), "Neoverse-N1");
  assert.equal(processorName("Apple M1", info(null)), "Apple M1");
  assert.equal(processorName(undefined, info(first)), null);
});
