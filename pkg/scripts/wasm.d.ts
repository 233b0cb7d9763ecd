/** A `.wasm` of the package, as tools for edge workers import it. */
declare const module: typeof globalThis extends { WebAssembly: { Module: { prototype: infer Type } } } ? Type : never;
export default module;
