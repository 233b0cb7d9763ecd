/** What every host runs, as a user would write it. */
import { load } from "ternlight";

// No `await` at the top: Vite 5 and 6 build for browsers that lack it.
export async function program(source) {
  const model = await load(source);
  const { flavour, threads } = model.info;
  const text = await model.generate("Once upon a time", { maxTokens: 24, temperature: 0 }).text();
  await model.close();
  return JSON.stringify({ flavour, threads, text });
}
