// One line of the list: who it is, how full, what happened to it last.

import { ago, count, make, plural, setText, share, short, words } from "./text.js";

const OUTCOMES = { none: "passed untouched", reused: "notes reused" };

function lastEvent(row, now) {
  if (row.is_noting) return ["noting", "writing notes …", "", ""];
  if (!row.last) return ["", "", OUTCOMES[row.last_outcome] ?? "asked", ago(now - row.last_at)];
  const { what, before, after, why, at } = row.last;
  const told = what === "failed" ? words(why) : `${short(before)} → ${short(after)}`;
  return [what, what === "failed" ? "notes failed" : what, told, ago(now - at)];
}

/** The elements of a row; *toggle* is called with its id. */
export function makeRow(id, toggle) {
  const part = {};
  const span = (name, ...children) => (part[name] = make("span", {}, ...children));
  span("id").className = "id";
  span("model").className = "model";
  span("fill").className = "fill";
  span("at").className = "tick";
  span("to").className = "tick to";
  span("bar", part.fill, part.to, part.at).className = "bar";
  span("pct").className = "pct";
  span("turns").className = "turns";
  span("prompt");
  part.budget = make("small");
  span("tokens", part.prompt, part.budget).className = "tokens";
  for (const [name, kind] of [["cmp", "compacted"], ["trim", "trimmed"], ["fail", "failed"]])
    span(name).className = `count ${kind}`;
  part.what = make("b");
  part.told = make("span", { className: "told" });
  part.when = make("span", { className: "when" });
  span("last", part.what, part.told, part.when).className = "last";
  part.button = make(
    "button", { type: "button", className: "row" },
    make("span", { className: "who" }, part.id, part.model), part.turns,
    make("span", { className: "bar-cell" }, part.bar, part.pct), part.tokens,
    part.cmp, part.trim, part.fail, part.last,
  );
  part.button.dataset.id = id;
  part.button.setAttribute("aria-controls", "detail");
  part.button.addEventListener("click", () => toggle(id));
  part.item = make("li", {}, part.button);
  return part;
}

function drawCount(node, n) {
  setText(node, String(n));
  node.classList.toggle("none", n === 0);
}

/** Shows a conversation as it is *now*, in seconds since the epoch. */
export function drawRow(row, now, isOpen) {
  const { part } = row, data = row.data, full = share(data.tokens, data.budget);
  setText(part.id, data.id);
  setText(part.model, data.model || "(no model named)");
  part.model.title = data.model;
  setText(part.turns, String(data.turns));
  part.fill.style.width = `${Math.min(100, full)}%`;
  part.at.hidden = part.to.hidden = !data.compact_at;
  part.at.style.left = `calc(${100 * data.compact_at}% - 1px)`;
  part.to.style.left = `calc(${100 * data.compact_to}% - 1px)`;
  part.at.title = `compacts above ${count(data.compact_at * data.budget)}`;
  part.to.title = `aims for ${count(data.compact_to * data.budget)}`;
  const isOver = data.compact_at && data.tokens > data.compact_at * data.budget;
  part.bar.dataset.level = data.tokens > 0.9 * data.budget ? "full" : isOver ? "over" : "";
  setText(part.pct, data.budget ? `${full} %` : "");
  setText(part.prompt, short(data.tokens));
  setText(part.budget, ` / ${short(data.budget)}`);
  drawCount(part.cmp, data.totals.compactions + data.totals.masks);
  drawCount(part.trim, data.totals.trims);
  drawCount(part.fail, data.totals.failures);
  const [what, named, told, when] = lastEvent(data, now);
  part.last.dataset.what = what;
  setText(part.what, named);
  setText(part.told, told);
  setText(part.when, when);
  part.button.setAttribute("aria-expanded", String(isOpen));
  part.button.setAttribute(
    "aria-label",
    `Conversation ${data.id}, ${data.model || "no model named"}, ${plural(data.turns, "turn")}, ` +
      `${count(data.tokens)} of ${count(data.budget)} tokens, ${full} percent; ` +
      `${plural(data.totals.compactions, "compaction")}, ${data.totals.masks ? `${plural(data.totals.masks, "mask")}, ` : ""}${plural(data.totals.trims, "trim")}, ` +
      `${plural(data.totals.failures, "failure")}; ${named} ${told} ${when}`,
  );
}
