/** Filters, tests, methods of texts and functions that Jinja2 and Python have and the library lacks or does otherwise. */

import { Environment } from "@huggingface/jinja";
import {
  Bool,
  Callable,
  checkSize,
  contains,
  Dict,
  equal,
  Integer,
  isDict,
  isFloat,
  isList,
  isNumber,
  isText,
  isUndefined,
  iterate,
  kind,
  List,
  str,
  text,
  texts,
  undefinedValue,
  type Value,
} from "./jinja_values.ts";
import { MAX_LIST, MAX_RENDERED } from "./limits.ts";
import * as py from "./python.ts";

export function range(start: number, stop?: number, step = 1): number[] {
  // Another value would be turned into a number by way of its text, however long that is.
  if ([start, stop ?? 0, step].some((one) => typeof one !== "number")) throw new Error("range() takes numbers");
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0) throw new Error("range() step must not be zero");
  const count = Math.max(0, Math.ceil((to - from) / step));
  checkSize(count, MAX_LIST);
  return Array.from({ length: count }, (_, i) => from + i * step);
}

export function loop(items: readonly Value[], i: number): Value {
  const fields: Record<string, Value> = {
    index: new Integer(i + 1),
    index0: new Integer(i),
    revindex: new Integer(items.length - i),
    revindex0: new Integer(items.length - i - 1),
    first: new Bool(i === 0),
    last: new Bool(i === items.length - 1),
    length: new Integer(items.length),
    previtem: items[i - 1] ?? undefinedValue,
    nextitem: items[i + 1] ?? undefinedValue,
    cycle: new Callable((args) => args[i % args.length] ?? undefinedValue),
  };
  return new Dict(new Map(Object.entries(fields)));
}

const asText = (value: unknown): string => {
  if (typeof value !== "string") throw new Error("a text is expected as argument");
  return value;
};
const asTexts = (value: unknown): string[] => {
  if (typeof value === "string") return [...value];
  if (!Array.isArray(value)) throw new Error("a list of texts is expected as argument");
  return value.map((part: Value) => asText(part.value));
};
const asChars = (value: unknown): string | null => (value === undefined || value === null ? null : asText(value));
const asSeparator = (value: unknown): string | null => {
  if (value === "") throw new Error("empty separator");
  return asChars(value);
};
const asCount = (value: unknown): number => (typeof value === "number" ? value : -1);

function replace(all: string, old: unknown, by: unknown, count: unknown): Value {
  const [from, to] = [asText(old), asText(by)];
  const most = asCount(count);
  const parts = from === "" ? ["", ...all, ""] : py.split(all, from, most);
  const cuts = from === "" && most >= 0 ? Math.min(most, parts.length - 1) : parts.length - 1;
  checkSize(all.length + cuts * to.length, MAX_RENDERED);
  return text(parts.slice(0, cuts + 1).join(to) + parts.slice(cuts + 1).join(""));
}

function joined(parts: readonly string[], between: string): Value {
  checkSize(
    parts.reduce((size, part) => size + part.length + between.length, 0),
    MAX_RENDERED,
  );
  return text(parts.join(between));
}

/** The characters that `tojson` puts between values: indents and separators of any length. */
export function spacing(value: Value, keywords: ReadonlyMap<string, Value>): number {
  const indent = keywords.get("indent")?.value;
  const separators = keywords.get("separators");
  const by = typeof indent === "number" ? indent : 0;
  const between = separators && isList(separators) ? str(separators).length : 2;
  const of = (one: Value, depth: number): number => {
    if (!isList(one) && !isDict(one)) return between + depth * by;
    let size = between + 2 * depth * by;
    for (const child of one.value.values()) size += of(child, depth + 1);
    return size;
  };
  return of(value, 1);
}

export const dictMethods = new Set(["get", "items", "keys", "values"]);

/** What the arguments of a method are called, where templates name them. */
const argumentNames: Record<string, readonly string[]> = {
  split: ["sep", "maxsplit"],
  rsplit: ["sep", "maxsplit"],
  replace: ["old", "new", "count"],
};

/** A method of a text, or undefined where it is the library's or nobody's. */
export function textMethod(self: string, name: string): Value | undefined {
  const method = Object.hasOwn(textMethods, name) ? textMethods[name] : undefined;
  if (!method) return undefined;
  return new Callable((args) => {
    const plain: unknown[] = [];
    for (const arg of args) {
      // The library passes keywords last, in an object of their own.
      if (arg.type !== "KeywordArgumentsValue") plain.push(arg.value);
      else
        for (const [key, value] of arg.value as Map<string, Value>)
          plain[argumentNames[name]?.indexOf(key) ?? -1] = value.value;
    }
    return method(self, ...plain);
  });
}

