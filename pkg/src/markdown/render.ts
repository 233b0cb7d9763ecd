/**
 * Markdown as elements. Texts become text nodes and nothing is parsed as HTML, so whatever a model writes stays text. Nothing is fetched: an
 * image is a link, and a link has no `href` for a browser to look up before somebody clicks it.
 */

import { type Block, linesOf, parseBlocks } from "./blocks.ts";
import { type Mark, parseInline } from "./inline.ts";

/** Elements inside each other; what would lie deeper is shown without its mark. */
const MAX_NESTING = 24;

/** A text as elements, in a fragment that can be put anywhere. */
export function renderMarkdown(text: string): DocumentFragment {
  const fragment = document.createDocumentFragment();
  fragment.append(...parseBlocks(linesOf(text)).map(element));
  return fragment;
}

/**
 * A text that grows, in an element of its own. What stands before the block that is being written is left as it is, with the selection that
 * a reader made in it.
 */
export class MarkdownStream {
  #into: Element;
  #text = "";
  /** Where the last block begins in the text, and in the element. */
  #from = 0;
  #kept = 0;

  constructor(into: Element) {
    this.#into = into;
  }

  /** The whole text so far; it may also be another one than before. */
  update(text: string): void {
    if (!text.startsWith(this.#text)) this.#from = this.#kept = 0;
    this.#text = text;
    const lines = linesOf(text.slice(this.#from));
    const blocks = parseBlocks(lines);
    while (this.#into.childNodes.length > this.#kept) this.#into.lastChild!.remove();
    this.#into.append(...blocks.map(element));
    const last = blocks.at(-1);
    // The two lines that decide what a block is must be whole. Offsets are of texts whose lines end as this module's do.
    if (blocks.length < 2 || last!.line + 2 >= lines.length || text.includes("\r")) return;
    const before = text.slice(this.#from).split("\n", last!.line);
    this.#from += before.reduce((sum, line) => sum + line.length + 1, 0);
    this.#kept += blocks.length - 1;
  }
}

function element(block: Block): Element {
  if (block.kind === "paragraph") return directed("p", block.text);
  if (block.kind === "heading") return directed(`h${block.level}`, block.text);
  if (block.kind === "rule") return document.createElement("hr");
  if (block.kind === "code") return code(block.language, block.text);
  if (block.kind === "table") return table(block);
  if (block.kind === "list") return list(block);
  const quote = document.createElement("blockquote");
  quote.append(...block.blocks.map(element));
  return quote;
}

/** Text with its own direction, from its first letters. */
function directed(tag: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.dir = "auto";
  made.append(inline(text));
  return made;
}

function code(language: string, text: string): Element {
  const [pre, inside] = [document.createElement("pre"), document.createElement("code")];
  pre.dir = "ltr";
  // Wide lines scroll, for which the keyboard needs the focus.
  pre.tabIndex = 0;
  if (language) inside.dataset.language = language;
  inside.textContent = text;
  pre.append(inside);
  return pre;
}

function list({ start, loose, items }: Extract<Block, { kind: "list" }>): Element {
  const made = document.createElement(start === null ? "ul" : "ol");
  // Of the whole list: numbers stand on one side.
  made.dir = "auto";
  if (start !== null && start !== 1) made.setAttribute("start", String(start));
  for (const { checked, blocks } of items) {
    const item = document.createElement("li");
    if (checked !== null) item.append(checkbox(checked), " ");
    for (const block of blocks) {
      // Only a list whose items stand apart has paragraphs.
      if (!loose && block.kind === "paragraph") item.append(inline(block.text));
      else item.append(element(block));
    }
    made.append(item);
  }
  return made;
}

function checkbox(checked: boolean): Element {
  const made = document.createElement("span");
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", checked ? "done" : "to do");
  made.textContent = checked ? "☑" : "☐";
  return made;
}

function table({ align, head, rows }: Extract<Block, { kind: "table" }>): Element {
  const made = document.createElement("table");
  const row = (tag: string, cells: string[]) => {
    const line = document.createElement("tr");
    for (const [column, text] of cells.entries()) {
      const cell = directed(tag, text);
      if (tag === "th") cell.setAttribute("scope", "col");
      // By a style property, which a content security policy lets a script set.
      if (align[column]) cell.style.textAlign = align[column];
      line.append(cell);
    }
    return line;
  };
  const [top, body] = [document.createElement("thead"), document.createElement("tbody")];
  top.append(row("th", head));
  body.append(...rows.map((cells) => row("td", cells)));
  made.append(top, body);
  return made;
}

function inline(text: string): DocumentFragment {
  const fragment = document.createDocumentFragment();
  const open: (DocumentFragment | Element)[] = [fragment];
  let deeper = 0;
  for (const mark of parseInline(text)) {
    const into = open.at(-1)!;
    if (mark.kind === "open") {
      if (open.length > MAX_NESTING) {
        deeper++;
        continue;
      }
      const made = mark.tag === "a" ? link(mark.address) : document.createElement(mark.tag);
      into.append(made);
      open.push(made);
    } else if (mark.kind === "close") {
      if (deeper > 0) deeper--;
      else finish(open.pop() as Element);
    } else into.append(leaf(mark));
  }
  return fragment;
}

function leaf(mark: Extract<Mark, { kind: "text" | "code" | "break" }>): Node {
  if (mark.kind === "text") return document.createTextNode(mark.text);
  if (mark.kind === "break") return document.createElement("br");
  const made = document.createElement("code");
  made.textContent = mark.text;
  return made;
}

function link(address: string): Element {
  const made = document.createElement("a");
  made.setAttribute("role", "link");
  made.tabIndex = 0;
  made.title = address;
  const follow = () => window.open(address, "_blank", "noopener,noreferrer");
  made.onclick = follow;
  made.onkeydown = ({ key }) => {
    if (key === "Enter") follow();
  };
  return made;
}

/** A link whose text is not its address says where it leads, so that it cannot pretend to lead elsewhere. */
function finish(made: Element): void {
  if (!(made instanceof HTMLAnchorElement)) return;
  const address = new URL(made.title);
  if ([made.title, address.origin, made.title.replace(/\/$/, "")].includes(made.textContent!)) return;
  const place = document.createElement("small");
  place.textContent = ` (${address.host || address.pathname})`;
  made.append(place);
}
