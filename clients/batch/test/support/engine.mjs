/** The demo model in the place of the simulated engine, with lines that are sampled. */
import { openAnswerer } from "ternlight/batch";

const demo = new URL("../../../../pkg/models/ternlight-demo/", import.meta.url);

export const openEngine = () => openAnswerer(demo, { name: "demo", load: { threads: 1, maxSequences: 16 } });

/** Some have a seed of their own, and some cannot be answered. */
const line = (index) => ({
  index,
  text:
    index % 50 === 49
      ? "{broken"
      : JSON.stringify({
          prompt: `The ${["king", "fox", "well", "bread"][index % 4]} of ${index}`,
          max_tokens: 40,
          temperature: 1,
          ignore_eos: true,
          ...(index % 3 === 0 ? { seed: 7 * index } : {}),
        }),
});

export async function* engineRows(count) {
  yield Array.from({ length: count }, (_, index) => line(index));
}

/** What one undisturbed process writes, and the identity of its model. */
export async function engineAlone(count) {
  const { lines, identity, close } = await openEngine();
  const answers = [];
  for await (const rows of engineRows(count))
    answers.push(...(await Promise.all(rows.map((one) => lines.answer(one)))));
  await close();
  const file = (failed) => answers.flatMap((one) => (one.failed === failed ? [`${one.text}\n`] : [])).join("");
  return { out: file(false), errors: file(true), identity };
}
