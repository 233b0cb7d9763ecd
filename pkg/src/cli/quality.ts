import { quality as measure, readTasks } from "../node-quality.ts";
import { activationsName, qualityPicture, settingName } from "../quality/picture.ts";
import { checkLists } from "../quality/tools.ts";
import type { QualityOptions, QualityReport, QualityRow } from "../quality/types.ts";
import { shownSource } from "../source/address.ts";
import type { EngineError } from "../types/errors.ts";
import type { ActivationMap, Activations } from "../types/index.ts";
import { Memo } from "./calibration.ts";
import { intervalOf } from "./compared.ts";
import { readText, writeText } from "./file.ts";
import { bytes, percent, plural, table } from "./format.ts";
import { textOf } from "./input.ts";
import { loadOptions, source, sourceOf } from "./model.ts";
import { UsageError } from "./syntax.ts";
import { versionOf } from "./tools.ts";
import type { Command } from "./usage.ts";
import { readMap } from "./values.ts";
import { version } from "./version.ts";

interface Flags extends Pick<QualityOptions, "kv" | "head" | "tokens"> {
  activations?: string[];
  against?: string;
  tasks?: string;
  csv?: string;
  plot?: string;
}

export const quality: Command = {
  name: "quality",
  async run(args, terminal) {
    const { against, tasks, csv, plot, activations, ...rest } = args.own<Flags>("qualityFlags");
    const read = activations?.map((text) => readMap(text, "--activations") as Activations | ActivationMap);
    const lists = { ...rest, ...(read ? { activations: read } : {}) };
    checkFlags(lists);
    const { window } = args.options("perplexity", ["perplexity"]);
    const load = loadOptions(args);
    const { signal } = terminal;
    const text = await textOf(args.operands[1]!, signal);
    const questions = tasks === undefined ? undefined : readTasks(await readText(tasks), tasks);
    const measuring = (memo?: Memo) =>
      measure(source(args), text, {
        ...lists,
        ...(window === undefined ? {} : { window }),
        ...(against === undefined ? {} : { against: sourceOf(against) }),
        ...(questions === undefined ? {} : { tasks: questions }),
        load,
        ...(memo ? { memo: memo.numbers } : {}),
        signal,
        onProgress(share) {
          terminal.passing(`measuring  ${Math.round(100 * share)} %`);
          memo?.save();
        },
      });
    // What is to be gone on with lies beside a file that the run writes.
    const beside = csv ?? plot;
    const report =
      beside === undefined
        ? await measuring()
        : await Memo.during(
            `${beside}.partial`,
            {
              ternlight: version(),
              model: await named([args.operands[0]!, ...(against === undefined ? [] : [against])], signal),
              load,
              text,
              questions,
              window,
              tokens: rest.tokens,
            },
            measuring,
          );
    terminal.passing("");
    const name = shownSource(args.operands[0]!);
    if (terminal.json) await terminal.printJson({ model: name, ...report });
    else await terminal.print(`${tableOf(name, report)}\n`);
    // Behind the report, which a full disk must not cost.
    if (csv) await writeText("--csv", csv, csvOf(report));
    if (plot) await writeText("--plot", plot, qualityPicture(report, `Quality of ${name}`));
  },
};

const named = (models: readonly string[], signal: AbortSignal): Promise<unknown[]> =>
  Promise.all(models.map(async (model) => [model, await versionOf(model, signal)]));

function checkFlags(lists: Pick<QualityOptions, "kv" | "activations" | "head">): void {
  try {
    checkLists(lists);
  } catch (error) {
    const { option, expected, found } = (error as EngineError).detail;
    throw new UsageError(`--${option} must be ${expected}, not ${found}`, { option: `--${option}`, expected, found });
  }
}

function tableOf(name: string, { rows, reference, window }: QualityReport): string {
  const withTasks = rows.some(({ tasks }) => tasks);
  const head = [
    "",
    "setting",
    "perplexity",
    "95 %",
    "KL, nats",
    "same winner",
    "prompt/s",
    "tokens/s",
    "file",
    "packed",
    "memory",
  ];
  const lines = rows.map((row) => [...cells(row), ...(withTasks ? accuracy(row) : [])]);
  const [{ tokens }] = rows as [QualityRow];
  const against = reference.model === "itself" ? "the same model with kv f32" : "the other model";
  return [
    `${name}: ${plural(tokens, "token")} in windows of ${window}, compared with ${against} (perplexity ${reference.perplexity.toFixed(4)})`,
    table(`llrrrrrrrrr${withTasks ? "rr" : ""}`, [[...head, ...(withTasks ? ["acc", "acc_norm"] : [])], ...lines]),
    "* no other setting is as good in perplexity, tokens/s and memory, and better in one of them",
  ].join("\n");
}

const cells = (row: QualityRow): string[] => [
  row.pareto ? "*" : "",
  settingName(row),
  row.perplexity.toFixed(4),
  intervalOf(row),
  row.kl === null ? "–" : row.kl.toExponential(2),
  row.sameWinner === null ? "–" : percent(row.sameWinner),
  row.promptPerSecond.toFixed(1),
  row.predictedPerSecond.toFixed(1),
  bytes(row.fileBytes),
  bytes(row.weightBytes),
  bytes(row.memory),
];

const accuracy = ({ tasks }: QualityRow): string[] =>
  tasks ? [share(tasks.acc, tasks.accError), share(tasks.accNorm, tasks.accNormError)] : ["", ""];

const share = (part: number, error: number | null): string =>
  error === null ? percent(part) : `${percent(part)} ± ${(100 * error).toFixed(1)}`;

const COLUMNS = [
  ...["kv", "activations", "head", "perplexity", "low", "high", "nll", "tokens", "kl", "same_winner"],
  ...["prompt_per_second", "predicted_per_second", "file_bytes", "weight_bytes", "memory", "pareto", "acc", "acc_norm"],
];

function csvOf({ rows }: QualityReport): string {
  const lines = rows.map(({ tasks, ...row }) => [
    ...[
      row.kv,
      activationsName(row.activations),
      row.head,
      row.perplexity,
      ...(row.interval ?? [null, null]),
      row.nll,
      row.tokens,
      row.kl,
      row.sameWinner,
    ],
    ...[row.promptPerSecond, row.predictedPerSecond, row.fileBytes, row.weightBytes, row.memory, row.pareto],
    ...[tasks?.acc, tasks?.accNorm],
  ]);
  return [COLUMNS, ...lines].map((line) => `${line.map((cell) => cell ?? "").join(",")}\n`).join("");
}
