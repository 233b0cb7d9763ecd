/** Numbers as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const percentage = new Intl.NumberFormat("en", { style: "percent" });

export const integer = (value) => whole.format(value);
export const percent = (share) => percentage.format(share);
export const rate = (perSecond) => (perSecond < 100 ? three : whole).format(perSecond);
export const decimal = (value) => three.format(value);
export const tokens = (count) => `${integer(count)} ${count === 1 ? "token" : "tokens"}`;
export const duration = (ms) => (ms < 1000 ? `${whole.format(ms)} ms` : `${three.format(ms / 1000)} s`);
/** What is left of a load at its pace; nothing where it is over at once, or has none. */
export function left(seconds) {
  if (!(seconds > 3 && seconds < Infinity)) return "";
  return seconds > 90 ? `${integer(seconds / 60)} min left` : `${integer(seconds)} s left`;
}
export const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
export const size = (bytes) => scaled(bytes, [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]);
export const count = (number) => scaled(number, [1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]);

function scaled(value, ...units) {
  const [unit, name] = units.find(([unit]) => value >= unit) ?? units.at(-1);
  return `${three.format(value / unit)} ${name}`.trim();
}
