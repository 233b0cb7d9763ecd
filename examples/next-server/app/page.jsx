"use client";
import { useState } from "react";

export default function Page() {
  const [story, setStory] = useState("");
  async function tell(event) {
    event.preventDefault();
    const beginning = new FormData(event.currentTarget).get("beginning");
    setStory(beginning);
    const response = await fetch("/api/story", { method: "POST", body: JSON.stringify({ beginning }) });
    if (!response.ok) return setStory(`The story could not be told: ${await response.text()}`);
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) setStory((story) => story + text);
  }
  return (
    <main>
      <form onSubmit={tell}>
        <label>
          Beginning <input name="beginning" defaultValue="Once upon a time" required />
        </label>
        <button type="submit">Tell</button>
      </form>
      <output>{story}</output>
    </main>
  );
}
