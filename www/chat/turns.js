/** One message of a conversation as the reader sees it, with what can be done with it. */

import { button, make } from "../dom.js";
import { rate, tokens } from "../format.js";
import { MarkdownStream, renderMarkdown } from "../ternlight/dist/markdown.js";
import { scrolled } from "../views.js";

const NAMES = { user: "You", assistant: "Model", system: "System", tool: "Tool" };

/**
 * @param acts { copy, edit, answer, branch, choose }: each is called with the message's number, `answer` with that of the question
 * @param all the numbers of the message's versions
 * @param isLast whether nothing follows the message: a question waits for its answer
 */
export function turnOf(message, number, all, acts, isLast) {
  const turn = article(message.role);
  const body = turn.querySelector(".body");
  if (message.role === "assistant") body.append(renderMarkdown(message.content));
  else body.append(plain(message.content));
  for (const pre of body.querySelectorAll("pre")) pre.before(copyCode(pre, acts.copy));
  body.prepend(...(message.files ?? []).map(attached));
  const tools = make("div", "tools");
  if (all.length > 1) tools.append(...versionButtons(number, all, acts.choose));
  tools.append(button("Copy", () => acts.copy(message.content)));
  if (message.role === "user") {
    tools.append(button("Edit", ({ target }) => edit(turn, message, target, (text) => acts.edit(number, text))));
    if (isLast) tools.append(button("Answer", () => acts.answer(number), "Answer: it has none yet"));
  } else {
    tools.append(button("Again", () => acts.answer(message.parent), "Again: another answer"));
  }
  tools.append(button("Branch", () => acts.branch(number), "Branch: go on from here in a chat of its own"));
  if (message.speed) tools.append(make("span", "quiet", speedOf(message.speed)));
  turn.append(tools);
  return turn;
}

const article = (role) =>
  make("article", `turn ${role}`, make("h3", {}, NAMES[role] ?? role), make("div", { className: "body", dir: "auto" }));

const plain = (text) => make("p", { className: "plain-text", dir: "auto" }, text);

/** The answer that is being written, and what brings it to the page once a frame. */
export function answerOf(log) {
  const turn = article("assistant");
  const stream = new MarkdownStream(turn.querySelector(".body"));
  let [text, shown] = ["", ""];
  const writer = {
    push(piece) {
      text += piece;
    },
    flush() {
      if (text === shown) return;
      shown = text;
      scrolled(log, () => stream.update(text));
    },
  };
  return { turn, writer };
}

function attached({ name, text }) {
  const summary = make("summary", {}, `${name} · ${text.length} characters`);
  return make("details", "attached", summary, make("pre", { tabIndex: 0, dir: "auto" }, text));
}

const copyCode = (pre, copy) => button("Copy code", () => copy(pre.textContent), null, "small copy-code");

function versionButtons(number, all, choose) {
  const at = all.indexOf(number);
  const step = (text, label, other) => {
    const made = button(text, () => choose(all[other]), label);
    made.disabled = all[other] === undefined;
    return made;
  };
  return [
    step("‹", "Earlier version", at - 1),
    make("span", "quiet", `${at + 1} of ${all.length}`),
    step("›", "Later version", at + 1),
  ];
}

const speedOf = ({ written, perSecond, computed, found, dropped }) =>
  [
    tokens(written),
    perSecond > 0 && `${rate(perSecond)} tokens/s`,
    `${tokens(computed)} read${found > 0 ? `, ${tokens(found)} kept from before` : ""}`,
    dropped > 0 && `the context is full: the model no longer sees the oldest ${dropped} messages`,
  ]
    .filter(Boolean)
    .join(" · ");

/** The question becomes a field; what was said stays as another version. Focus goes back to the button that `opened` it. */
function edit(turn, { content }, opened, ask) {
  const [body, tools] = [turn.querySelector(".body"), turn.querySelector(".tools")];
  const field = make("textarea", { value: content, rows: 3, dir: "auto", "aria-label": "Your message" });
  const back = () => {
    form.remove();
    body.hidden = tools.hidden = false;
    opened.focus();
  };
  const form = make("form", "edit", field, make("button", "primary", "Ask again"), button("Cancel", back));
  form.onsubmit = (event) => {
    event.preventDefault();
    ask(field.value);
  };
  field.onkeydown = (event) => {
    if (event.key !== "Escape" || event.isComposing || event.keyCode === 229) return;
    event.stopPropagation();
    back();
  };
  body.hidden = tools.hidden = true;
  turn.append(form);
  field.focus();
}
