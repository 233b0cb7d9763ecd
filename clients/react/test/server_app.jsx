/** What a server renders and a page hydrates. */
import { useGeneration, useTernlight } from "@ternlight/react";
import { Suspense } from "react";

const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";

function Shown({ source, suspense }) {
  const options = { threads: 1, chatTemplate, cache: false, warmup: false };
  const { status, progress, model } = useTernlight(source, { ...options, suspense });
  const { text } = useGeneration(model);
  return (
    <p>
      {status} {String(progress && "some")} {model?.info.architecture ?? "no model"} {text}
    </p>
  );
}

export const App = ({ source, suspense = false }) => (
  <main>
    <h1>A page of a server</h1>
    <Suspense fallback={<b>wait</b>}>
      <Shown source={source} suspense={suspense} />
    </Suspense>
  </main>
);
