/** Conversations as a file: what is exported, and what is taken of a file that somebody else may have written. */

import { problem } from "../dom.js";

const VERSION = 1;
export const MAX_BYTES = 64e6;

export const exported = (conversations) =>
  JSON.stringify({ ternlight: "conversations", version: VERSION, conversations });

/** The conversations of a file, each as a new one. Every field is checked and no other is taken. */
export function imported(text) {
  const { ternlight, version, conversations } = parsed(text);
  if (ternlight !== "conversations") throw wrong("the field ternlight is not conversations");
  if (version !== VERSION) throw wrong(`version ${JSON.stringify(version)} is not ${VERSION}`);
  if (!Array.isArray(conversations)) throw wrong("conversations is no list");
  return conversations.map((given, at) => conversation(given, `conversations[${at}]`));
}

function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch (error) {
    throw wrong(error.message);
  }
}

function conversation(given, place) {
  const title = string(given?.title, `${place}.title`);
  const system = string(given.system, `${place}.system`);
  if (!Array.isArray(given.nodes)) throw wrong(`${place}.nodes is no list`);
  const nodes = given.nodes.map((one, at) => node(one, at, `${place}.nodes[${at}]`));
  const { leaf } = given;
  if (leaf !== null && !(Number.isInteger(leaf) && leaf >= 0 && leaf < nodes.length)) {
    throw wrong(`${place}.leaf is no message`);
  }
  const changed = Number.isFinite(given.changed) ? given.changed : Date.now();
  return { id: crypto.randomUUID(), title, changed, system, nodes, leaf };
}

function node(given, at, place) {
  const { parent } = given ?? {};
  // Parents come first, so there is no circle.
  if (parent !== null && !(Number.isInteger(parent) && parent >= 0 && parent < at)) {
    throw wrong(`${place}.parent is no message before it`);
  }
  if (!["user", "assistant"].includes(given.role)) throw wrong(`${place}.role is neither user nor assistant`);
  const content = string(given.content, `${place}.content`);
  const files = (given.files ?? []).map((file, i) => ({
    name: string(file?.name, `${place}.files[${i}].name`),
    text: string(file?.text, `${place}.files[${i}].text`),
  }));
  return { parent, role: given.role, content, ...(files.length > 0 ? { files } : {}) };
}

function string(value, place) {
  if (typeof value !== "string") throw wrong(`${place} is no text`);
  return value;
}

const wrong = (message) => problem("BadImport", message);
