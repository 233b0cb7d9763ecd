import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import flavours from "../../flavours.json" with { type: "json" };

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

/** Disassembling a module takes seconds. */
const disassembled = new Map<string, Promise<string[]>>();

/** The functions of a module in text form, by binaryen's disassembler. */
function functions(file: string): Promise<string[]> {
  const known = disassembled.get(file) ?? disassemble(file);
  disassembled.set(file, known);
  return known;
}

async function disassemble(file: string): Promise<string[]> {
  const options = { maxBuffer: 1 << 30 };
  const args = [path("../node_modules/.bin/wasm-dis"), "--all-features", path(`dist/${file}`)];
  const { stdout } = await promisify(execFile)(process.execPath, args, options);
  // What is not a function stands on the same level: imports, data with any text in it, exports.
  return stdout.split(/\n \((?=[a-z])/).filter((part) => part.startsWith("func "));
}

function count(bodies: string[], instruction: RegExp): number {
  return bodies.reduce((sum, body) => sum + [...body.matchAll(instruction)].length, 0);
}

for (const { name, file, simd, threads } of flavours) {
  test(`${name} computes with the instructions it is named for`, async (context) => {
    const bodies = await functions(file);
    const dots = {
      relaxed: count(bodies, /\(i32x4\.relaxed_dot_i8x16_i7x16_add_s\b/g),
      simd128: count(bodies, /\(i32x4\.dot_i16x8_s\b/g),
    };
    context.diagnostic(`${bodies.length} functions, dot products: ${JSON.stringify(dots)}`);
    assert.ok(dots[simd as keyof typeof dots] > 0, "no dot product is left in it: did a build flag get lost?");

    // Those of which every engine has the same answer: dot products of 7 bits, and lookups whose indices are below 16. Any other relaxed
    // instruction may answer differently on another machine, and LLVM brings some in by itself (scripts/mend.mjs).
    const relaxed = bodies.flatMap((body) => body.match(/[a-z0-9]+\.relaxed_\w+/g) ?? []);
    const allowed =
      simd === "relaxed"
        ? ["i16x8.relaxed_dot_i8x16_i7x16_s", "i32x4.relaxed_dot_i8x16_i7x16_add_s", "i8x16.relaxed_swizzle"]
        : [];
    assert.deepEqual([...new Set(relaxed)].sort(), allowed);

    const atomics = count(bodies, /\((?:\w+\.)?atomic\.\w+/g);
    if (threads) assert.ok(atomics > 0);
    else assert.equal(atomics, 0);
  });

  test(`${name} waits only where no local is lost`, async () => {
    // scripts/mend.mjs says why.
    const alone =
      /^func \S+ .*\n {2}\(memory\.atomic\.wait\d\d(?: offset=\d+)?\n {3}\(local\.get \$0\)\n {3}\(local\.get \$1\)\n {3}\(local\.get \$2\)\n {2}\)\n \)(?:\s*;; custom section .*)*\s*\)?\s*$/;
    const waiting = (await functions(file)).filter((body) => body.includes("(memory.atomic.wait"));
    assert.equal(waiting.length > 0, threads);
    for (const body of waiting) assert.match(body, alone);
  });
}

test("an engine without relaxed SIMD takes the builds that are for it, and only those", async () => {
  const node20 = path("test/hosts/node_modules/node20/bin/node");
  const script = "process.stdin.toArray().then((b) => console.log(WebAssembly.validate(Buffer.concat(b))))";
  for (const { file, simd } of flavours) {
    const child = promisify(execFile)(node20, ["--eval", script]);
    child.child.stdin!.end(await readFile(path(`dist/${file}`)));
    assert.equal((await child).stdout.trim(), String(simd === "simd128"), file);
  }
});
