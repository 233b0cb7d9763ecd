/** A `.wasm` of the package, as tools for edge workers import it. */
declare const module: WebAssembly.Module;
export default module;
