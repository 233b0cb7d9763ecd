/** Adapters of the loaded model. */

import type { Handler } from "../call.ts";
import { loadContext } from "./load.ts";

export const loadAdapter: Handler<"loadAdapter"> = (state, { source, settings }, context) =>
  state.model.adapters.load(source, settings, loadContext(state, context));

export const unloadAdapter: Handler<"unloadAdapter"> = ({ model }, { name }) => model.adapters.unload(name);
