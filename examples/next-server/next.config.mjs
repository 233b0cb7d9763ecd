// The server's own package is not bundled: it finds its WebAssembly files beside it.
export default { serverExternalPackages: ["ternlight"] };
