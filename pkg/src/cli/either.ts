/** What rules each other out: flags by their keys, and operands that may be given by their names. */

import type { CommandName, FlagKey } from "../options/commands.ts";
import { loadPlan } from "../options/table/command_line.ts";

/** Flags with which a load test measures: all of the group but `serverModel`, which stands for the model, too. */
export const MEASURES = (Object.keys(loadPlan) as (keyof typeof loadPlan)[]).filter((key) => key !== "serverModel");

type Side = readonly (FlagKey | "MODEL" | "URL" | "-")[];

/** Of each, a command takes one side. */
const EITHER: readonly (readonly Side[])[] = [
  [["unix"], ["host", "port"]],
  [["cache"], ["noCache"]],
  [["weights"], ["noWeights"]],
  [["-"], ["prompt"], ["ids"], ["prompts", "out"]],
  [["session"], ["prompts", "out"], ["n"]],
  [["jsonSchema"], ["regex"], ["grammar"]],
  [["keep"], ["tokens"]],
  [["entropyThreshold"], ["budget"]],
  [["MODEL"], ["shape", "weightType", "embeddingType"], ["host", "serverModel", "apiKey", "chat", "stopAtEos"]],
  [["clients", "seconds"], MEASURES],
  [["rps"], ["users"]],
  [["URL"], ["all"]],
];

/** What one command refuses, though others take it: in any case, or beside another flag. */
const REFUSED: Readonly<Partial<Record<CommandName, readonly { flag: FlagKey; beside?: FlagKey }[]>>> = {
  calibrate: [{ flag: "activations" }],
  run: [{ flag: "json", beside: "prompts" }],
};

export const refusedBy = (command: CommandName, given: readonly string[]): FlagKey[] =>
  (REFUSED[command] ?? [])
    .filter(({ beside }) => beside === undefined || given.includes(beside))
    .map(({ flag }) => flag);

/** What does not go with any of these. */
export const excludedBy = (given: readonly string[]): string[] =>
  EITHER.flatMap((sides) => {
    const others = sides.filter((side) => !side.some((one) => given.includes(one)));
    return others.length < sides.length ? others.flat() : [];
  });
