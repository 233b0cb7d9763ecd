import { access, constants, readFile, stat } from "node:fs/promises";
import { NewFile } from "../convert/new_file.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { AdapterUse, Finished, Generation, Model, Session } from "../types/index.ts";
import { loadAdapters, scaled } from "./adapters.ts";
import type { Args } from "./args.ts";
import { formatOf } from "./constrain.ts";
import { ms, plural } from "./format.ts";
import { givenText } from "./input.ts";
import { loadOptions, withModel, withoutTensors } from "./model.ts";
import { answerPrompts, checkPrompts, unreadable } from "./prompts.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

export const run: Command = {
  name: "run",
  async run(args, terminal) {
    checkPrompt(args);
    const chosen = args.options("complete", ["generation", "sampling", "completions", "prompting"]);
    const file = args.text("session");
    if (file !== undefined && args.has("n")) {
      throw new UsageError("--completions does not go with --session", { option: "--completions" });
    }
    const responseFormat = await formatOf(args);
    const options = {
      ...chosen,
      ...(responseFormat ? { responseFormat } : {}),
      signal: terminal.signal,
    };
    scaled(args);
    const load = loadOptions(args, ["serving", "loading"]);
    const { prompts, out } = args.own<{ prompts?: string; out?: string }>("promptFlags");
    const others = { "--session": file !== undefined, "-p": args.has("prompt"), "--ids": args.has("ids") };
    checkPrompts({ ...others, "-": args.operands[1] !== undefined, "--json": terminal.json }, out, prompts);
    if (prompts !== undefined) {
      await access(prompts, constants.R_OK).catch((cause) => {
        throw unreadable(prompts, cause);
      });
      return withModel(args, terminal, load, async (model) => {
        const adapters = await loadAdapters(args, load, model, terminal);
        await answerPrompts(model, { prompts, out, options: { ...options, ...adapters } }, terminal);
      });
    }
    if (file !== undefined) await checkPlace(file);
    const prompt = args.ids() ?? (await givenText(args, noPrompt(), terminal.signal));
    await withModel(args, terminal, load, async (model) => {
      const adapters = await loadAdapters(args, load, model, terminal);
      const session = file === undefined ? null : await restored(model, file, adapters);
      const finished = await answer(model, (session ?? model).generate(prompt, { ...options, ...adapters }), terminal);
      if (session) await keep(session, file!);
      if (plain(model, prompt)) await hintAtChat(args.operands[0]!, finished, terminal);
    });
  },
};

/** The session that was saved in a file, or a new one where there is no file. */
async function restored(model: Model, file: string, adapters: { adapters?: AdapterUse[] }): Promise<Session> {
  const saved = await readFile(file).catch((cause) => {
    if (cause.code === "ENOENT") return undefined;
    throw new EngineError("NotFound", `${file}: ${cause.message}`, { file }, { cause });
  });
  if (!saved) return model.session(adapters);
  return model.restoreSession(saved, adapters).catch((cause: EngineError) => {
    // Of the option that the engine names a user of the command line knows nothing.
    const { code, message, detail } = cause;
    if (detail?.option !== "restore") throw cause;
    const option = "--session";
    throw new EngineError(
      code,
      `${file}: ${message.replace("option restore: ", "")}`,
      { ...detail, file, option },
      { cause },
    );
  });
}

/** Checks that `keep` can write its file, before there is an answer that could be lost. */
async function checkPlace(file: string): Promise<void> {
  if (file === "") throw new UsageError("--session must be a file's name, which is not empty", { option: "--session" });
  const found = await stat(file).catch(() => null);
  if (found?.isDirectory()) throw unwritable(file, new Error("it is a folder"));
  if (found && !found.isFile()) throw unwritable(file, new Error("it is no regular file"));
  try {
    NewFile.create(file).discard();
  } catch (cause) {
    throw unwritable(file, cause);
  }
}

/** Saves the session under another name first and replaces the file once that one is complete; only its owner may read it. */
async function keep(session: Session, file: string): Promise<void> {
  const bytes = await session.save();
  let made: NewFile | null = null;
  try {
    made = NewFile.create(file);
    await made.write(bytes, 0);
    await made.finish({ private: true });
  } catch (cause) {
    made?.discard();
    throw unwritable(file, cause);
  }
}

function unwritable(file: string, cause: unknown): EngineError {
  const reason = `the session cannot be kept in ${file}: ${(cause as Error).message}`;
  return new EngineError("Unwritable", reason, { file }, { cause });
}

const noPrompt = () => new UsageError("give either -p TEXT or --ids 1,2,3, or the text on standard input");

/** Wrong flags are told before standard input is read. */
function checkPrompt(args: Args): void {
  const given = [args.ids(), args.text("prompt"), args.operands[1]].filter((one) => one !== undefined);
  if (given.length > 1) throw noPrompt();
}

/** What text that spells a template's tokens itself has. */
const FORMATTED = /<\||\[INST\]|<start_of_turn>/;

/** Whether a model that was trained to chat got a text that is no chat. */
const plain = ({ info }: Model, prompt: string | number[]) =>
  info.template !== null && typeof prompt === "string" && !FORMATTED.test(prompt);

async function hintAtChat(model: string, finished: Finished, terminal: Terminal): Promise<void> {
  const nothing = finished.tokens.length === 0 && finished.finishReason === "stop";
  const took = nothing ? "the model took the text for complete and added nothing: it" : "the text";
  const chat = `to talk to the model: ternlight chat ${shownSource(model)}`;
  await terminal.note(`hint: ${took} went to the model as it is, without its chat template; ${chat}`);
}

/** Prints a generation while it runs, or all of it as JSON. Ctrl-C ends it with the text so far. */
async function answer(model: Model, generation: Generation, terminal: Terminal): Promise<Finished> {
  const show = async () => {
    if (!terminal.json) await stream(model, generation, terminal);
    return generation.finished;
  };
  const finished = await terminal.interruptible(show, () => generation.stop());
  if (terminal.json) {
    await terminal.printJson({ ...finished, model: withoutTensors(model.info) });
    return finished;
  }
  const { promptN, promptPerSecond, predictedN, predictedPerSecond, ttftMs } = finished.timings;
  const facts = [
    plural(promptN, "prompt token") + at(promptPerSecond),
    `first after ${ms(ttftMs)}`,
    plural(predictedN, "token") + at(predictedPerSecond),
    finished.finishReason === "stopped" ? "stopped" : `ended by ${finished.finishReason}`,
    ...(finished.choices ? [plural(finished.choices.length, "completion")] : []),
    `${model.info.flavour}, ${plural(model.info.threads, "thread")}`,
  ];
  await terminal.note(facts.join(" · "));
  return finished;
}

/** The rate in words; a single token has none. */
const at = (perSecond: number) => (perSecond > 0 ? ` at ${perSecond.toFixed(perSecond < 100 ? 1 : 0)} tokens/s` : "");

/** Prints the first completion while it runs, and the others after it. */
async function stream(model: Model, generation: Generation, terminal: Terminal): Promise<void> {
  // Without a tokenizer there are only ids.
  const shown = (text: string, tokens: number[]) => (model.info.tokenizer ? text : `${tokens.join(" ")} `);
  for await (const { text, tokens, index = 0 } of generation) {
    if (index === 0) await terminal.print(shown(text, tokens));
  }
  await terminal.print("\n");
  const { choices = [] } = await generation.finished;
  for (const { text, tokens } of choices.slice(1)) await terminal.print(`---\n${shown(text, tokens)}\n`);
}
