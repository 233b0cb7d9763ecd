// What bundlers import (condition `module`). It is JavaScript; its extension keeps Vite's dev server from pre-bundling
// the package: Vite 5 to 7 copy a dependency's `.js` entry into node_modules/.vite/deps and do not bring along what
// `new URL("./worker.js", import.meta.url)` in it names (vitejs/vite#8427), but leave every other extension where it
// lies and serve it as it is. Browsers without a bundler take index.js, because few servers know `.jsx`.
export * from "./index.js";
