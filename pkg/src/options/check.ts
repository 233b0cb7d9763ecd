/** What checks of options are made of. */

import { EngineError } from "../types/errors.ts";

export type Check = (value: unknown) => string | null;

export const isSignal: Check = (value) => (value instanceof AbortSignal ? null : "an AbortSignal");
export const isFunction: Check = (value) => (typeof value === "function" ? null : "a function");
export const isBoolean: Check = (value) => (typeof value === "boolean" ? null : "true or false");
export const isObject: Check = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? null : "an object";
export const isList: Check = (value) => (Array.isArray(value) ? null : "a list");

export const oneOf = (...values: string[]): Check => {
  const expected = values.map((value) => `"${value}"`).join(", ");
  return (value) => (values.includes(value as string) ? null : expected);
};

export const integer = (least: number, most: number): Check => {
  const inRange = (value: number) => Number.isInteger(value) && value >= least && value <= most;
  return (value) => (typeof value === "number" && inRange(value) ? null : `an integer from ${least} to ${most}`);
};

export const number = (least: number, most: number): Check => {
  return (value) =>
    typeof value === "number" && value >= least && value <= most ? null : `a number from ${least} to ${most}`;
};

/**
 * Refuses names that are not known and values of another kind; what is undefined counts as left out.
 *
 * @returns what was given of the known names, inherited or not, as an object of its own
 */
export function checkAll<T extends object>(name: string, known: Record<string, Check>, options: T | undefined): T {
  const given: Record<string, unknown> = {};
  if (options === undefined) return given as T;
  if (isObject(options)) throw wrong(name, "options", "an object", options);
  for (const option of Object.keys(options)) {
    if (Object.hasOwn(known, option)) continue;
    const expected = Object.keys(known).join(", ");
    const message = `${name}: there is no option "${option}"; there are ${expected}`;
    throw new EngineError("InvalidArgument", message, { option, expected });
  }
  for (const [option, check] of Object.entries(known)) {
    const value = (options as Record<string, unknown>)[option];
    if (value !== undefined) given[option] = checked(name, option, check, value);
  }
  return given as T;
}

export function checked<T>(name: string, option: string, check: Check, value: T): T {
  const expected = check(value);
  if (expected) throw wrong(name, option, expected, value);
  return value;
}

export function wrong(name: string, option: string, expected: string, value: unknown): EngineError {
  const found = show(value);
  return new EngineError("InvalidArgument", `${name}: ${option} must be ${expected}, not ${found}`, {
    option,
    expected,
    found,
  });
}

export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "object" && value !== null)
    return Array.isArray(value) ? "a list" : `a ${value.constructor?.name ?? "thing"}`;
  return String(value);
}
