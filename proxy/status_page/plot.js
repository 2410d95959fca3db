// The time line of one conversation: prompt tokens of each request, what of them was cached,
// the drops at compactions and trims, and notes that failed.

import { $, MARKS, count, plural, setText, share, short, words } from "./text.js";

let story = null, at = null; // what is drawn, and the index of the request that is pointed at

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function niceStep(most) {
  const rough = most / 4, ten = 10 ** Math.floor(Math.log10(rough || 1));
  return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough);
}

/** Draws a story; what was pointed at stays pointed at. */
export function drawPlot(told) {
  story = told;
  if (!story) return void (at = null);
  const { requests, changes, conversation } = story, box = $("plot");
  if (!requests.length) return box.replaceChildren();
  const width = box.clientWidth, height = box.clientHeight;
  const left = 44, right = 78, top = 14, bottom = 20;
  const budget = conversation.budget;
  const most = 1.04 * Math.max(budget, ...requests.map((r) => r.tokens), ...changes.map((c) => c.before));
  const first = requests[0].number, step = (width - left - right) / requests.length;
  const x = (number) => left + Math.min(requests.length, Math.max(0, number - first)) * step;
  const y = (tokens) => top + (height - top - bottom) * (1 - tokens / most);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe() });
  const add = (tag, attributes, text) => drawn.appendChild(svg(tag, attributes, text));

  const gap = niceStep(most);
  for (let tokens = 0; tokens <= most; tokens += gap) {
    add("line", { class: "grid", x1: left, x2: width - right, y1: y(tokens), y2: y(tokens) });
    add("text", { x: left - 8, y: y(tokens) + 4, "text-anchor": "end" }, short(tokens));
  }
  const steps = (value) =>
    requests.map((r) => `L${x(r.number)},${y(value(r))}L${x(r.number + 1)},${y(value(r))}`).join("");
  const area = (value) => `M${x(first)},${y(0)}${steps(value)}L${x(first + requests.length)},${y(0)}Z`;
  add("path", { class: "area-new", d: area((r) => r.tokens) });
  add("path", { class: "area-cached", d: area((r) => Math.min(r.tokens, r.cached ?? 0)) });
  add("path", { class: "edge", d: `M${steps((r) => r.tokens).slice(1)}` });

  const limits = [["budget", "budget", 1]];
  if (conversation.compact_at)
    limits.push(["compact_at", "at", conversation.compact_at], ["compact_to", "to", conversation.compact_to]);
  for (const [name, look, part] of limits) {
    const level = y(part * budget);
    add("line", { class: `limit ${look}`, x1: left, x2: width - right, y1: level, y2: level });
    add("text", { x: width - right + 6, y: level + 4 }, name);
  }
  for (const change of changes) {
    if (change.number < first) continue;
    const place = x(change.number);
    if (change.what !== "failed")
      add("line", { class: `drop m-${change.what}`, x1: place, x2: place, y1: y(change.before), y2: y(change.after) });
    const peak = change.what === "failed" ? y(change.before) - 4 : y(change.before) - 3;
    add("text", { class: `mark m-${change.what}`, x: place, y: Math.max(11, peak), "text-anchor": "middle" }, MARKS[change.what]);
  }
  const every = Math.max(1, Math.ceil(requests.length / Math.max(2, Math.floor((width - left - right) / 70))));
  requests.forEach((r, i) => {
    if (i % every === 0) add("text", { x: x(r.number) + step / 2, y: height - 4, "text-anchor": "middle" }, String(r.turn));
  });
  add("text", { x: width - right + 6, y: height - 4 }, "turn");
  drawn.dataset.left = left;
  drawn.dataset.step = step;
  box.replaceChildren(drawn);
  if (at !== null) point(Math.min(at, requests.length - 1));
}

function describe() {
  const { requests, changes, conversation } = story;
  const by = (what) => changes.filter((change) => change.what === what).length;
  return (
    `Prompt tokens over ${plural(requests.length, "request")}: now ${count(conversation.tokens)} of ` +
    `${count(conversation.budget)}; ${plural(by("compacted"), "compaction")}, ${by("masked") ? `${plural(by("masked"), "mask")}, ` : ""}${plural(by("trimmed"), "trim")}, ` +
    `${plural(by("failed"), "failure")}`
  );
}

function point(i) {
  const { requests, changes } = story, drawn = $("plot").firstChild, r = requests[i];
  if (!drawn || !r) return;
  at = i;
  drawn.querySelector(".cursor")?.remove();
  const middle = Number(drawn.dataset.left) + (i + 0.5) * Number(drawn.dataset.step);
  drawn.append(svg("line", { class: "cursor", x1: middle, x2: middle, y1: 6, y2: $("plot").clientHeight - 20 }));
  const told = [
    `request ${r.number}, turn ${r.turn}`, `${count(r.tokens)} tokens${r.is_answered ? "" : " (estimated)"}`,
    `${share(r.tokens, r.budget)} % of the budget`,
  ];
  if (r.cached !== null) told.push(`${count(r.tokens - r.cached)} processed, ${count(r.cached)} cached`);
  for (const change of changes)
    if (change.number === r.number) told.push(`${MARKS[change.what]} ${change.what}${change.what === "failed" ? ` (${words(change.why)})` : ""}`);
  setText($("readout"), told.join(" · "));
}

$("plot").addEventListener("pointermove", (event) => {
  const drawn = $("plot").firstChild;
  if (!story || !drawn) return;
  const from = event.clientX - $("plot").getBoundingClientRect().left - Number(drawn.dataset.left);
  const i = Math.floor(from / Number(drawn.dataset.step));
  if (i >= 0 && i < story.requests.length) point(i);
});
$("plot").addEventListener("keydown", (event) => {
  if (!story) return;
  const last = story.requests.length - 1, i = at ?? last;
  const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  point(Math.min(last, Math.max(0, to)));
});
new ResizeObserver(() => story && drawPlot(story)).observe($("plot"));
