/** What the catalogue of public models knows of the one that somebody names. */

/** @param source a name on the hub, with its file or without, or an address there. @returns null where it is of no public model */
export async function known(source) {
  const { models } = await import("../ternlight/dist/catalogue.js");
  const name = source
    .replace(/^https:\/\/huggingface\.co\/([^/]+\/[^/]+)\/resolve\/main\//, "hf:$1/")
    .replace(/^hf:\/\//, "hf:")
    .replace(/@main(?=\/|$)/, "")
    .replace(/\/$/, "");
  // Without a file the hub's own choice is meant, which is the one that the catalogue has of a repository.
  const isShort = /^hf:[^/]+\/[^/@]+$/.test(name);
  return models.find(({ file }) => file === name || (isShort && file.startsWith(`${name}/`))) ?? null;
}
