/** Small floats as numbers, and back. */

const number = new DataView(new ArrayBuffer(4));

/** The value of an f16. */
export function half(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** The value of a bf16, the upper half of an f32. */
export function brain(bits: number): number {
  number.setUint16(0, bits);
  number.setUint16(2, 0);
  return number.getFloat32(0);
}

/** A number's bits as an f16, exact where it is one. */
export function toHalf(value: number): number {
  number.setFloat32(0, value);
  const bits = number.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 255) - 112;
  const fraction = bits & 0x7fffff;
  if (exponent >= 31) return sign | 0x7c00;
  if (exponent < -10) return sign;
  if (exponent <= 0) return sign | ((fraction | 0x800000) >> (14 - exponent));
  return sign | (exponent << 10) | (fraction >> 13);
}
