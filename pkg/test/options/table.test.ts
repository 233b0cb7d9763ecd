/** The option table, and what must agree with it. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { checkOf } from "../../src/options/check.ts";
import { commandFlags, commands, defaultText, flagGroups, type Syntax } from "../../src/options/commands.ts";
import type { Kind, NamedKind, Option } from "../../src/options/option.ts";
import { checkOptions } from "../../src/options/options.ts";
import { samplerNumbers } from "../../src/options/routes.ts";
import { samplers } from "../../src/options/samplers.ts";
import { advising } from "../../src/options/table/operating.ts";
import { serverApp } from "../../src/options/table/server.ts";
import { type FunctionName, functions, groups } from "../../src/options/table.ts";
import { EngineError } from "../../src/types/errors.ts";
import { readTypes } from "./support/interfaces.ts";

const root = new URL("../../../", import.meta.url);
const folder = new URL("pkg/src/types/", root);
const types = readTypes([
  ...readdirSync(folder).map((name) => new URL(name, folder)),
  new URL("pkg/src/edge.ts", root),
  new URL("pkg/src/server/settings.ts", root),
  new URL("pkg/src/doctor/report.ts", root),
  new URL("pkg/src/advise/types.ts", root),
]);

const interfaces: [name: string, ...functions: FunctionName[]][] = [
  ["LoadOptions", "load"],
  ["CanRunOptions", "canRun"],
  ["InspectOptions", "inspect"],
  ["BatchingOptions", "configure"],
  ["GenerateOptions", "generate"],
  ["ChatOptions", "chat"],
  ["SessionOptions", "session", "restoreSession"],
  ["RenderOptions", "renderChat"],
  ["CountOptions", "countTokens", "tokenize"],
  ["AdapterOptions", "loadAdapter"],
  ["DetokenizeOptions", "detokenize"],
  ["LogitsOptions", "logits"],
  ["PromptLogprobsOptions", "promptLogprobs"],
  ["EmbedOptions", "embed"],
  ["PerplexityOptions", "perplexity"],
  ["HealthOptions", "health"],
  ["MetricsOptions", "metrics"],
  ["CacheOptions", "cache"],
  ["DoctorOptions", "doctor"],
];

const named: Record<NamedKind, string[]> = {
  adapters: ["readonly AdapterUse[]"],
  bannedSequences: ["readonly (string | readonly number[])[]"],
  boolean: ["boolean"],
  cache: ["boolean | string"],
  damage: ["{ codes?: number; nan?: boolean }"],
  health: ["boolean | HealthWatch"],
  function: [
    "((progress: Progress) => void)",
    "LogitsProcessor",
    "((path: string) => ModelSource)",
    "((record: RequestRecord) => void)",
    "((measured: Telemetry) => void)",
  ],
  integrity: ["string | Readonly<Record<string, string>>"],
  list: ["readonly unknown[]"],
  logitBias: ["Readonly<Record<number, number>>"],
  module: ["WasmModule"],
  object: [
    "Readonly<Record<string, unknown>>",
    "Batches",
    "Readonly<LoadOptions>",
    "DeviceReport",
    "Readonly<Record<string, Model | Loader>>",
    "Readonly<Record<string, Readonly<Record<string, ModelSource>>>>",
  ],
  prefill: ["Prefill"],
  responseFormat: ["ResponseFormat"],
  samplers: ["readonly Sampler[]"],
  signal: ["AbortSignal"],
  stop: ["string | readonly string[]"],
  text: ["string"],
  texts: ["readonly string[]"],
  toolChoice: ["ToolChoice"],
};

/** Whether a type takes exactly what a kind allows. */
function agrees(type: string, kind: Kind): boolean {
  if (typeof kind === "string") return named[kind].includes(type);
  if (!("values" in kind)) return type === "number";
  const [literals, map] = kind.map ? type.split(" | ") : [type];
  if (kind.map && map !== "ActivationMap") return false;
  return types.literals(literals!)?.toSorted().join() === [...kind.values].sort().join();
}

function compare(name: string, expected: Record<string, Option>): void {
  const members = types.members(name);
  assert.deepEqual(members.map((member) => member.name).sort(), Object.keys(expected).sort(), name);
  for (const { name: option, optional, type, byDefault } of members) {
    const row = expected[option]!;
    assert.equal(optional, row.otherwise !== "required", `${name}.${option} may be left out`);
    assert.ok(agrees(type, row.kind), `${name}.${option}: ${type} is not ${JSON.stringify(row.kind)}`);
    const said = defaultText(row);
    if (byDefault !== null || !["none", "required", null].includes(said))
      assert.equal(byDefault, said, `${name}.${option}: @default`);
  }
}

