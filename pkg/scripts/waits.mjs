/**
 * Puts each kind of `memory.atomic.wait` into a function of its own, in the text form of a module.
 *
 * V8 before 12 (Node 20) forgets in its baseline compiler that a wait is a call: locals held in registers are lost,
 * and `std::thread::park` spins for ever on the wrong address. It does spill them around calls, and in a function that
 * does nothing but wait no local is needed after.
 */
export function outlineWaits(wat) {
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
