/** A digest of the kernels' sources, which the build puts in: measurements hold for the kernels that were measured. */
declare const KERNELS: string | undefined;

export const KERNELS_DIGEST = typeof KERNELS === "undefined" ? "" : KERNELS;
