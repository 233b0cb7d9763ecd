import { load } from "ternlight";
import demo from "ternlight/demo";

// MODEL=hf:prism-ml/Bonsai-1.7B-gguf is a better one: 248 MB, downloaded once.
const source = Deno.env.get("MODEL") ?? demo;
const beginning = Deno.args.join(" ") || "Once upon a time";

await using model = await load(source);
const story = model.generate(beginning, { maxTokens: 100 });
Deno.addSignalListener("SIGINT", () => story.stop());
await Deno.stdout.write(new TextEncoder().encode(beginning));
for await (const bytes of story.textStream()) await Deno.stdout.write(bytes);
console.log();
Deno.exit(0);
