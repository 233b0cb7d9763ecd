/**
 * The library's interpreter with Python's semantics where it departs from them, a budget, and the line of an error.
 * Chat templates are written for Jinja2 under Python; what the library does like it stays the library's.
 */

import { Environment, Interpreter } from "@huggingface/jinja";
import type { Guard } from "./guard.ts";
import { dictMethods, filters, loop, range, spacing, tests, textMethod } from "./jinja_builtins.ts";
import {
  arithmetic,
  Bool,
  Callable,
  checkSize,
  contains,
  equal,
  isDict,
  isList,
  isText,
  isUndefined,
  iterate,
  List,
  reading,
  readingAll,
  str,
  text,
  texts,
  undefinedValue,
  type Value,
} from "./jinja_values.ts";
import { MAX_LIST, MAX_RENDER_MS, MAX_RENDERED, MAX_STEPS } from "./limits.ts";
import * as py from "./python.ts";

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

export interface RenderContext {
  now: Date;
  /** What the texts of the variables were marked by, where they were. */
  guard: Guard | null;
}

/** Renders a program of the library's parser. */
export function render(
  program: unknown,
  variables: Readonly<Record<string, unknown>>,
  { now, guard }: RenderContext,
): string {
  const globals = new Environment();
  for (const [name, value] of [["true", true] as const, ["false", false] as const, ["none", null] as const]) {
    globals.set(name, value);
    globals.set(name.slice(0, 1).toUpperCase() + name.slice(1), value);
  }
  globals.set("range", range);
  globals.set("strftime_now", (format: string) => py.strftime(now, format));
  globals.set("raise_exception", (message: unknown) => {
    throw new Error(typeof message === "object" ? "an exception that is no text" : String(message));
  });
  const scope = new Environment(globals);
  for (const [name, value] of Object.entries(variables)) scope.set(name, value);
  return new PythonInterpreter(scope, guard).run(program).value as string;
}

class PythonInterpreter extends Base {
  readonly #guard: Guard | null;
  #steps = 0;
  /** The steps after which the clock is looked at again. */
  #look = 0;
  readonly #deadline = performance.now() + MAX_RENDER_MS;

  constructor(scope: Environment, guard: Guard | null) {
    super(scope);
    this.#guard = guard;
  }

  override evaluate(node: Node | undefined, scope: Environment): Value {
    this.#spend(1);
    if (node?.type === "Evaluated") return node.value;
    if (node?.type === "Break") throw new BreakLoop();
    if (node?.type === "Continue") throw new ContinueLoop();
    const value = super.evaluate(node, scope);
    if (isText(value)) checkSize(value.value.length, MAX_RENDERED);
    else if (isList(value)) checkSize(value.value.length, MAX_LIST);
    if (node && makes(node)) this.#spend(reading(value));
    return value;
  }

