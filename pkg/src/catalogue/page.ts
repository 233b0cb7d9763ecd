/** The catalogue for pages, a file beside `worker.js`. A page loads it when somebody looks for a model. */

export { fitOf, plan } from "./fit.ts";
export { models, settingsText } from "./models.ts";
export { expectedSpeeds } from "./speed.ts";
