/** A value in an error message: short, whatever a caller gave. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "object" && value !== null)
    return Array.isArray(value) ? "a list" : `a ${value.constructor?.name ?? "thing"}`;
  return String(value);
}
