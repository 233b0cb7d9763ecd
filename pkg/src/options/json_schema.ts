import type { ResponseFormat } from "../types/index.ts";

/**
 * The format of an answer that a JSON schema accepts, for the option `responseFormat`.
 *
 * @example
 * ```ts
 * import { jsonSchema, load } from "ternlight";
 * import demo from "ternlight/demo";
 *
 * const answer = { type: "object", properties: { age: { type: "integer", maximum: 99 } }, required: ["age"] };
 * const model = await load(demo);
 * console.log(await model.generate("As JSON:", { responseFormat: jsonSchema(answer), maxTokens: 60 }).text());
 * await model.close();
 * ```
 */
export const jsonSchema = (schema: object | true): ResponseFormat => ({ type: "json_schema", schema });
