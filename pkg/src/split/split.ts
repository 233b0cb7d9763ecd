/** What only models need that are split over several memories. The bundles for pages have it in a file of its own. */

export { join } from "./join.ts";
export { widen } from "./plan.ts";
