/**
 * The built-in model. What is chosen to be loaded, this or another (chosen.js), has a name, the source that `load` takes, and
 * where it can be had a way to read safetensors bytes, for the picture of the weights.
 */

const folder = new URL("../ternlight/models/ternlight-demo/", import.meta.url);

export const builtIn = {
  name: "ternlight-demo",
  note: "built in",
  builtIn: true,
  /** What its texts begin with. */
  opens: "<|endoftext|>",
  address: folder.href,
  // By name: of a folder the engine would ask for parts that there are none of, which without a network nobody can tell.
  source: Object.fromEntries(
    ["config", "generation_config", "tokenizer", "tokenizer_config"]
      .map((name) => `${name}.json`)
      .concat("model.safetensors")
      .map((name) => [name, new URL(name, folder).href]),
  ),
  read: readUrl(new URL("model.safetensors", folder)),
};

/** Reads parts of a file. */
export function readUrl(url) {
  return async (offset, length) => {
    const response = await fetch(url, { headers: { range: `bytes=${offset}-${offset + length - 1}` } });
    if (response.status === 206) return response.arrayBuffer();
    await response.body?.cancel();
    throw new Error(`${url} gives no ranges`);
  };
}
