import { writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { type Fields, fieldsOf } from "../openai/sampling.ts";
import { engineFlags } from "../options/commands.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage, GenerateOptions } from "../types/index.ts";
import type { Args } from "./args.ts";
import { readText } from "./file.ts";
import { DEMO, loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import { modelTalker, serverAt, serverTalker, type Talker } from "./talkers.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

const HELP = `/system TEXT  tells the model something before the conversation, which begins again
/save FILE    keeps the conversation
/load FILE    goes on from one that was kept
/clear        begins again
/exit         ends; so does Ctrl-D
Ctrl-C        stops an answer`;

/** Groups of flags for a model that is loaded here. */
const LOADING = ["serving", "loading"] as const;

export const chat: Command = {
  name: "chat",
  async run(args, terminal) {
    if (terminal.json) throw new UsageError("chat has no --json: run has it");
    const talker = await talkerOf(args, terminal);
    try {
      await terminal.warn(talker.warnings);
      const messages: ChatMessage[] = [];
      const [system, file] = [args.text("system"), args.text("load")];
      if (file !== undefined) messages.push(...(await kept(file)));
      if (system !== undefined) tell(messages, system);
      await terminal.note(`${talker.name}; /help shows what else there is`);
      await converse(talker, messages, terminal);
    } finally {
      await talker.close();
    }
  },
};

/** An address that serves OpenAI's interface is a server, any other one a model's. */
async function talkerOf(args: Args, terminal: Terminal): Promise<Talker> {
  const operand = args.operands[0] ?? DEMO;
  const chosen = args.options("complete", ["generation", "sampling"]);
  const load = loadOptions(args, LOADING);
  const key = args.text("key") ?? process.env.TERNLIGHT_API_KEY;
  const server = /^https?:\/\//i.test(operand) ? await serverAt(operand, key) : null;
  const asked = args.text("servedModel");
  if (server) return serverTalker(server.base, asked ?? server.models[0] ?? "", key, serverFields(args, chosen));
  if (asked !== undefined) throw new UsageError("--model belongs to a server's address", { option: "--model" });
  const { signal, progress: onProgress } = terminal;
  return modelTalker(operand, { ...load, signal, onProgress }, chosen);
}

/** The flags that a server can be asked for; what it cannot is refused, as it would have no effect. */
function serverFields(args: Args, chosen: GenerateOptions): Fields {
  const { fields, unknown } = fieldsOf(chosen);
  const answering = args.given(["generation", "sampling"]);
  const alien = [...args.given([...engineFlags, ...LOADING]).values(), ...unknown.map((key) => answering.get(key)!)];
  if (alien.length === 0) return fields;
  const has = alien.length === 1 ? "has" : "have";
  throw new UsageError(`${alien.join(", ")} ${has} no effect on a server`, { option: alien[0]! });
}

async function converse(talker: Talker, messages: ChatMessage[], terminal: Terminal): Promise<void> {
  const { stdin, stderr } = process;
  const lines = createInterface({
    input: stdin,
    output: stderr,
    terminal: Boolean(stdin.isTTY && stderr.isTTY),
    prompt: "> ",
  });
  let answering: AbortController | null = null;
  const interrupt = () => (answering ? answering.abort() : lines.close());
  lines.on("SIGINT", interrupt);
  const work = async () => {
    if (stdin.isTTY) lines.prompt();
    for await (const line of lines) {
      const text = line.trim();
      if (text === "/exit" || text === "/quit") break;
      if (text.startsWith("/")) await command(text, messages, terminal);
      else if (text !== "") {
        answering = new AbortController();
        await reply(talker, messages, text, answering.signal, terminal);
        answering = null;
      }
      if (stdin.isTTY) lines.prompt();
    }
  };
  try {
    await terminal.interruptible(work, interrupt);
  } finally {
    lines.close();
  }
}

/** Asks and prints what comes. What a stopped answer has said by then is a part of the conversation. */
async function reply(
  talker: Talker,
  messages: ChatMessage[],
  text: string,
  signal: AbortSignal,
  terminal: Terminal,
): Promise<void> {
  messages.push({ role: "user", content: text });
  let answer = "";
  try {
    for await (const piece of talker.answer(messages, signal)) {
      answer += piece;
      await terminal.print(piece);
    }
  } catch (error) {
    if (!signal.aborted) {
      // A script hears of it by the exit code; what it asks next builds on an answer that is missing.
      if (!process.stdin.isTTY) throw error;
      messages.pop();
      const { message } = error as Error;
      return terminal.note(`${error instanceof EngineError ? error.code : "Internal"}: ${message}`);
    }
  }
  messages.push({ role: "assistant", content: answer });
  await terminal.print("\n");
}

async function command(text: string, messages: ChatMessage[], terminal: Terminal): Promise<void> {
  const [, name = "", rest = ""] = /^\/(\w*)\s*(.*)$/s.exec(text) ?? [];
  try {
    if (name === "system") tell(messages, rest);
    else if (name === "clear") messages.splice(messages[0]?.role === "system" ? 1 : 0);
    else if ((name === "save" || name === "load") && rest === "") await terminal.note(`/${name} needs a FILE`);
    else if (name === "save") {
      await writeFile(rest, `${JSON.stringify({ messages }, null, 2)}\n`, { mode: 0o600 });
      await terminal.note(`kept in ${rest}`);
    } else if (name === "load") {
      messages.splice(0, Number.POSITIVE_INFINITY, ...(await kept(rest)));
      await terminal.note(`${messages.length} messages`);
    } else await terminal.note(name === "help" ? HELP : `there is no /${name}\n${HELP}`);
  } catch (error) {
    await terminal.note((error as Error).message);
  }
}

/** Begins the conversation again with a message of the system. */
function tell(messages: ChatMessage[], content: string): void {
  messages.splice(0, Number.POSITIVE_INFINITY, ...(content === "" ? [] : [{ role: "system", content }]));
}

/** A conversation that /save has written. */
async function kept(file: string): Promise<ChatMessage[]> {
  const text = await readText(file);
  const wrong = new EngineError("InvalidArgument", `${file} is no conversation: { "messages": [{ role, content }] }`, {
    file,
  });
  let messages: unknown;
  try {
    ({ messages } = JSON.parse(text));
  } catch {
    throw wrong;
  }
  const whole = (one: ChatMessage) => typeof one?.role === "string" && typeof one.content === "string";
  if (!Array.isArray(messages) || !messages.every(whole)) throw wrong;
  return messages;
}
