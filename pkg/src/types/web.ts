/**
 * Names of the web platform, for projects whose `lib` has none of them. Where a project knows such a name, it is that type; elsewhere
 * nothing has it.
 */

type Known<Name extends string> = typeof globalThis extends { [Key in Name]: { prototype: infer Type } } ? Type : never;

export type AbortSignal = Known<"AbortSignal">;
export type Blob = Known<"Blob">;
export type Request = Known<"Request">;
export type URL = Known<"URL">;

/** A compiled module. */
export type WasmModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Type } } }
  ? Type
  : never;

/** What `await using` needs, where the project knows it. */
export type AsyncDispose = SymbolConstructor extends { readonly asyncDispose: infer Key extends symbol }
  ? { [Name in Key]: () => Promise<void> }
  : object;

declare global {
  // Its type parameter makes the way above impossible. Where the name is known, this adds nothing to it.
  // biome-ignore lint/suspicious/noExplicitAny: as the others declare it
  interface ReadableStream<R = any> {}
}
