/** The site of the documents: `make docs`. Pages lie as in the repository, so that links work in both. */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";
import { slug } from "../scripts/slug.mjs";

const guide = [
  ["loading", "Loading and cache"],
  ["threads", "Threads and headers"],
  ["models", "Public models"],
  ["formats", "Formats"],
  ["quality", "Smaller models"],
  ["sampling", "Sampling"],
  ["sessions", "Sessions and batching"],
  ["kv-cache", "KV cache"],
  ["adapters", "Adapters"],
  ["structured-output", "Structured output"],
  ["tools", "Tools"],
  ["frameworks", "Frameworks"],
  ["prompt-api", "Prompt API"],
  ["batch", "Batches"],
  ["edge", "Edge workers"],
  ["operating", "Running it like production"],
  ["deployment", "Recipes for hosts"],
  ["machine", "The machine around the process"],
  ["command-line", "Command line"],
  ["profiling", "Profiling"],
  ["troubleshooting", "Troubleshooting"],
];
const about = [
  ["numerics", "Numerics"],
  ["performance", "Performance"],
  ["security", "Security"],
  ["architecture", "Architecture"],
  ["contributing", "Contributing"],
];
const reference = [
  ["options", "Options"],
  ["errors", "Errors"],
  ["cli", "Command line"],
];
const pages = (folder, list) => list.map(([name, text]) => ({ text, link: `/docs/${folder}${name}` }));
/** Beside the pages, and not of them. */
const demo = { text: "Demo", link: "/demo/index.html", target: "_self" };
const api = { text: "API", link: "/api/index.html", target: "_self" };

/** Pages outside of this folder find Vue here. */
const vue = {
  name: "vue-for-pages",
  enforce: "pre",
  resolveId(id, importer) {
    if (!/^vue($|\/)/.test(id) || !importer?.endsWith(".md")) return null;
    return this.resolve(id, fileURLToPath(import.meta.url), { skipSelf: true });
  },
};

/** Where the site lies on its host: make docs DOCS_BASE=/ternlight/ */
const base = process.env.DOCS_BASE || "/";

export default defineConfig({
  title: "ternlight",
  description: "1-bit and ternary language models in WebAssembly",
  lang: "en",
  base,
  head: [["link", { rel: "icon", type: "image/svg+xml", href: `${base}demo/icon.svg` }]],
  srcDir: "..",
  outDir: ".site",
  cacheDir: "node_modules/.vitepress",
  srcExclude: [
    "{pkg,src,tests,fuzz,target,www,scripts,constrain,clients,deploy}/**",
    "docs/{node_modules,.site,.vitepress}/**",
    "**/node_modules/**",
    "**/target/**",
  ],
  rewrites: { "README.md": "index.md" },
  lastUpdated: false,
  vite: { plugins: [vue] },
  markdown: { anchor: { slugify: slug }, languageAlias: { caddy: "nginx" } },
  themeConfig: {
    nav: [{ text: "Guide", link: "/docs/guide/loading" }, api, demo],
    sidebar: [
      { text: "Start", items: [{ text: "What it is", link: "/" }, demo] },
      { text: "Guide", items: pages("guide/", guide) },
      { text: "Reference", items: [...pages("reference/", reference), api] },
      { text: "About", items: [...pages("", about), { text: "Changes", link: "/CHANGELOG" }] },
    ],
    search: { provider: "local" },
    outline: [2, 3],
  },
});
