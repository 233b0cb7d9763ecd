/**
 * A conversation as a tree: a question that is edited, or an answer that is written again, is another child of the same parent, and nothing
 * is lost. `leaf` is the message that is read last. Plain data, so that it can be kept, exported and imported as it is.
 */

/** How long a title is cut. */
const TITLE = 60;

export function newConversation(system = "") {
  return { id: crypto.randomUUID(), title: "New chat", changed: Date.now(), system, nodes: [], leaf: null };
}

/** Adds a message below another and reads on from it. @returns its number */
export function add(conversation, parent, message) {
  const { nodes } = conversation;
  nodes.push({ parent, ...message });
  conversation.leaf = nodes.length - 1;
  conversation.changed = Date.now();
  const first = nodes.find(({ role }) => role === "user");
  if (first) conversation.title = first.content.trim().split("\n", 1)[0].slice(0, TITLE) || "A file";
  return conversation.leaf;
}

/** Takes back the message that was added last, which nothing follows. */
export function takeBack(conversation, before) {
  conversation.nodes.pop();
  conversation.leaf = before;
}

/** The numbers of the messages from the first to one of them. */
export function pathTo({ nodes }, number) {
  const path = [];
  for (let at = number; at !== null; at = nodes[at].parent) path.unshift(at);
  return path;
}

/** Messages with the same parent: versions of each other. */
export function versions({ nodes }, number) {
  const { parent } = nodes[number];
  return [...nodes.keys()].filter((other) => nodes[other].parent === parent);
}

/** Reads on from another version, along its latest messages. */
export function choose(conversation, number) {
  let leaf = number;
  for (;;) {
    const next = conversation.nodes.findLastIndex(({ parent }) => parent === leaf);
    if (next < 0) break;
    leaf = next;
  }
  conversation.leaf = leaf;
}

/** What the model is given of the messages up to one. */
export function messagesTo(conversation, number) {
  const { system, nodes } = conversation;
  const messages = pathTo(conversation, number).map((at) => ({ role: nodes[at].role, content: contentOf(nodes[at]) }));
  return system.trim() === "" ? messages : [{ role: "system", content: system }, ...messages];
}

/** Files go before what is asked of them. */
const contentOf = ({ content, files = [] }) =>
  [...files.map(({ name, text }) => `File ${name}:\n\n${text}`), content].filter((part) => part !== "").join("\n\n");

/** The messages up to one, as a conversation of their own. */
export function branch(conversation, number) {
  const made = newConversation(conversation.system);
  for (const at of pathTo(conversation, number)) {
    const { parent, ...message } = structuredClone(conversation.nodes[at]);
    add(made, made.leaf, message);
  }
  return made;
}
