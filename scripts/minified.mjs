import { minify } from "terser";

/** What bundlers read in an `import()`. */
const comments = /@vite-ignore|(webpack|turbopack)Ignore/;

/** A script as short as it gets; terser takes another 6 % of esbuild's gzipped size. */
export async function minified(text, format = "esm") {
  // Arrows and methods lack only a prototype, which no function without a name is asked for here.
  const compress = { passes: 3, unsafe_arrows: true, unsafe_methods: true };
  // One letter that is not ASCII has engines keep and read all of a script as UTF-16.
  const options = { ecma: 2022, module: format === "esm", compress, format: { comments, ascii_only: true } };
  // What is minified is a little smaller when it is minified again.
  const { code } = await minify((await minify(text, options)).code, options);
  return `${code}\n`;
}
