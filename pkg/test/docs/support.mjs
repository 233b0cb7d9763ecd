/** The Markdown of this repository: documents, their blocks of code, their links and headings; and files for what they name. */
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { slug } from "../../../docs/scripts/slug.mjs";

export const root = fileURLToPath(new URL("../../../", import.meta.url));
const golden = (...names) => path.join(root, "tests", "golden", ...names);

/** Documents that users read, by their path in the repository. */
export const documents = [
  ...globSync("*.md", { cwd: root }),
  ...globSync("docs/*.md", { cwd: root }),
  ...globSync("docs/{guide,reference}/**/*.md", { cwd: root }),
].sort();

/** Documents for contributors: their links are checked too. */
export const others = [
  ...globSync("examples/**/*.md", { cwd: root, exclude: ["**/node_modules"] }),
  ...globSync("benches/results/*.md", { cwd: root }),
  "tests/golden/README.md",
  "pkg/models/ternlight-demo/README.md",
];

export const read = (document) => readFileSync(path.join(root, document), "utf8");

/**
 * The fenced blocks of a document. `needs` is what the comment before a block says: `<!-- example: prelude model; prints /x/ -->`.
 */
export function blocks(document) {
  const text = read(document);
  const fence = /(?:^<!-- example: (.*) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm;
  return Array.from(text.matchAll(fence), (match) => {
    const [whole, needs = "", language, code] = match;
    const line = text.slice(0, match.index + whole.indexOf("```")).split("\n").length;
    return { document, line, language, code, needs: needs.split("; ").filter(Boolean), name: `${document}:${line}` };
  });
}

/** A model with a tokenizer and a chat template, of 487 kB. */
export const tiny = golden("gguf", "llama_bitlinear.TQ2_0.gguf");

/** What stands for each address that the documents name: `HOST/PATH` to a file, or to a folder where both end in a slash. */
const addresses = {
  "example.com/model.gguf": tiny,
  "example.com/Qwen3-Embedding-0.6B-Q8_0.gguf": golden("gguf", "qwen3.Q8_0.gguf"),
  "example.org/base.gguf": golden("gguf", "llama_f32.F32.gguf"),
  "example.org/terse.gguf": golden("lora", "llama_f32.lora.gguf"),
  "example.org/pirate-lora/": golden("lora", "llama_f32.lora/"),
};

/** A small file of the architecture and storage types of a public model, by the address of that model. */
export function standIn(address) {
  const { pathname } = new URL(address);
  const kinds = [
    [/^\/prism-ml\/Bonsai-.*-Q1_0\.gguf$/, "gguf/qwen3.Q1_0_all.gguf"],
    [/^\/prism-ml\/Ternary-Bonsai-.*-Q2_0_g64\.gguf$/, "gguf/qwen3.Q2_0_all.gguf"],
    [/^\/microsoft\/bitnet-b1\.58-2B-4T-gguf\/.*i2_s\.gguf$/, "gguf/bitnet_packed.b158.I2_S.gguf"],
    [/^\/microsoft\/bitnet-b1\.58-2B-4T\/resolve\/main\/$/, "models/bitnet_packed/"],
    [/^\/tiiuae\/Falcon-E-.*\/resolve\/main\/$/, "models/llama_bitlinear/"],
    [/^\/tiiuae\/Falcon(3|-E)-.*i2_s\.gguf$/, "gguf/llama_bitlinear.I2_S.gguf"],
    [/^\/brunopio\/Llama3-8B-.*-TQ2_0\.gguf$/, "gguf/llama_bitlinear.TQ2_0.gguf"],
    [/^\/Green-Sky\/TriLM_.*-TQ2_0\.gguf$/, "gguf/trilm_style.TQ2_0.gguf"],
    [/^\/SpectraSuite\/TriLM_.*\/resolve\/main\/$/, "models/trilm_style/"],
    [/^\/1bitLLM\/bitnet_b1_58-.*\/resolve\/main\/$/, "models/onebitllm_style/"],
  ];
  const [, file] = kinds.find(([pattern]) => pattern.test(pathname)) ?? [];
  return file && golden(file);
}

/** Models of which no small file is like them: a hybrid in these storage types. */
export const aloneOfItsKind = (address) => /\/(Ternary-)?Bonsai-(2-)?27B-gguf\//.test(address);

/** Addresses of models on the hub in a text. */
export const hubAddresses = (text) => [
  ...new Set(text.match(/https:\/\/huggingface\.co\/[^\s"'`)]+\/resolve\/[^\s"'`)]+/g)),
];

/** What a server has to serve so that `rewritten` addresses are there. */
export function mounts(texts) {
  const hub = texts.flatMap(hubAddresses).map((address) => [address.replace("https://", ""), standIn(address)]);
  return Object.fromEntries([...Object.entries(addresses), ...hub].map(([address, file]) => [`/${address}`, file]));
}

/** A text whose addresses point at a server that serves `mounts`. */
export const rewritten = (text, server) =>
  text
    .replace(/https:\/\/(example\.(?:com|org)|huggingface\.co)\//g, `${server}$1/`)
    .replaceAll("8c1f…", createHash("sha256").update(readFileSync(tiny)).digest("hex"));

const withoutCode = (text) => text.replace(/^```[\s\S]*?^```$/gm, "").replace(/`[^`\n]*`/g, "");

/** The anchors of a document. */
export function anchors(document) {
  const seen = new Map();
  const headings = read(document)
    .replace(/^```[\s\S]*?^```$/gm, "")
    .matchAll(/^#{1,6} (.*)$/gm);
  return Array.from(headings, ([, heading]) => {
    const name = slug(heading.replace(/[`*]|\[([^\]]*)\]\([^)]*\)/g, "$1").trim());
    const times = seen.get(name) ?? 0;
    seen.set(name, times + 1);
    return times ? `${name}-${times}` : name;
  });
}

/** Where the links and images of a document go. */
export const links = (document) =>
  Array.from(withoutCode(read(document)).matchAll(/\]\(([^)\s]+)(?: "[^"]*")?\)/g), ([, target]) => target);

/**
 * Asks a page with a form and an answer in `output` twice: the first answer is stopped, the second sees both. A development server
 * may load the page anew when it has found what the page imports; a question that was lost by it is asked again.
 */
export async function chat(page) {
  for (let turn = 0; turn < 2; turn++) {
    for (let left = 3; ; left--) {
      const before = (await page.locator("output").textContent()).length;
      await page.getByRole("textbox").fill("Name three rivers.");
      await page.getByRole("button", { name: "Send" }).click();
      // At once: a small model fills its context before a test has found the button.
      const stopped = (before) => {
        if (document.querySelector("output").textContent.length <= before) return false;
        Array.from(document.querySelectorAll("button"))
          .find(({ textContent }) => textContent === "Stop")
          .click();
        return true;
      };
      try {
        // Not with frames, which a busy machine may hold back until the answer has filled the context.
        await page.waitForFunction(stopped, before, { timeout: 10_000, polling: 5 });
        break;
      } catch (error) {
        if (left === 1) throw error;
      }
    }
  }
}
