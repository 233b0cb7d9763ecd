/** Where a GGUF keeps its map of activations, as JSON. */
export const ACTIVATIONS_KEY = "ternlight.activations";
