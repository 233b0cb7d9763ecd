/**
 * From a fresh clone to the demo page: installs what is missing, builds what a page loads, and serves it.
 *
 *     node scripts/demo.mjs [PORT]
 */
import { spawn } from "node:child_process";
import path from "node:path";
import { duration, root } from "./parts.mjs";
import { isolation, policy, serve } from "./serve.mjs";

const steps = [
  ["Rust with its wasm target, wasm-bindgen, npm packages", "scripts/setup.sh", "rust", "npm"],
  [
    "the engine for pages (with threads, for browsers with and without relaxed SIMD), and the page's scripts",
    "node",
    "pkg/scripts/build.mjs",
    "page",
  ],
];

const start = performance.now();
console.log(
  "The demo is served in three steps. On a new machine with two cores the first takes about a minute, the second about four.",
);
for (const [index, [what, program, ...args]] of steps.entries()) {
  console.log(`${index + 1} of 3  ${what}`);
  const begin = performance.now();
  const ended = await new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: root, stdio: "inherit" });
    child.on("error", reject).on("exit", (code, signal) => resolve(signal ?? code));
  });
  if (ended !== 0) {
    console.error(`step ${index + 1} failed: ${[program, ...args].join(" ")} ended with ${ended}`);
    process.exit(1);
  }
  console.log(`${index + 1} of 3  took ${duration(performance.now() - begin)}`);
}

const mounts = { "/": path.join(root, "www"), "/ternlight/": path.join(root, "pkg") };
const { url } = await serve({
  mounts,
  port: Number(process.argv[2] || 8080),
  orNext: true,
  headers: { ...isolation, ...policy },
  missed(pathname) {
    if (!pathname.endsWith(".wasm")) return;
    console.log(
      `${path.basename(pathname)} was asked for; the demo builds what an isolated page loads, \`make build\` all of them`,
    );
  },
});
console.log(`3 of 3  served after ${duration(performance.now() - start)} in all: ternlight demo: ${url}`);
