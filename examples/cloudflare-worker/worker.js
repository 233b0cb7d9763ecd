import { load } from "ternlight/edge";
import wasm from "ternlight/single-relaxed.wasm";

// The first request of an isolate loads the model, the others find it.
let loading;

const loadOnce = (address) => {
  loading ??= load(address, { wasm, contextLength: 256 }).catch((error) => {
    loading = undefined;
    throw error;
  });
  return loading;
};

export default {
  async fetch(request, env) {
    const beginning = new URL(request.url).searchParams.get("beginning") ?? "Once upon a time";
    if (beginning.length > 400) return new Response("beginning: at most 400 characters\n", { status: 400 });
    try {
      const model = await loadOnce(env.MODEL);
      const story = model.generate(beginning, { maxTokens: 100 });
      return new Response(story.textStream(), { headers: { "content-type": "text/plain; charset=utf-8" } });
    } catch (error) {
      return new Response(`${error.code ?? "Error"}: ${error.message}\n`, { status: 500 });
    }
  },
};
