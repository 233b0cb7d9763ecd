/** Markdown that a model wrote, as elements of a page. A bundle of its own, which a page loads when it first shows an answer. */

export { MarkdownStream, renderMarkdown } from "./render.ts";
