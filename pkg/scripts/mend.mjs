/** What has to be put right in a built module, in its text form, because of faults in the tools before and after it. */
export const mend = (wat) => outlineWaits(exactMinMax(wat));

/**
 * LLVM 22 takes relaxed SIMD as leave to turn every `pmin` and `pmax`, and each comparison that picks a number, into
 * `relaxed_min` and `relaxed_max` (llvm/llvm-project#177814). Their answers for NaN and signed zeros differ between
 * machines; ours may not. The operands stand in the same order, so `pmax` brings back what was written.
 */
function exactMinMax(wat) {
  return wat.replace(/\((f32x4|f64x2)\.relaxed_(min|max)\b/g, "($1.p$2");
}

/**
 * Puts each kind of `memory.atomic.wait` into a function of its own. V8 before 12 (Node 20) forgets in its baseline
 * compiler that a wait is a call: locals held in registers are lost, and `std::thread::park` spins for ever on the wrong
 * address. It does spill them around calls, and in a function that does nothing but wait no local is needed after.
 */
function outlineWaits(wat) {
  const outlined = new Map();
  const called = wat.replace(/\(memory\.atomic\.wait(32|64)((?: offset=\d+)?)/g, (_, bits, offset) => {
    const name = `$wait${bits}${offset.replace(" offset=", "+")}`;
    const operands = "(local.get 0) (local.get 1) (local.get 2)";
    const signature = `(param i32 i${bits} i64) (result i32)`;
    outlined.set(name, ` (func ${name} ${signature} (memory.atomic.wait${bits}${offset} ${operands}))\n`);
    return `(call ${name}`;
  });
  return called.replace(/\)\s*$/, `${[...outlined.values()].join("")})\n`);
}
