/** What is watched: a model in this tab, or a server. Both are read as the server's text of metrics, and their health beside it. */

import { Exposition } from "./exposition.js";

/** What a server may take to answer, in milliseconds. */
const PATIENCE = 5000;

/** A model in this tab. */
export class TabModel {
  constructor(model, name) {
    this.model = model;
    this.name = name;
  }

  async read() {
    const [text, health] = await Promise.all([this.model.metrics(), this.model.health()]);
    return { exposition: new Exposition(text), status: "ok", watched: health.watched };
  }

  async end() {
    await this.model.close();
  }
}

/** A `ternlight serve` somewhere. */
export class Server {
  #base;
  #headers;
  #abort = new AbortController();

  constructor(address, key) {
    const url = URL.canParse(address.trim()) ? new URL(address.trim()) : null;
    if (!/^https?:$/.test(url?.protocol)) throw trouble("BadAddress", `"${address}" is no http or https address`);
    // Clients are given the address of /v1, and people copy it.
    this.#base = url.origin + url.pathname.replace(/\/(v1\/?)?$/, "");
    this.#headers = key ? { authorization: `Bearer ${key}` } : {};
    this.name = url.host;
  }

  async read() {
    const [metrics, health] = await Promise.all([this.#get("/metrics?dialect=ternlight"), this.#get("/health")]);
    if ([401, 403].includes(metrics.status)) {
      throw trouble("Refused", `${this.name} wants a key for its metrics, or another one (HTTP ${metrics.status})`);
    }
    const text = metrics.ok ? await metrics.text() : "";
    const exposition = new Exposition(text);
    if (exposition.value("ternlight_server_info") === null) {
      throw trouble("NotOurs", `${this.name} has no metrics under ternlight’s names (HTTP ${metrics.status})`);
    }
    const { status = "unknown", models = {} } = await health.json().catch(() => ({}));
    return { exposition, status, watched: Object.keys(models).length > 0 };
  }

  async end() {
    this.#abort.abort();
  }

  async #get(path) {
    const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(PATIENCE)]);
    try {
      return await fetch(this.#base + path, { headers: this.#headers, signal, cache: "no-store" });
    } catch {
      const allow = `ternlight serve --cors ${location.origin}`;
      throw trouble("Unreachable", `${this.name} does not answer, or does not let this page ask it (${allow} does)`);
    }
  }
}

/** Trouble that another attempt may end. */
export const passes = (error) => error.code === "Unreachable";

const trouble = (code, message) => Object.assign(new Error(message), { code });
