/**
 * Where models come from here: the built-in one, files, an address. Each choice has a name, the source that `load`
 * takes, and where it can be had a way to read safetensors bytes, for the picture of the weights.
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

export function fromAddress(text) {
  // A name on Hugging Face's hub: `load` asks what it has.
  if (text.trim().startsWith("hf:")) {
    const source = text.trim();
    return { name: source.slice("hf:".length), note: "from huggingface.co", source, read: null };
  }
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  if (!/^https?:$/.test(url?.protocol))
    throw wrong("BadAddress", `"${text}" is no http or https address and no hf:owner/repo`);
  const parts = url.pathname.split("/").filter(Boolean);
  const weights = url.pathname.endsWith("/") ? new URL(url) : null;
  if (weights) weights.pathname += "model.safetensors";
  return {
    name: parts.at(-1) ?? url.host,
    note: `from ${url.host}`,
    source: url.href,
    read: weights && readUrl(weights),
  };
}

/** One file is a model by itself, unless it is one of several that belong together. */
export function fromFiles(files, place = files[0]?.webkitRelativePath?.split("/")[0]) {
  if (files.length === 0) throw wrong("NotFound", "the folder has no files of its own");
  const containers = files.filter((file) => /\.(gguf|safetensors)$/.test(file.name));
  const gguf = containers.length === 1 && containers[0].name.endsWith(".gguf") ? containers[0] : null;
  const weights = files.find((file) => file.name === "model.safetensors");
  const single = files.length === 1 ? files[0] : gguf;
  if (single) return { name: single.name, note: "from this device", source: single, read: null };
  return {
    name: place || (weights ?? containers[0] ?? files[0]).name,
    note: "from this device",
    source: Object.fromEntries(files.map((file) => [file.name, file])),
    read: weights ? (offset, length) => weights.slice(offset, offset + length).arrayBuffer() : null,
  };
}

/** Of a picked folder its own files, not those of folders inside. */
export const topLevel = (files) => files.filter((file) => file.webkitRelativePath.split("/").length === 2);

/** Files, or a folder's files and its name. Must be called while the drop is being handled: entries are gone after. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const directory = entries.find((entry) => entry.isDirectory);
  if (!directory) return { files: [...transfer.files] };
  const inside = await listed(directory.createReader());
  const files = await Promise.all(
    inside
      .filter((entry) => entry.isFile)
      .map((entry) => new Promise((resolve, reject) => entry.file(resolve, reject))),
  );
  return { files, place: directory.name };
}

/** A reader gives a part of its entries at a time, and none at the end. */
async function listed(reader) {
  const all = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return all;
    all.push(...some);
  }
}

const wrong = (code, message) => Object.assign(new Error(message), { code });

function readUrl(url) {
  return async (offset, length) => {
    const response = await fetch(url, { headers: { range: `bytes=${offset}-${offset + length - 1}` } });
    if (response.status === 206) return response.arrayBuffer();
    await response.body?.cancel();
    throw new Error(`${url} gives no ranges`);
  };
}
