/** Models that a reader chooses: addresses, and files and folders, picked or dropped. */

import { problem } from "../dom.js";
import { builtIn, readUrl } from "./sources.js";

export function fromAddress(text) {
  // A name on Hugging Face's hub: `load` asks what it has.
  if (text.trim().startsWith("hf:")) {
    const source = text.trim();
    return { name: source.slice("hf:".length), note: "from huggingface.co", source, read: null };
  }
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  if (!/^https?:$/.test(url?.protocol))
    throw problem("BadAddress", `"${text}" is no http or https address and no hf:owner/repo`);
  if (url.href === builtIn.address) return builtIn;
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
export function fromFiles(files, place) {
  if (files.length === 0) throw problem("NotFound", "the folder has no files of its own");
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
export function fromFolder(files) {
  const place = files[0]?.webkitRelativePath.split("/")[0];
  return fromFiles(
    files.filter((file) => file.webkitRelativePath.split("/").length === 2),
    place,
  );
}

/** @param entries of the files and folders that were dropped, where the browser knows of such */
export async function fromDrop(files, entries) {
  const directory = entries.find((entry) => entry.isDirectory);
  if (!directory) return fromFiles(files);
  const inside = await listed(directory.createReader());
  const own = inside
    .filter((entry) => entry.isFile)
    .map((entry) => new Promise((resolve, reject) => entry.file(resolve, reject)));
  return fromFiles(await Promise.all(own), directory.name);
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
