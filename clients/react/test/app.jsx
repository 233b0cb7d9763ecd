/** What the tests look at: components that use models, shown and hidden by the test. Which React it is, the build decides. */
import { retryTernlight, useChatSession, useGeneration, useTernlight } from "@ternlight/react";
import { Component, StrictMode, Suspense, useState, version } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
const options = () => ({ threads: 1, chatTemplate, cache: false, warmup: false });
const seen = {};
Object.assign(globalThis, { seen, version });

function User({ name, source }) {
  const found = useTernlight(source, options());
  const generation = useGeneration(found.model);
  const chat = useChatSession(found.model, { system: "Be brief. ", temperature: 0, maxTokens: 12 });
  seen[name] = { ...found, generation, chat };
  seen[name].history = [...(seen[name].history ?? []), found.status];
  return (
    <p>
      {name}: {found.status} {generation.text}
    </p>
  );
}

function Waiting({ name, source }) {
  const { model, status } = useTernlight(source, { ...options(), suspense: true });
  seen[name] = { model, status };
  return (
    <p>
      {name}: {model.info.architecture}
    </p>
  );
}

class Boundary extends Component {
  state = { error: null };
  static getDerivedStateFromError(error) {
    return { error };
  }
  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    globalThis.again = () => {
      retryTernlight(this.props.source, options());
      this.setState({ error: null });
    };
    return <p>failed: {error.code}</p>;
  }
}

function App() {
  const [shown, setShown] = useState([]);
  globalThis.show = setShown;
  return shown.map(({ name, source, suspense }) =>
    suspense ? (
      <Boundary key={name} source={source}>
        <Suspense fallback={<p>{name}: waiting</p>}>
          <Waiting name={name} source={source} />
        </Suspense>
      </Boundary>
    ) : (
      <User key={name} name={name} source={source} />
    ),
  );
}

const app = <App />;
createRoot(document.getElementById("root")).render(query.has("strict") ? <StrictMode>{app}</StrictMode> : app);
