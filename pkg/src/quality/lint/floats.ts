/** Small floats as numbers. */

/** The value of an f16. */
export function half(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

const one = new DataView(new ArrayBuffer(4));

/** The value of a bf16, the upper half of an f32. */
export function brain(bits: number): number {
  one.setUint16(0, bits);
  one.setUint16(2, 0);
  return one.getFloat32(0);
}

/** How a type of plain floats is read. */
export const DENSE: Readonly<Record<string, { bytes: number; at(view: DataView, offset: number): number }>> = {
  F32: { bytes: 4, at: (view, offset) => view.getFloat32(offset, true) },
  F16: { bytes: 2, at: (view, offset) => half(view.getUint16(offset, true)) },
  BF16: { bytes: 2, at: (view, offset) => brain(view.getUint16(offset, true)) },
};
