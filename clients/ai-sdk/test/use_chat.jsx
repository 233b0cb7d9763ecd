/** A chat as README has it, with what the test looks at. */
import { useChat } from "@ai-sdk/react";
import { TernlightChatTransport, ternlight } from "@ternlight/ai-sdk";
import { tool } from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const query = new URLSearchParams(location.search);
const chatTemplate = query.get("template");
const model = ternlight("/model/", { threads: 1, chatTemplate, cache: false });
const weather = tool({
  inputSchema: z.object({ city: z.enum(["Oslo", "Rome"]) }),
  execute: async ({ city }) => ({ city, sky: "clear" }),
});
const calls = query.has("tools")
  ? { tools: { weather }, toolChoice: { type: "tool", toolName: "weather" }, maxSteps: 2 }
  : {};
const transport = new TernlightChatTransport({
  model,
  system: query.get("system") ?? undefined,
  temperature: 0,
  maxOutputTokens: Number(query.get("tokens") ?? 12),
  ...calls,
});

function Chat() {
  const [phases, setPhases] = useState([]);
  const { messages, status, error, sendMessage, regenerate, stop } = useChat({
    transport,
    onData: ({ type, data }) => type === "data-progress" && setPhases((before) => [...before, data.phase]),
  });
  globalThis.chat = { messages, status, error: error?.message, phases, sendMessage, regenerate, stop };
  return messages.map(({ id, role, parts }) => (
    <p key={id}>
      {role}: {parts.map((part) => part.text ?? "").join("")}
    </p>
  ));
}

createRoot(document.getElementById("root")).render(<Chat />);
