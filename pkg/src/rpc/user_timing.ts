/** Spans of time, from the host that measured them into the timeline of the engine's owner. */

export interface TimeSpan {
  track: string;
  name: string;
  color: "primary" | "secondary" | "tertiary";
  /** Milliseconds since 1970: each thread's own clock begins elsewhere. */
  start: number;
  end: number;
  properties: [string, string][];
}

/** Enters spans into this thread's timeline, in the form that DevTools shows in tracks of their own. */
export function show(spans: readonly TimeSpan[]): void {
  const own = (time: number) => Math.max(0, time - performance.timeOrigin);
  for (const { track, name, color, start, end, properties } of spans) {
    const tooltipText = [name, ...properties.map(([key, value]) => `${key}: ${value}`)].join(", ");
    const devtools = { dataType: "track-entry", track, trackGroup: "ternlight", color, properties, tooltipText };
    performance.measure?.(name, { start: own(start), end: own(end), detail: { devtools } });
  }
}
