/** The library's values at run time, and what Python does with them: printing, comparing, adding. */

import { Environment } from "@huggingface/jinja";
import { MAX_LIST, MAX_RENDERED } from "./limits.ts";
import * as py from "./python.ts";

/** A value at run time, as the library makes them: `type` names its class, `value` is a JavaScript value. */
export interface Value {
  readonly type: string;
  readonly value: unknown;
  __bool__(): { value: boolean };
  toString(): string;
}

/** The library does not export its classes of values, but makes values. */
type Make<T> = new (value: T) => Value;
const classOf = <T>(sample: unknown) => new Environment().set("sample", sample).constructor as unknown as Make<T>;
export const Text = classOf<string>("");
export const Integer = classOf<number>(1);
export const Float = classOf<number>(0.5);
export const Bool = classOf<boolean>(true);
export const List = classOf<Value[]>([]);
export const Dict = classOf<Map<string, Value>>({});
export const Callable = classOf<(args: Value[]) => Value>(() => null);
export const Undefined = classOf<undefined>(undefined);

export const undefinedValue = new Undefined(undefined);
export const text = (value: string) => new Text(value);
export const texts = (values: readonly string[]) => {
  checkSize(values.length, MAX_LIST);
  return new List(values.map(text));
};
export const isText = (value: Value): value is Value & { value: string } => value.type === "StringValue";
export const isList = (value: Value): value is Value & { value: Value[] } => Array.isArray(value.value);
export const isDict = (value: Value): value is Value & { value: Map<string, Value> } => value.value instanceof Map;
export const isUndefined = (value: Value) => value.type === "UndefinedValue";
export const isFloat = (value: Value) => value.type === "FloatValue";
export const isNumber = (value: Value) => typeof value.value === "number" || typeof value.value === "boolean";

export function checkSize(size: number, max: number): void {
  if (size > max) throw new Error(`it builds something larger than ${max}`);
}

/** The steps that it takes to read a value itself: a text or a list, without what is in it. */
export const reading = (value: Value): number =>
  isText(value) ? value.value.length >> 3 : isList(value) ? value.value.length : isDict(value) ? value.value.size : 0;

/** The steps that it takes to visit all of a value. Lists may hold one another many times over, so they are counted first. */
export function readingAll(value: Value, budget = { left: MAX_LIST }): number {
  if (--budget.left < 0) checkSize(MAX_LIST + 1, MAX_LIST);
  if (!isList(value) && !isDict(value)) return 1 + reading(value);
  let steps = 1;
  for (const child of value.value.values()) steps += readingAll(child, budget);
  return steps;
}

/** `str(value)`. */
export function str(value: Value): string {
  if (isText(value)) return value.value;
  if (isUndefined(value)) return "";
  return repr(value);
}

function repr(value: Value): string {
  if (isText(value)) return py.quote(value.value);
  if (value.type === "NullValue") return "None";
  if (isUndefined(value)) return "Undefined";
  if (typeof value.value === "boolean") return value.value ? "True" : "False";
  if (isList(value)) {
    const inner = commas(value.value.map(repr));
    if (value.type !== "TupleValue") return `[${inner}]`;
    return value.value.length === 1 ? `(${inner},)` : `(${inner})`;
  }
  if (isDict(value)) return `{${commas([...value.value].map(([key, item]) => `${py.quote(key)}: ${repr(item)}`))}}`;
  return value.toString();
}

function commas(parts: readonly string[]): string {
  const all = parts.join(", ");
  checkSize(all.length, MAX_RENDERED);
  return all;
}

export function equal(a: Value, b: Value): boolean {
  if (isNumber(a) && isNumber(b)) return Number(a.value) === Number(b.value);
  if (a.type !== b.type) return false;
  if (isList(a) && isList(b)) {
    const other = b.value;
    return a.value.length === other.length && a.value.every((item, i) => equal(item, other[i] as Value));
  }
  if (isDict(a) && isDict(b)) {
    const other = b.value;
    return (
      a.value.size === other.size && [...a.value].every(([key, item]) => equal(item, other.get(key) ?? undefinedValue))
    );
  }
  return a.value === b.value;
}

export function contains(container: Value, item: Value): boolean {
  if (isText(container)) {
    if (!isText(item)) throw new Error("'in <string>' requires a string on its left");
    return container.value.includes(item.value);
  }
  if (isDict(container)) return isText(item) && container.value.has(item.value);
  return iterate(container).some((one) => equal(one, item));
}

export function iterate(value: Value): Value[] {
  if (isList(value)) return value.value;
  if (isText(value)) return texts([...value.value]).value as Value[];
  if (isDict(value)) return texts([...value.value.keys()]).value as Value[];
  if (isUndefined(value)) return [];
  throw new Error(`${kind(value)} is not iterable`);
}

/** What the library refuses or gets wrong; null leaves it to the library. */
export function arithmetic(operator: string, left: Value, right: Value): Value | null {
  const a = left.value;
  const b = right.value;
  if (isNumber(left) && isNumber(right)) {
    const x = Number(a);
    const y = Number(b);
    if (["/", "//", "%"].includes(operator) && y === 0) throw new Error("division by zero");
    const make = (result: number) => (isFloat(left) || isFloat(right) ? new Float(result) : new Integer(result));
    if (operator === "+") return make(x + y);
    if (operator === "-") return make(x - y);
    if (operator === "*") return make(x * y);
    if (operator === "%") return make(x - y * Math.floor(x / y));
    return compare(operator, x, y);
  }
  if (operator === "*" && (isText(left) || isList(left)) && typeof b === "number") return repeat(left, b);
  if (operator === "*" && (isText(right) || isList(right)) && typeof a === "number") return repeat(right, a);
  if (isText(left) && isText(right)) {
    return operator === "+" ? text(left.value + right.value) : compare(operator, left.value, right.value);
  }
  if (operator === "+" && !(isList(left) && isList(right))) {
    throw new Error(`cannot add ${kind(left)} and ${kind(right)}`);
  }
  return null;
}

function compare<T>(operator: string, a: T, b: T): Value | null {
  if (operator === "<") return new Bool(a < b);
  if (operator === "<=") return new Bool(a <= b);
  if (operator === ">") return new Bool(a > b);
  return operator === ">=" ? new Bool(a >= b) : null;
}

function repeat(value: Value & { value: string | Value[] }, times: number): Value {
  const count = Math.max(0, times);
  checkSize(value.value.length * count, isText(value) ? MAX_RENDERED : MAX_LIST);
  if (isText(value)) return text(value.value.repeat(count));
  return new List(Array.from({ length: count }, () => value.value as Value[]).flat());
}

export function kind(value: Value): string {
  return value.type === "NullValue" ? "None" : value.type.replace("Value", "").toLowerCase();
}
