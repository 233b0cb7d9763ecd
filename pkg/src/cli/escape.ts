/**
 * Text of models on a terminal.
 *
 * A token, a name or an error may hold characters that a terminal obeys: an escape sequence can clear the screen or write the clipboard,
 * a direction mark can turn a line around. On a terminal each such character is shown as an escape (`\x1b`, `\u202e`); only newline and
 * tab keep their meaning. A pipe or a file gets text as it is, because a program that reads it needs the same characters. JSON has
 * escapes of its own, which are used everywhere: they stand for the same text.
 *
 * All of these characters are single UTF-16 units, so a text may come in pieces of any length.
 */

/** C0 but newline and tab, DEL, C1, and the characters that Unicode calls Bidi_Control. */
const OBEYED = /(?![\n\t])[\p{Cc}\p{Bidi_Control}]/gu;

const digits = (letter: string, count: number) => letter.charCodeAt(0).toString(16).padStart(count, "0");

/** A text as it may be shown. */
export const forTerminal = (text: string): string =>
  text.replace(OBEYED, (letter) => (letter < "\u0100" ? `\\x${digits(letter, 2)}` : `\\u${digits(letter, 4)}`));

/** The same JSON, without characters that a terminal would obey; `JSON.stringify` itself escapes only the first 32. */
export const forJson = (json: string): string => json.replace(OBEYED, (letter) => `\\u${digits(letter, 4)}`);
