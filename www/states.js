/** The signals of a model's health as rows: a state in a word and a colour, the value, its thresholds, and its course. */

import { tag } from "./facts.js";
import { decimal, integer } from "./format.js";
import { draw, newChart } from "./timeline.js";

const share = (value) => `${decimal(100 * value)} %`;
const bits = (value) => `${decimal(value)} bits`;

/** How each is called and written, and whether less is worse. */
const KNOWN = {
  weights: { title: "Changed weights", show: share },
  kvEntropy: { title: "KV entropy", show: bits, below: true },
  repetition: { title: "Repetition in answers", show: share },
  zeroChannels: { title: "Silent channels", show: share },
  int8Saturation: { title: "Activations at their limit", show: share },
  kvSaturation: { title: "KV codes at their limit", show: share },
  nonFinite: { title: "NaNs and infinities", show: integer },
  perplexity: { title: "Perplexity", show: decimal },
};

/** By the number that metrics give, from -1. */
const STATES = ["unknown", "ok", "warn", "alert"];
const SIGNS = { unknown: "?", ok: "✓", warn: "!", alert: "✕" };

/** What is known of a model's signals at a moment. */
export function signalsOf(exposition, model) {
  return exposition.all("ternlight_health_state", { model }).map(({ labels: { signal }, value }) => {
    const threshold = (state) => exposition.value("ternlight_health_threshold", { model, signal, state });
    return {
      name: signal,
      state: STATES[value + 1] ?? "unknown",
      value: exposition.value("ternlight_health_value", { model, signal }),
      warn: threshold("warn"),
      alert: threshold("alert"),
    };
  });
}

/** The worst state of those that are known. */
export const worst = (signals) => STATES[Math.max(0, ...signals.map(({ state }) => STATES.indexOf(state)))];

export const titleOf = (name) => KNOWN[name]?.title ?? name;

/** A state in a sign and a word, coloured. */
export function badge(state) {
  const element = tag("strong", `${SIGNS[state]} ${state}`);
  element.className = `badge ${state}`;
  return element;
}

/** Fills a list; rows that are there are kept, so that a reader's place is too. */
export function showSignals(list, signals, rows, now) {
  for (const [i, signal] of signals.entries()) {
    const row = list.children[i] ?? list.appendChild(newRow());
    const { show = decimal, below = false } = KNOWN[signal.name] ?? {};
    const { name, state, value, warn, alert } = signal;
    if (row.dataset.signal !== name || row.dataset.state !== state) {
      Object.assign(row.dataset, { signal: name, state });
      row.querySelector("h3").textContent = titleOf(name);
      row.querySelector(".badge").replaceWith(badge(state));
    }
    row.querySelector(".value").textContent = value === null ? "not measured yet" : show(value);
    const from = below ? "below" : "from";
    const limits =
      warn === alert
        ? [`alert ${from} ${show(alert)}`]
        : [`warn ${from} ${show(warn)}`, `alert ${from} ${show(alert)}`];
    row.querySelector(".limits").textContent = limits.join(", ");
    draw(row.querySelector("svg"), {
      title: titleOf(name),
      lines: [{ points: rows.map(({ at, signals }) => ({ at, value: signals[name] })) }],
      show,
      least: Math.min(warn, alert),
      levels: [
        ...(warn === alert ? [] : [{ value: warn, kind: "warn", text: "warn" }]),
        { value: alert, kind: "alert", text: "alert" },
      ],
      now,
    });
  }
  while (list.children.length > signals.length) list.lastElementChild.remove();
}

function newRow() {
  const row = document.createElement("li");
  const [value, limits] = ["value", "limits"].map((name) => {
    const element = tag("p", "");
    element.className = name === "limits" ? "limits quiet" : name;
    return element;
  });
  row.append(tag("h3", ""), badge("unknown"), value, limits, newChart());
  return row;
}
