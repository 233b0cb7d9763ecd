/**
 * The library's interpreter with Python's semantics where it departs from them, a budget, and the line of an error.
 * Chat templates are written for Jinja2 under Python; what the library does like it stays the library's.
 */

import { Environment, Interpreter } from "@huggingface/jinja";
import { MAX_LIST, MAX_RENDERED, MAX_STEPS } from "./limits.ts";
import * as py from "./python.ts";

/** A value at run time, as the library makes them: `type` names its class, `value` is a JavaScript value. */
export interface Value {
  readonly type: string;
  readonly value: unknown;
  __bool__(): { value: boolean };
  toString(): string;
}

/** A node of the library's syntax tree. */
interface Node {
  type: string;
  // biome-ignore lint/suspicious/noExplicitAny: the library exports neither its nodes nor their types
  [field: string]: any;
}

type Arguments = [positional: Value[], keyword: Map<string, Value>];

/** What the library keeps private, so far as it is called or replaced here. */
interface Inner {
  run(program: unknown): Value;
  evaluate(node: Node | undefined, scope: Environment): Value;
  evaluateBlock(nodes: Node[], scope: Environment): Value;
  evaluateBinaryExpression(node: Node, scope: Environment): Value;
  evaluateMemberExpression(node: Node, scope: Environment): Value;
  evaluateArguments(nodes: Node[], scope: Environment): Arguments;
  evaluateFor(node: Node, scope: Environment): Value;
  evaluateTestExpression(node: Node, scope: Environment): Value;
  applyFilter(operand: Value, filter: Node, scope: Environment): Value;
}
const Base = Interpreter as unknown as new (scope: Environment) => Inner;

/** The library does not export its classes of values, but makes values. */
type Make<T> = new (value: T) => Value;
const classOf = <T>(sample: unknown) => new Environment().set("sample", sample).constructor as unknown as Make<T>;
const Text = classOf<string>("");
const Integer = classOf<number>(1);
const Float = classOf<number>(0.5);
const Bool = classOf<boolean>(true);
const List = classOf<Value[]>([]);
const Dict = classOf<Map<string, Value>>({});
const Callable = classOf<(args: Value[]) => Value>(() => null);
const Undefined = classOf<undefined>(undefined);

const undefinedValue = new Undefined(undefined);
const text = (value: string) => new Text(value);
const texts = (values: readonly string[]) => new List(values.map(text));
const isText = (value: Value): value is Value & { value: string } => value.type === "StringValue";
const isList = (value: Value): value is Value & { value: Value[] } => Array.isArray(value.value);
const isDict = (value: Value): value is Value & { value: Map<string, Value> } => value.value instanceof Map;
const isUndefined = (value: Value) => value.type === "UndefinedValue";
const isFloat = (value: Value) => value.type === "FloatValue";
const isNumber = (value: Value) => typeof value.value === "number" || typeof value.value === "boolean";

class BreakLoop extends Error {}
class ContinueLoop extends Error {}

/** An error of a template, with the line of the tag that raised it where that is known. */
export class TemplateFailure extends Error {
  readonly line: number | undefined;

  constructor(message: string, line: number | undefined, cause?: unknown) {
    super(message, { cause });
    this.line = line;
  }
}

/** Comments that begin with this carry the line of the tag that follows. */
export const LINE_MARK = "\u0000line ";

/** Renders a program of the library's parser. */
export function render(program: unknown, variables: Readonly<Record<string, unknown>>, now: Date): string {
  const globals = new Environment();
  for (const [name, value] of [["true", true] as const, ["false", false] as const, ["none", null] as const]) {
    globals.set(name, value);
    globals.set(name.slice(0, 1).toUpperCase() + name.slice(1), value);
  }
  globals.set("range", range);
  globals.set("strftime_now", (format: string) => py.strftime(now, format));
  globals.set("raise_exception", (message: unknown) => {
    throw new Error(String(message));
  });
  const scope = new Environment(globals);
  for (const [name, value] of Object.entries(variables)) scope.set(name, value);
  return new PythonInterpreter(scope).run(program).value as string;
}

class PythonInterpreter extends Base {
  #steps = 0;

