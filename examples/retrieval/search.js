/** node search.js FOLDER QUESTION: the passages of a folder's texts that are nearest to a question. */
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { load } from "ternlight";
import demo from "ternlight/demo";

const [folder = "texts", question = "Who lives in the forest?"] = process.argv.slice(2);
// MODEL=hf:Qwen/Qwen3-Embedding-0.6B-GGUF is a model that was trained for this.
const source = process.env.MODEL ?? demo;
const instruction = process.env.MODEL ? "Instruct: Find passages that answer the question\nQuery: " : "";

const database = new DatabaseSync(process.env.DATABASE ?? "passages.db");
database.exec("CREATE TABLE IF NOT EXISTS passages (hash TEXT PRIMARY KEY, vector BLOB) STRICT");
const find = database.prepare("SELECT vector FROM passages WHERE hash = ?");
const insert = database.prepare("INSERT INTO passages (hash, vector) VALUES (?, ?)");

const model = await load(source);
// The vectors of one model say nothing to another one.
const hashOf = (text) =>
  createHash("sha256")
    .update(`${source === demo ? "demo" : source}\n${text}`)
    .digest("hex");

const passages = globSync("**/*.{txt,md}", { cwd: folder })
  .sort()
  .flatMap((file) =>
    readFileSync(path.join(folder, file), "utf8")
      .split(/\n\s*\n/)
      .map((text) => ({ file, text: text.trim() })),
  )
  .filter(({ text }) => text !== "");
const added = passages.filter(({ text }) => !find.get(hashOf(text)));
for (let at = 0; at < added.length; at += 16) {
  const part = added.slice(at, at + 16);
  const vectors = await model.embed(
    part.map(({ text }) => text),
    source === demo ? { pooling: "last" } : {},
  );
  for (const [i, vector] of vectors.entries()) {
    const hash = hashOf(part[i].text);
    if (!find.get(hash)) insert.run(hash, new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength));
  }
}

const [asked] = await model.embed([instruction + question], source === demo ? { pooling: "last" } : {});
await model.close();
const likeness = (text) => {
  // A copy: the bytes of a BLOB need not begin where a float may.
  const vector = new Float32Array(find.get(hashOf(text)).vector.slice().buffer);
  return vector.reduce((sum, value, i) => sum + value * asked[i], 0);
};
const found = passages
  .map((passage) => ({ ...passage, score: likeness(passage.text) }))
  .sort((a, b) => b.score - a.score)
  .slice(0, 3);
console.error(`${passages.length} passages, ${added.length} of them new`);
for (const { file, text, score } of found) console.log(`${score.toFixed(3)} ${file}: ${text.replace(/\s+/g, " ")}`);