  #spend(steps: number): void {
    this.#steps += steps;
    if (this.#steps > MAX_STEPS) throw new Error(`it runs for more than ${MAX_STEPS} steps`);
    if (this.#steps < this.#look) return;
    this.#look = this.#steps + STEPS_BETWEEN_LOOKS;
    if (performance.now() > this.#deadline) throw new Error(`it runs for more than ${MAX_RENDER_MS} ms`);
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
        if (node.type === "Set" || node.type === "Macro") continue;
        if (!isText(value)) this.#spend(readingAll(value));
        result += str(value);
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
    this.#spend(readingAll(left) + readingAll(right));
    if (operator === "==") return new Bool(equal(this.#plain(left), this.#plain(right)));
    if (operator === "!=") return new Bool(!equal(this.#plain(left), this.#plain(right)));
    if (operator === "~") return text(str(left) + str(right));
    if (operator === "in" || operator === "not in") {
      this.#spend(searching(right, [left]));
      return new Bool(contains(this.#plain(right), this.#plain(left)) === (operator === "in"));
    }
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
    // Its characters are found by going through it.
    if (isText(object) && node.computed) this.#spend(reading(object));
    if (node.computed && node.property.type === "SliceExpression") {
      // As a list of characters, in which a seam has no place of its own.
      const characters = this.#guard && isText(object) ? this.#guard.characters(object.value) : null;
      const of = characters ? texts(characters) : object;
      const slice = super.evaluateMemberExpression({ ...node, object: evaluated(of) }, scope);
      return this.#derived(characters && isList(slice) ? text(slice.value.map(str).join("")) : slice, [object]);
    }
    const name = node.computed ? this.evaluate(node.property, scope) : text(String(node.property.value));
    if (isText(object)) {
      if (isText(name)) {
        const method = this.#method(object, name.value);
        if (method) return method;
      }
      if (typeof name.value === "number") {
        const char = py.charAt(this.#plain(object).value, name.value);
        return char === undefined ? undefinedValue : text(char);
      }
    }
    if (object.type === "ObjectValue" && !node.computed && dictMethods.has(name.value as string)) {
      // `tool.items()` is the method even where the dict has a key of that name.
      return (
        (object as unknown as { builtins: Map<string, Value> }).builtins.get(name.value as string) ?? undefinedValue
      );
    }
    const property = node.computed ? evaluated(name) : node.property;
    return super.evaluateMemberExpression({ ...node, object: evaluated(object), property }, scope);
  }

  /** A method of a text. What it makes is guarded; what it measures or compares is the text as its author wrote it. */
  #method(self: Value & { value: string }, name: string): Value | undefined {
    const method = (of: Value & { value: string }) =>
      textMethod(of.value, name) ?? (of as unknown as { builtins: Map<string, Value> }).builtins.get(name);
    const found = method(self);
    if (typeof found?.value !== "function") return found;
    const measures = MEASURES.has(name);
    const run = (measures ? method(this.#plain(self)) : found)?.value as (args: Value[]) => Value;
    return new Callable((args) => {
      this.#spend(args.reduce((sum, one) => sum + readingAll(one), reading(self) + searching(self, args)));
      if (measures) return run(args.map((one) => this.#plain(one)));
      return this.#derived(run(args), [self, ...args]);
    });
  }

  #plain<T extends Value>(value: T): T {
    return this.#guard && isText(value) ? (text(this.#guard.plain(value.value)) as T) : value;
  }

  /** What was made of other values, guarded against special tokens that only come about by that. */
  #derived(value: Value, from: readonly Value[]): Value {
    const guard = this.#guard;
    if (!guard) return value;
    const texts = from.flatMap((one) => (isList(one) ? one.value : [one])).filter(isText);
    const derived = guard.deriving(texts.map((one) => one.value));
    if (isText(value)) return text(derived(value.value));
    if (!isList(value) || value.type === "TupleValue") return value;
    return new List(value.value.map((item) => (isText(item) ? text(derived(item.value)) : item)));
  }

  override evaluateArguments(nodes: Node[], scope: Environment): Arguments {
    const given = super.evaluateArguments(nodes, scope);
    const [positional, keyword] = given;
    for (const values of [positional, keyword.values()]) for (const value of values) this.#spend(1 + reading(value));
    return given;
  }

  override applyFilter(operand: Value, filter: Node, scope: Environment): Value {
    const called = filter.type === "CallExpression";
    const name: string = called ? filter.callee.value : filter.value;
    const [args, keywords]: Arguments = called ? this.evaluateArguments(filter.args, scope) : [[], new Map()];
    const given = [...args, ...keywords.values()];
    if (SURFACE.has(name)) this.#spend(reading(operand));
    else {
      // Each item of a list is compared with what is given.
      const each = given.reduce((sum, one) => sum + readingAll(one), 0);
      this.#spend(readingAll(operand) + (isList(operand) ? operand.value.length * each : searching(operand, args)));
    }
    const [first] = args;
    if (name === "map" && first && isText(first)) {
      const inner = call(first.value, args.slice(1), keywords);
      return new List(iterate(operand).map((item) => this.applyFilter(item, inner, scope)));
    }
    if (name === "tojson") checkSize(spacing(operand, keywords), MAX_RENDERED);
    const apply = Object.hasOwn(filters, name) ? filters[name] : undefined;
    if (!apply) {
      const value = super.applyFilter(operand, called ? call(name, args, keywords) : filter, scope);
      return isText(operand) ? this.#derived(value, [operand]) : value;
    }
    if (MEASURES.has(name)) return apply(this.#plain(operand), args, keywords);
    const value = apply(operand, args, keywords);
    return isText(operand) || name === "join" ? this.#derived(value, [operand, ...given]) : value;
  }

  override evaluateTestExpression(node: Node, scope: Environment): Value {
    const test = tests.get(node.test.value);
    if (!test) throw new Error(`no test is called ${node.test.value}`);
    const operand = this.evaluate(node.operand, scope);
    this.#spend(reading(operand));
    return new Bool(test(operand) !== node.negate);
  }

  /** Each turn of a loop has a scope of its own: what one sets, the next does not see. */
  override evaluateFor(node: Node, scope: Environment): Value {
    const selects = node.iterable.type === "SelectExpression";
    const iterable = this.evaluate(selects ? node.iterable.lhs : node.iterable, scope);
    this.#spend(reading(iterable));
    const inside = (item: Value) => {
      const turn = new Environment(scope);
      const names: Node[] = node.loopvar.type === "TupleLiteral" ? node.loopvar.value : [node.loopvar];
      const values = node.loopvar.type === "TupleLiteral" ? iterate(item) : [item];
      if (values.length !== names.length) throw new Error(`cannot unpack ${values.length} values into ${names.length}`);
      for (const [i, name] of names.entries()) turn.setVariable(name.value, values[i] as never);
      return turn;
    };
    let items = iterate(iterable);
    if (selects) items = items.filter((item) => this.evaluate(node.iterable.test, inside(item)).__bool__().value);
    this.#spend(items.length);
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

/** Steps between two looks at the clock, which costs as much as one of them. Each takes some milliseconds at most. */
const STEPS_BETWEEN_LOOKS = 64;

/** Filters that do not visit what a list or dict holds. */
const SURFACE = new Set(["count", "d", "default", "first", "items", "last", "length", "list", "reverse", "safe"]);

/**
 * The steps that it takes to find the first argument in a text. Runtimes compare it at every place where it could be: a long one
 * whose end is there everywhere takes the product of both lengths.
 */
function searching(text: Value, [part]: readonly Value[]): number {
  if (!isText(text) || !part) return 0;
  // Arguments by name come in a dict.
  const length = isDict(part) ? [...part.value.values()].reduce((sum, one) => sum + reading(one), 0) : reading(part);
  return (reading(text) * length) / 16;
}

/** Methods and filters whose results are no texts. */
const MEASURES = new Set(["startswith", "endswith", "find", "count", "length", "isdigit", "isalpha", "isspace"]);

/** Whether a node makes its value, which costs as much as it is long, or only looks it up. */
function makes({ type, property }: Node): boolean {
  return (
    type === "CallExpression" ||
    type === "FilterExpression" ||
    type === "BinaryExpression" ||
    property?.type === "SliceExpression"
  );
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

/** A filter with arguments that have their values already. */
function call(name: string, args: readonly Value[], keywords: ReadonlyMap<string, Value>): Node {
  const named = [...keywords].map(([key, value]) => {
    return { type: "KeywordArgumentExpression", key: { type: "Identifier", value: key }, value: evaluated(value) };
  });
  return {
    type: "CallExpression",
    callee: { type: "Identifier", value: name },
    args: [...args.map(evaluated), ...named],
  };
}

function describe(node: Node): string {
  if (node.type === "Identifier") return `'${node.value}'`;
  if (node.type !== "MemberExpression") return "a value";
  const of = describe(node.object);
  if (!node.computed) return `${of}.${node.property.value}`;
  return node.property.type === "StringLiteral" ? `${of}['${node.property.value}']` : `an element of ${of}`;
}