  override evaluate(node: Node | undefined, scope: Environment): Value {
    if (++this.#steps > MAX_STEPS) throw new Error(`it runs for more than ${MAX_STEPS} steps`);
    if (node?.type === "Evaluated") return node.value;
    if (node?.type === "Break") throw new BreakLoop();
    if (node?.type === "Continue") throw new ContinueLoop();
    const value = super.evaluate(node, scope);
    if (typeof value.value === "string") checkSize(value.value.length, MAX_RENDERED);
    else if (isList(value)) checkSize(value.value.length, MAX_LIST);
    return value;
  }

  override evaluateBlock(nodes: Node[], scope: Environment): Value {
    let result = "";
    let line: number | undefined;
    for (const node of nodes) {
      if (node.type === "Comment") {
        if (node.value.startsWith(LINE_MARK)) line = Number(node.value.slice(LINE_MARK.length));
        continue;
      }
      try {
        const value = this.evaluate(node, scope);
        if (node.type !== "Set" && node.type !== "Macro") result += str(value);
        checkSize(result.length, MAX_RENDERED);
      } catch (error) {
        if (error instanceof BreakLoop || error instanceof ContinueLoop) throw new Interrupted(error, result);
        if (error instanceof Interrupted) throw new Interrupted(error.by, result + error.text);
        if (error instanceof TemplateFailure && error.line !== undefined) throw error;
        throw new TemplateFailure((error as Error).message, line, error);
      }
    }
    return text(result);
  }

  override evaluateBinaryExpression(node: Node, scope: Environment): Value {
    const operator: string = node.operator.value;
    const left = this.evaluate(node.left, scope);
    if (operator === "and") return left.__bool__().value ? this.evaluate(node.right, scope) : left;
    if (operator === "or") return left.__bool__().value ? left : this.evaluate(node.right, scope);
    const right = this.evaluate(node.right, scope);
    if (operator === "==") return new Bool(equal(left, right));
    if (operator === "!=") return new Bool(!equal(left, right));
    if (operator === "~") return text(str(left) + str(right));
    if (operator === "in" || operator === "not in") return new Bool(contains(right, left) === (operator === "in"));
    for (const [side, value] of [[node.left, left] as const, [node.right, right] as const]) {
      if (isUndefined(value)) throw new Error(`${describe(side)} is undefined`);
    }
    return (
      arithmetic(operator, left, right) ??
      super.evaluateBinaryExpression({ ...node, left: evaluated(left), right: evaluated(right) }, scope)
    );
  }

  override evaluateMemberExpression(node: Node, scope: Environment): Value {
    const object = this.evaluate(node.object, scope);
    if (isUndefined(object)) throw new Error(`${describe(node.object)} is undefined`);
    if (node.computed && node.property.type === "SliceExpression") {
      return super.evaluateMemberExpression({ ...node, object: evaluated(object) }, scope);
    }
    const name = node.computed ? this.evaluate(node.property, scope) : text(String(node.property.value));
    if (isText(object)) {
      const method = isText(name) && Object.hasOwn(textMethods, name.value) ? textMethods[name.value] : undefined;
      if (method) return new Callable((args) => method(object.value, ...positional(args)));
      if (typeof name.value === "number") {
        const char = py.charAt(object.value, name.value);
        return char === undefined ? undefinedValue : text(char);
      }
    }
    if (object.type === "ObjectValue" && !node.computed && dictMethods.has(name.value as string)) {
      // `tool.items()` is the method even where the dict has a key of that name.
      return (object as unknown as { builtins: Map<string, Value> }).builtins.get(name.value as string) ?? undefinedValue;
    }
    const property = node.computed ? evaluated(name) : node.property;
    return super.evaluateMemberExpression({ ...node, object: evaluated(object), property }, scope);
  }

  override applyFilter(operand: Value, filter: Node, scope: Environment): Value {
    const name: string = filter.type === "CallExpression" ? filter.callee.value : filter.value;
    if (name === "map" && filter.type === "CallExpression" && filter.args[0]?.type === "StringLiteral") {
      const [mapped, ...args] = filter.args as [Node, ...Node[]];
      const inner = { type: "CallExpression", callee: { type: "Identifier", value: mapped.value }, args };
      return new List(iterate(operand).map((item) => this.applyFilter(item, inner, scope)));
    }
    const apply = Object.hasOwn(filters, name) ? filters[name] : undefined;
    if (!apply) return super.applyFilter(operand, filter, scope);
    const [args, keywords] = filter.type === "CallExpression" ? this.evaluateArguments(filter.args, scope) : [[], new Map()];
    return apply(operand, args, keywords);
  }

  override evaluateTestExpression(node: Node, scope: Environment): Value {
    const test = tests.get(node.test.value);
    if (!test) throw new Error(`no test is called ${node.test.value}`);
    return new Bool(test(this.evaluate(node.operand, scope)) !== node.negate);
  }

  /** Each turn of a loop has a scope of its own: what one sets, the next does not see. */
  override evaluateFor(node: Node, scope: Environment): Value {
    const selects = node.iterable.type === "SelectExpression";
    const iterable = this.evaluate(selects ? node.iterable.lhs : node.iterable, scope);
    const inside = (item: Value) => {
      const turn = new Environment(scope);
      const names: Node[] = node.loopvar.type === "TupleLiteral" ? node.loopvar.value : [node.loopvar];
      const values = node.loopvar.type === "TupleLiteral" ? iterate(item) : [item];
      if (values.length !== names.length) throw new Error(`cannot unpack ${values.length} values into ${names.length}`);
      names.forEach((name, i) => turn.setVariable(name.value, values[i] as never));
      return turn;
    };
    let items = iterate(iterable);
    if (selects) items = items.filter((item) => this.evaluate(node.iterable.test, inside(item)).__bool__().value);
    if (items.length === 0) return this.evaluateBlock(node.defaultBlock, scope);

    let result = "";
    for (let i = 0; i < items.length; i++) {
      const turn = inside(items[i] as Value);
      turn.setVariable("loop", loop(items, i) as never);
      try {
        result += this.evaluateBlock(node.body, turn).value;
      } catch (error) {
        if (!(error instanceof Interrupted)) throw error;
        result += error.text;
        if (error.by instanceof BreakLoop) break;
      }
      checkSize(result.length, MAX_RENDERED);
    }
    return text(result);
  }
}

/** A `break` or `continue` on its way to its loop, with what its turn had rendered. */
class Interrupted extends Error {
  readonly by: Error;
  readonly text: string;

