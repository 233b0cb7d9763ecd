/** How the public objects look in the console of Node, Deno and Bun. */

import { GenerationStream } from "./generation.ts";
import { LoadedModel } from "./model.ts";
import { OpenSession } from "./session.ts";

/** The names by which these consoles find it. */
const NAMES = ["nodejs.util.inspect.custom", "Deno.customInspect"];

type Inspect = (value: unknown, options?: unknown) => string;

/** @param facts what is shown of an object behind its name */
function shows<T extends object>(prototype: T, name: string, facts: (object: T) => object): void {
  function show(this: T, ...given: unknown[]): string {
    // Node gives a depth, options and a function; Deno's own name the function and options.
    const inspect = given.find((one): one is Inspect => typeof one === "function");
    const shown = facts(this);
    return `${name} ${inspect ? inspect(shown) : JSON.stringify(shown)}`;
  }
  for (const symbol of NAMES) Object.defineProperty(prototype, Symbol.for(symbol), { value: show });
}

export function showObjects(): void {
  shows(LoadedModel.prototype, "Model", ({ info, adapters }) => {
    const { name, architecture, parameters, bitsPerWeight, contextLength, threads, flavour, memoryBytes } = info;
    const facts = { name, architecture, parameters, bitsPerWeight, contextLength, threads, flavour, memoryBytes };
    return adapters.length > 0 ? { ...facts, adapters: adapters.map(({ name }) => name) } : facts;
  });
  shows(OpenSession.prototype, "Session", ({ tokens, messages }) => ({
    tokens: tokens.length,
    messages: messages?.length ?? null,
  }));
  shows(GenerationStream.prototype, "Generation", () => ({
    pieces: "for await (const piece of generation)",
    text: "await generation.text()",
    all: "await generation.finished",
  }));
}
