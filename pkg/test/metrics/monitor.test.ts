/** The share of a core that watching takes, by a clock that moves with what is done. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Recorder } from "../../src/metrics/recorder.ts";
import { Monitor } from "../../src/signals/monitor.ts";

const TILE = 4096;
const TILES = 2000;

for (const share of [0.005, 0.02, 0.04]) {
  test(`looks at steps and at weights together take at most ${share} of a core`, async (context) => {
    let now = 0;
    context.mock.method(performance, "now", () => (now += 0.01));
    mock.timers.enable({ apis: ["setTimeout"] });
    context.after(() => mock.timers.reset());
    const memory = new WebAssembly.Memory({ initial: 200 });
    // One matrix whose tiles take longer to compare than there is time.
    const matrix = Float64Array.of(0, TILES, TILE, TILES, TILE, 0, 0);
    const spent = { steps: 0, looks: 0 };
    const engine = {
      step() {
        now += 2;
        spent.steps += 2;
        return [];
      },
      served: () => Uint32Array.of(0),
      busy: () => true,
      watch(what: number) {
        if (what === 0) return matrix;
        now += 5;
        spent.looks += 5;
        return what === 1 ? Float64Array.of(0, 1, 4, 0) : new Float64Array(0);
      },
      watchLogits() {},
    };
    const turn = async () => {};
    const around = { engine, memory, operations: [], recorder: new Recorder(), kvCacheType: "f32", turn };
    const monitor = await Monitor.start(around, { share });
    const begun = now;
    while (now - begun < 20_000) {
      monitor.step(0);
      mock.timers.tick(3);
      await Promise.resolve();
      await new Promise(setImmediate);
    }
    const { share: taken, signals } = monitor.health;
    assert.ok(spent.looks > 0 && signals.weights.from.rounds! >= 0);
    // One look at the cache, and what one tile takes, may go beyond.
    assert.ok(taken <= share + 10 / 20_000, `${taken}`);
    assert.ok(taken > 0.8 * share, `${taken}`);
    assert.ok(spent.looks / (now - begun) <= 0.5 * share + 10 / 20_000, "steps take no more than half");
  });
}