  constructor(by: Error, text: string) {
    super("break or continue outside of a loop");
    this.by = by;
    this.text = text;
  }
}

const evaluated = (value: Value): Node => ({ type: "Evaluated", value });

function checkSize(size: number, max: number): void {
  if (size > max) throw new Error(`it builds something larger than ${max}`);
}

function describe(node: Node): string {
  if (node.type === "Identifier") return `'${node.value}'`;
  if (node.type !== "MemberExpression") return "a value";
  const of = describe(node.object);
  if (!node.computed) return `${of}.${node.property.value}`;
  return node.property.type === "StringLiteral" ? `${of}['${node.property.value}']` : `an element of ${of}`;
}

/** `str(value)`. */
function str(value: Value): string {
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
    const inner = value.value.map(repr).join(", ");
    if (value.type !== "TupleValue") return `[${inner}]`;
    return value.value.length === 1 ? `(${inner},)` : `(${inner})`;
  }
  if (isDict(value)) return `{${[...value.value].map(([key, item]) => `${py.quote(key)}: ${repr(item)}`).join(", ")}}`;
  return value.toString();
}

function equal(a: Value, b: Value): boolean {
  if (isNumber(a) && isNumber(b)) return Number(a.value) === Number(b.value);
  if (a.type !== b.type) return false;
  if (isList(a) && isList(b)) {
    const other = b.value;
    return a.value.length === other.length && a.value.every((item, i) => equal(item, other[i] as Value));
  }
  if (isDict(a) && isDict(b)) {
    const other = b.value;
    return a.value.size === other.size && [...a.value].every(([key, item]) => equal(item, other.get(key) ?? undefinedValue));
  }
  return a.value === b.value;
}

function contains(container: Value, item: Value): boolean {
  if (isText(container)) {
    if (!isText(item)) throw new Error("'in <string>' requires a string on its left");
    return container.value.includes(item.value);
  }
  if (isDict(container)) return isText(item) && container.value.has(item.value);
  return iterate(container).some((one) => equal(one, item));
}

