import type { Model } from "../types/index.ts";

/** Whether a value is a loaded model, of whatever thread or copy of the package. */
export const isModel = (value: unknown): value is Model => {
  const { info, generate } = Object(value) as Partial<Model>;
  return typeof info === "object" && typeof generate === "function";
};