const textMethods: Record<string, (self: string, ...args: unknown[]) => Value> = {
  strip: (self, chars) => text(py.strip(self, asChars(chars))),
  lstrip: (self, chars) => text(py.strip(self, asChars(chars), true, false)),
  rstrip: (self, chars) => text(py.strip(self, asChars(chars), false, true)),
  split: (self, separator, max) => texts(py.split(self, asSeparator(separator), asCount(max))),
  rsplit: (self, separator, max) => texts(py.rsplit(self, asSeparator(separator), asCount(max))),
  splitlines: (self) => texts(py.splitLines(self)),
  replace: (self, old, by, count) => replace(self, old, by, count),
  capitalize: (self) => text(py.capitalize(self)),
  title: (self) => text(py.title(self)),
  find: (self, part) => new Integer(py.find(self, asText(part))),
  count: (self, part) => new Integer(py.split(self, asSeparator(part)).length - 1),
  join: (self, parts) => joined(asTexts(parts), self),
  removeprefix: (self, prefix) => text(self.startsWith(asText(prefix)) ? self.slice(asText(prefix).length) : self),
  removesuffix: (self, suffix) => {
    const end = asText(suffix);
    return text(end !== "" && self.endsWith(end) ? self.slice(0, -end.length) : self);
  },
  isdigit: (self) => new Bool(/^\p{Nd}+$/u.test(self)),
  isalpha: (self) => new Bool(/^\p{L}+$/u.test(self)),
  isspace: (self) => new Bool(self !== "" && py.strip(self, null) === ""),
};

type Test = (value: Value, ...args: Value[]) => boolean;

export const tests: ReadonlyMap<string, Test> = new Map<string, Test>([
  ...(new Environment().tests as unknown as Map<string, Test>),
  ["iterable", (value) => isList(value) || isText(value) || isDict(value) || isUndefined(value)],
  ["float", isFloat],
  ["number", isNumber],
  ["eq", equal],
  ["equalto", equal],
  ["ne", (a, b) => !equal(a, b)],
  ["in", (item, container) => contains(container, item)],
]);

/** The items for which a test holds, or does not: of the item itself or of one of its attributes. */
function select(operand: Value, attribute: string | null, [test, ...args]: Value[], wanted: boolean): Value[] {
  const name = test ? str(test) : null;
  const holds = (value: Value): boolean => {
    if (name === null) return value.__bool__().value;
    const known = tests.get(name);
    if (!known) throw new Error(`no test is called ${name}`);
    return known(value, args[0] ?? undefinedValue);
  };
  const subject = (item: Value) => {
    if (attribute === null) return item;
    return attribute
      .split(".")
      .reduce((of, key) => (isDict(of) ? of.value.get(key) : undefined) ?? undefinedValue, item);
  };
  return iterate(operand).filter((item) => holds(subject(item)) === wanted);
}

type Filter = (operand: Value, args: Value[], keywords: Map<string, Value>) => Value;

export const filters: Record<string, Filter> = {
  trim: (operand, [chars], keywords) => text(py.strip(str(operand), asChars((chars ?? keywords.get("chars"))?.value))),
  capitalize: (operand) => text(py.capitalize(str(operand))),
  title: (operand) => text(py.titleWords(str(operand))),
  upper: (operand) => text(str(operand).toUpperCase()),
  lower: (operand) => text(str(operand).toLowerCase()),
  string: (operand) => text(str(operand)),
  length: (operand) => new Integer(isText(operand) ? py.length(operand.value) : iterate(operand).length),
  count: (operand) => new Integer(isText(operand) ? py.length(operand.value) : iterate(operand).length),
  first: (operand) => iterate(operand)[0] ?? undefinedValue,
  last: (operand) => iterate(operand).at(-1) ?? undefinedValue,
  list: (operand) => new List([...iterate(operand)]),
  reverse: (operand) =>
    isText(operand) ? text([...operand.value].reverse().join("")) : new List([...iterate(operand)].reverse()),
  select: (operand, args) => new List(select(operand, null, args, true)),
  reject: (operand, args) => new List(select(operand, null, args, false)),
  selectattr: (operand, [name, ...args]) => new List(select(operand, str(name ?? undefinedValue), args, true)),
  rejectattr: (operand, [name, ...args]) => new List(select(operand, str(name ?? undefinedValue), args, false)),
  items: (operand) => {
    if (!isDict(operand) && !isUndefined(operand)) throw new Error(`${kind(operand)} has no items`);
    return new List(isDict(operand) ? [...operand.value].map(([key, value]) => new List([text(key), value])) : []);
  },
  join: (operand, [separator], keywords) => {
    const attribute = keywords.get("attribute");
    const items = iterate(operand).map((item) => {
      if (!attribute) return str(item);
      return str((isDict(item) ? item.value.get(str(attribute)) : undefined) ?? undefinedValue);
    });
    return joined(items, str(separator ?? keywords.get("d") ?? undefinedValue));
  },
  indent: (operand, [width, first, blank], keywords) => {
    const by = (width ?? keywords.get("width"))?.value ?? 4;
    if (typeof by !== "string" && typeof by !== "number") throw new Error("indent takes a number or a text");
    const indent = typeof by === "string" ? by : " ".repeat(Math.min(by, MAX_RENDERED));
    const [firstToo, blankToo] = [first ?? keywords.get("first"), blank ?? keywords.get("blank")].map(
      (flag) => flag?.value === true,
    );
    const lines = str(operand).split("\n");
    checkSize(lines.length * indent.length, MAX_RENDERED);
    return text(
      lines.map((line, i) => ((i === 0 ? firstToo : line !== "" || blankToo) ? indent + line : line)).join("\n"),
    );
  },
  replace: (operand, [old, by, count]) => replace(str(operand), old?.value, by?.value, count?.value),
  default: (operand, [otherwise, boolean], keywords) => {
    const falsy = (boolean ?? keywords.get("boolean"))?.__bool__().value === true && !operand.__bool__().value;
    return isUndefined(operand) || falsy ? (otherwise ?? keywords.get("default_value") ?? text("")) : operand;
  },
};
filters.d = filters.default as Filter;
