/**
 * Writes what follows from the tables of options, commands and errors: the reference pages, and `tests/options.json`, which the tests
 * of the engine read.
 *
 *     node pkg/scripts/reference.mjs
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { evaluate } from "./options.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));
const source = (name) => path.join(root, "pkg", "src", name);

const targets = {
  caller: "the calling side",
  prompt: "the worker, as a part of the prompt",
  host: "the worker",
  plan: "the engine, with the load",
  sampler: "the engine, with each answer",
  command: "the command",
};

/** The heading of each function, by its name in the table. */
const calls = [
  [
    ["canRun", "load"],
    "load and canRun",
    "`memory` belongs to `canRun` alone. `ternlight/edge` takes no `threads` and no `flavour`.",
  ],
  [["configure"], "configure", "What is left out stays as it is."],
  [["inspect"], "inspect", ""],
  [
    ["completeChat", "complete", "chat", "generate"],
    "generate and chat",
    "`tools`, `toolChoice` and `templateOptions` belong to `chat` alone, `n` to a model's calls and not to a session's.",
  ],
  [["session"], "session", ""],
  [["loadAdapter"], "loadAdapter", ""],
  [["tokenize"], "tokenize", ""],
  [["detokenize"], "detokenize", ""],
  [["logits"], "logits", ""],
  [["promptLogprobs"], "promptLogprobs", ""],
  [["embed"], "embed", ""],
  [["perplexity"], "perplexity", ""],
  [["health"], "health", ""],
  [["metrics"], "metrics", ""],
  [["cache"], "cache.list and cache.delete", ""],
  [["doctor"], "doctor", ""],
  [["deviceReport"], "deviceReport", ""],
];

const kinds = {
  adapters: "list of `{ name, scale }`",
  bannedSequences: "list of texts and lists of ids",
  boolean: "`true` or `false`",
  bytes: "`Uint8Array`",
  cache: "`true`, `false` or a directory",
  damage: "`{ codes, nan }`",
  function: "function",
  health: "`true`, `false` or `{ share, thresholds }`",
  integrity: "SHA-256, or an object of them",
  list: "list",
  logitBias: "object of ids and numbers",
  module: "`WebAssembly.Module`",
  object: "object",
  responseFormat: '`"json"` or an object with `type`',
  prefill: "text, ids, messages, `{ messages, tools, templateOptions }` or saved session",
  samplers: "list of names",
  signal: "`AbortSignal`",
  stop: "text or list of texts",
  text: "text",
  texts: "list of texts",
  toolChoice: '`"auto"`, `"none"`, `"required"` or `{ name }`',
};

const cell = (text) => text.replaceAll("|", "\\|");
const row = (...cells) => `| ${cells.map(cell).join(" | ")} |`;
const table = (head, rows) =>
  [row(...head), row(...head.map(() => "---")), ...rows.map((cells) => row(...cells))].join("\n");
const note = (what) => `<!-- Generated from ${what} by pkg/scripts/reference.mjs. -->`;

function kindText(kind) {
  if (typeof kind === "string") return kinds[kind];
  if ("values" in kind) return kind.values.map((value) => `\`"${value}"\``).join(", ") + (kind.map ? " or a map" : "");
  const [least, most] = kind.integer ?? kind.number;
  return `${kind.integer ? "integer" : "number"} from ${least} to ${most}`;
}

function optionsPage({ functions }, { defaultText, flagGroups: groups, flagsOf, spelled }) {
  const flags = new Map(flagsOf(Object.keys(groups)).map((flag) => [flag.option, spelled(flag)]));
  const rowsOf = (names) =>
    names.flatMap((group) =>
      Object.entries(groups[group]).map(([name, option]) => {
        const { kind, unit, help, to } = option;
        const flag = flags.get(option);
        const range = `${kindText(kind)}${unit ? ` (${unit})` : ""}`;
        return [`\`${name}\``, range, defaultText(option) ?? "", flag ? `\`${flag}\`` : "", targets[to], help];
      }),
    );
  const head = ["option", "value", "default", "flag", "acted on by", ""];
  const sections = calls.map(([[name], title, more]) =>
    [`## ${title}`, ...(more ? [more] : []), table(head, rowsOf(functions[name]))].join("\n\n"),
  );
  const edge = [
    "## ternlight/edge",
    "These come beside the options of `load`, `inspect` and `canRun`.",
    table(head, rowsOf(["edge"])),
  ];
  const advice = [
    "## recommend",
    "Of `ternlight/doctor`, as is `deviceReport`; a flag is one of the command `recommend`.",
    table(head, rowsOf(["advising"])),
  ];
  const app = [
    "## createApp",
    "Of `ternlight/server`; a flag is one of the command `serve`.",
    table(head, rowsOf(["serverApp"])),
  ];
  const old = Object.values(groups).flatMap((group) =>
    Object.entries(group).flatMap(([name, { was }]) => (was ? [[`\`${was}\``, `\`${name}\``]] : [])),
  );
  return [
    "# Options",
    note("pkg/src/options"),
    "An option that is `undefined` counts as left out. An unknown name or a value of another kind is an `InvalidArgument` whose `detail.option` names the option. Where a default is the model's, it stands in the model's `generation_config.json` or in its GGUF header.",
    ...sections,
    ...edge,
    ...advice,
    ...app,
    "## Names of earlier versions",
    "These are refused, with the new name in the message.",
    table(["earlier", "now"], old),
    "",
  ]
    .join("\n\n")
    .trimEnd();
}