const rowsOf = (name: FunctionName): Record<string, Option> =>
  Object.assign({}, ...functions[name].map((group) => groups[group]));

test("the public types have the table's options, values and defaults", () => {
  for (const [name, ...of] of interfaces) for (const each of of) compare(name, rowsOf(each));
  compare("CompletionOptions", groups.completions);
  compare("EdgeOptions", groups.edge);
  compare("ServerOptions", serverApp);
  compare("RecommendOptions", advising);
  assert.deepEqual(types.literals("Sampler"), samplers);
});

test("every default is a value that its option takes, and every sentence is one", () => {
  for (const [name, option] of Object.values(flagGroups).flatMap((group) => Object.entries<Option>(group))) {
    if (option.default !== undefined) assert.equal(checkOf(option.kind)(option.default), null, name);
    assert.match(option.help, /^[A-Z"].*\.$/, name);
    assert.match(option.flag?.help ?? option.help, /^[A-Z"].*\.$/, name);
  }
});

test("no command has two flags of one name, or two options of one key", () => {
  for (const [name, syntax] of Object.entries<Syntax>(commands)) {
    const { own, common } = commandFlags(syntax);
    const rows = [...own, ...common];
    for (const names of [rows.map((row) => row.name), rows.map((row) => row.key), rows.flatMap(shorts)])
      assert.equal(new Set(names).size, names.length, `${name}: ${names.join(" ")}`);
  }
});

const shorts = ({ option }: { option: Option }) => (option.flag?.short ? [option.flag.short] : []);

test("an option of an earlier version is refused with its name in this one", () => {
  const old: [FunctionName, object, string][] = [
    ["load", { kernel: "dot4" }, "dotProduct"],
    ["load", { kv: "q8" }, "kvCacheType"],
    ["load", { cacheTokens: 64 }, "kvCacheTokens"],
    ["load", { firstCome: true }, "scheduling"],
    ["load", { maxQueue: 4 }, "maxWaiting"],
    ["load", { spans: true }, "userTiming"],
    ["load", { layout: "stored" }, "repack"],
    ["load", { adapterBytes: 0 }, "maxAdapterBytes"],
    ["inspect", { kv: "q8" }, "kvCacheType"],
    ["complete", { preset: "none" }, "generationConfig"],
    ["generate", { preprocess: "safe" }, "sanitize"],
    ["chat", { format: "json" }, "responseFormat"],
    ["completeChat", { speculate: true }, "promptLookup"],
  ];
  for (const [name, options, expected] of old) {
    const [option] = Object.keys(options);
    assert.throws(
      () => checkOptions(name, options),
      (error) => {
        assert.ok(error instanceof EngineError);
        assert.deepEqual([error.code, error.detail], ["InvalidArgument", { option, expected }]);
        assert.ok(error.message.includes(`"${option}"; it is ${expected} now: `), error.message);
        return true;
      },
    );
  }
  const renamed = Object.values(groups).flatMap((group) =>
    Object.values<Option>(group).flatMap(({ was }) => was ?? []),
  );
  assert.deepEqual(renamed.sort(), [...new Set(old.map(([, options]) => Object.keys(options)[0]))].sort());
  // A name that an object has anyway is no option.
  assert.throws(
    () => checkOptions("load", { constructor: 1 }),
    /there is no option "constructor"; (did you mean \w+\? T|t)here are /,
  );
});

test("the sampler's numbers cross by kind, and the switches last", () => {
  const { sampling } = groups;
  const kinds = samplerNumbers.map((name) =>
    typeof sampling[name].kind === "string" ? "boolean" : Object.keys(sampling[name].kind)[0],
  );
  assert.deepEqual([...new Set(kinds)], ["number", "integer", "boolean"]);
  assert.equal(kinds.length, 24);
});

test("what a page loads holds no help", () => {
  for (const name of ["index.js", "worker.js"]) {
    const bundle = readFileSync(new URL(`pkg/dist/${name}`, root), "utf8");
    for (const { help } of Object.values(groups).flatMap((group) => Object.values<Option>(group)))
      assert.ok(!bundle.includes(help), `${name}: ${help}`);
  }
});
