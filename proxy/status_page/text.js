// Say numbers, times and counts in words, and put text into elements.
//
// Texts come from strangers: they are only ever set as textContent, so none can become markup.

export const $ = (id) => document.getElementById(id);
export const MARKS = { compacted: "▼", masked: "▽", trimmed: "◆", failed: "✕" };

export const count = (n) => Math.round(n).toLocaleString("en-US");
export function short(n) {
  if (n < 10000) return count(n);
  return n < 999500 ? `${(n / 1000).toFixed(n < 99950 ? 1 : 0)}k` : `${(n / 1e6).toFixed(2)}M`;
}
export const share = (part, whole) => (whole > 0 ? Math.round((100 * part) / whole) : 0);
export function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 2) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`;
}
export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
export const words = (name) => String(name).replaceAll("_", " ");
export const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

export function make(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, props);
  made.append(...children);
  return made;
}
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
