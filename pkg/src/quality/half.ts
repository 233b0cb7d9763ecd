/** Numbers as f16, exactly where they are f16 numbers. */

const number = new DataView(new ArrayBuffer(4));

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
