import { brain, half } from "../../source/floats.ts";

/** How a type of plain floats is read. */
export const DENSE: Readonly<Record<string, { bytes: number; at(view: DataView, offset: number): number }>> = {
  F32: { bytes: 4, at: (view, offset) => view.getFloat32(offset, true) },
  F16: { bytes: 2, at: (view, offset) => half(view.getUint16(offset, true)) },
  BF16: { bytes: 2, at: (view, offset) => brain(view.getUint16(offset, true)) },
};