function commandsPage(commandLine) {
  const { commands, commonFlags, flagHelp, flagsOf, operands, spelled, usageLine } = commandLine;
  const rowsOf = (groups) => flagsOf(groups).map((flag) => [`\`${spelled(flag)}\``, flagHelp(flag)]);
  const sections = Object.entries(commands).map(([name, { summary, operands: needed, optional = [], flags }]) => {
    const rows = [
      ...[...needed, ...optional].map((operand) => [`\`${operand}\``, operands[operand]]),
      ...rowsOf(flags),
    ];
    const usage = usageLine(name).replace("usage: ", "");
    return [
      `## ${name}`,
      summary,
      `\`\`\`text\n${usage}\n\`\`\``,
      ...(rows.length > 0 ? [table(["", ""], rows)] : []),
    ].join("\n\n");
  });
  return [
    "# Command line",
    note("pkg/src/options"),
    "Results go to stdout, all else to stderr. The exit status is 0 for success, 1 for a failure, 2 for wrong usage and 130 after Ctrl-C. With `--json` there is exactly one JSON object on stdout, an error included.",
    "Each flag may also stand in the environment: `--max-waiting` as `TERNLIGHT_MAX_WAITING`, a switch as `1`, and one that may be given several times with a line for each. A flag that is given wins, also over the variables of flags that it rules out, and so does an operand; a variable of a flag that the command never takes, as `TERNLIGHT_ACTIVATIONS` for `calibrate`, is left aside.",
    ...sections,
    "## With every command",
    table(["", ""], rowsOf(commonFlags)),
  ].join("\n\n");
}

function errorsPage({ errorCodes }) {
  const rows = Object.entries(errorCodes).map(([code, { meaning, when, action }]) => [
    `\`${code}\``,
    meaning,
    when,
    action,
  ]);
  return [
    "# Errors",
    note("pkg/src/types/error_codes.ts"),
    "Every error that ternlight raises by itself is an `EngineError` with a `code`, which is stable, a `message` for people and a `detail` object with the fields that apply: `file`, `tensor`, `key`, `option`, `offset`, `expected`, `found`, `needed`, `available`. A call that was aborted rejects with its signal's reason instead.",
    table(["code", "meaning", "when", "what to do"], rows),
  ].join("\n\n");
}

const requests = {
  createChatCompletion: "POST /v1/chat/completions",
  createCompletion: "POST /v1/completions",
  createEmbedding: "POST /v1/embeddings",
  createResponse: "POST /v1/responses",
  createMessage: "POST /v1/messages",
  createFile: "POST /v1/files",
  createBatch: "POST /v1/batches",
};

/** A schema in a few words. */
function schemaText(schema) {
  const { type, enum: values, anyOf, minimum, maximum, minItems, maxItems } = schema;
  if (anyOf) return [...new Set(anyOf.map(schemaText))].join(" or ");
  if (values) return values.map((value) => `\`${JSON.stringify(value)}\``).join(", ");
  const kinds = [type ?? "object"].flat().filter((kind) => kind !== "null" || type === "null");
  const large = maximum !== undefined && maximum >= 2 ** 31 - 1;
  const range =
    minimum !== undefined && !large ? ` from ${minimum}${maximum === undefined ? "" : ` to ${maximum}`}` : "";
  const items = maxItems === undefined ? "" : ` of ${minItems ?? 0} to ${maxItems}`;
  return `${kinds.join(" or ")}${range}${items}`;
}

function serverPage({ document }) {
  const { schemas } = document("").components;
  const sections = Object.entries(requests).map(([name, title]) => {
    const { properties, required } = schemas[name];
    const rows = Object.entries(properties).map(([field, schema]) => [
      `\`${field}\``,
      required.includes(field) ? "required" : (schema["x-treatment"] ?? "taken"),
      schema["x-treatment"] === "refused" ? "" : schemaText(schema),
      schema.description ?? "",
    ]);
    return [`## ${title}`, table(["field", "", "value", ""], rows)].join("\n\n");
  });
  return [
    "# Requests of the server",
    note("pkg/src/openai"),
    "A field that is taken does what it says. One that is ignored is checked and has no effect. One that is refused is a 400 that names it. Fields that are not listed are taken without effect, and every field that is not required may be `null`.",
    ...sections,
  ].join("\n\n");
}

/** What the engine's tests compare: its options, and the samplers' numbers in the order in which they cross. */
function engineTable({ groups }, { samplerNumbers }) {
  const rows = (to) =>
    Object.values(groups).flatMap((group) => Object.entries(group).filter(([, option]) => option.to === to));
  const found = ({ kind, default: byDefault, engineDefault }) => ({
    kind,
    default: engineDefault ?? byDefault ?? null,
  });
  return {
    plan: Object.fromEntries(rows("plan").map(([name, option]) => [name, found(option)])),
    sampler: Object.fromEntries(rows("sampler").map(([name, option]) => [name, found(option)])),
    samplerNumbers,
  };
}

/** The files that follow from the tables, with their contents. */
export async function reference() {
  const modules = [
    "options/table.ts",
    "options/commands.ts",
    "options/routes.ts",
    "types/error_codes.ts",
    "openai/document.ts",
  ];
  const [options, commandLine, routes, errors, server] = await Promise.all(
    modules.map((name) => evaluate(source(name))),
  );
  return {
    "docs/reference/options.md": `${optionsPage(options, commandLine)}\n`,
    "docs/reference/cli.md": `${commandsPage(commandLine)}\n`,
    "docs/reference/errors.md": `${errorsPage(errors)}\n`,
    "docs/reference/server.md": `${serverPage(server)}\n`,
    "tests/options.json": `${JSON.stringify(engineTable(options, routes), null, 2)}\n`,
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [name, text] of Object.entries(await reference())) writeFileSync(path.join(root, name), text);
}