function iterate(value: Value): Value[] {
  if (isList(value)) return value.value;
  if (isText(value)) return texts([...value.value]).value as Value[];
  if (isDict(value)) return texts([...value.value.keys()]).value as Value[];
  if (isUndefined(value)) return [];
  throw new Error(`${kind(value)} is not iterable`);
}

/** What the library refuses or gets wrong; null leaves it to the library. */
function arithmetic(operator: string, left: Value, right: Value): Value | null {
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
    return operator === "<" ? new Bool(x < y) : operator === "<=" ? new Bool(x <= y) : operator === ">" ? new Bool(x > y) : operator === ">=" ? new Bool(x >= y) : null;
  }
  if (operator === "*" && (isText(left) || isList(left)) && typeof b === "number") return repeat(left, b);
  if (operator === "*" && (isText(right) || isList(right)) && typeof a === "number") return repeat(right, a);
  if (isText(left) && isText(right)) {
    if (operator === "+") return text(left.value + right.value);
    if (operator === "<") return new Bool(left.value < right.value);
    if (operator === "<=") return new Bool(left.value <= right.value);
    if (operator === ">") return new Bool(left.value > right.value);
    if (operator === ">=") return new Bool(left.value >= right.value);
  }
  if (operator === "+" && !(isList(left) && isList(right))) {
    throw new Error(`cannot add ${kind(left)} and ${kind(right)}`);
  }
  return null;
}

function repeat(value: Value & { value: string | Value[] }, times: number): Value {
  const count = Math.max(0, times);
  checkSize(value.value.length * count, isText(value) ? MAX_RENDERED : MAX_LIST);
  if (isText(value)) return text(value.value.repeat(count));
  return new List(Array.from({ length: count }, () => value.value as Value[]).flat());
}

function kind(value: Value): string {
  return value.type === "NullValue" ? "None" : value.type.replace("Value", "").toLowerCase();
}

function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0) throw new Error("range() step must not be zero");
  const count = Math.max(0, Math.ceil((to - from) / step));
  checkSize(count, MAX_LIST);
  return Array.from({ length: count }, (_, i) => from + i * step);
}

function loop(items: readonly Value[], i: number): Value {
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

/** Arguments of a text's method as plain values; the library passes keywords last, in an object of their own. */
function positional(args: readonly Value[]): unknown[] {
  return args.flatMap((arg) => {
    if (arg.type !== "KeywordArgumentsValue") return [arg.value];
    return [...(arg.value as Map<string, Value>).values()].map((value) => value.value);
  });
}

const asText = (value: unknown): string => {
  if (typeof value !== "string") throw new Error("a text is expected as argument");
  return value;
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

const dictMethods = new Set(["get", "items", "keys", "values"]);

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
  join: (self, parts) => text((parts as Value[]).map((part) => asText(part.value)).join(self)),
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

const tests: ReadonlyMap<string, Test> = new Map<string, Test>([
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
    return attribute.split(".").reduce((of, key) => (isDict(of) ? of.value.get(key) : undefined) ?? undefinedValue, item);
  };
  return iterate(operand).filter((item) => holds(subject(item)) === wanted);
}

type Filter = (operand: Value, args: Value[], keywords: Map<string, Value>) => Value;

const filters: Record<string, Filter> = {
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
  reverse: (operand) => (isText(operand) ? text([...operand.value].reverse().join("")) : new List([...iterate(operand)].reverse())),
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
    const between = str(separator ?? keywords.get("d") ?? undefinedValue);
    checkSize(items.reduce((size, item) => size + item.length + between.length, 0), MAX_RENDERED);
    return text(items.join(between));
  },
  replace: (operand, [old, by, count]) => replace(str(operand), old?.value, by?.value, count?.value),
  default: (operand, [otherwise, boolean], keywords) => {
    const falsy = (boolean ?? keywords.get("boolean"))?.__bool__().value === true && !operand.__bool__().value;
    return isUndefined(operand) || falsy ? (otherwise ?? keywords.get("default_value") ?? text("")) : operand;
  },
};
filters.d = filters.default as Filter;
