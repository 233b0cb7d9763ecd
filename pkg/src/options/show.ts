/** A value in an error message: short, whatever a caller gave. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "function") return "a function";
  if (typeof value === "bigint") return `${value}n`.slice(0, 60);
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return "a list";
  const name = value.constructor?.name ?? "thing";
  // Its keys alone: values may be secrets.
  if (name === "Object") return `{ ${Object.keys(value).slice(0, 5).join(", ")} }`.replace("  ", "");
  return `${/^[AEIO]/.test(name) ? "an" : "a"} ${name}`;
}
