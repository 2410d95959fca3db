// Draws what /status/events tells. Texts come from strangers: they are only ever set as
// textContent, so none of them can become markup.
"use strict";

const $ = (id) => document.getElementById(id);
const MOST_ROWS = 100;
const SILENT_MS = 30000; // three missed heartbeats
const MARKS = { compacted: "▼", trimmed: "◆", failed: "✕" };

const state = { rows: new Map(), totals: {}, health: {}, skew: 0, open: null, story: null, at: null };

// Words and numbers

const count = (n) => Math.round(n).toLocaleString("en-US");
function short(n) {
  if (n < 10000) return count(n);
  return n < 999500 ? `${(n / 1000).toFixed(n < 99950 ? 1 : 0)}k` : `${(n / 1e6).toFixed(2)}M`;
}
const share = (part, whole) => (whole > 0 ? Math.round((100 * part) / whole) : 0);
const now = () => Date.now() / 1000 + state.skew;
function ago(at) {
  const s = Math.max(0, Math.round(now() - at));
  if (s < 2) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`;
}
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
const words = (name) => String(name).replaceAll("_", " ");
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

function make(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, props);
  made.append(...children);
  return made;
}
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The list

function lastEvent(row) {
  if (row.is_noting) return ["noting", "writing notes …", ""];
  if (!row.last) return ["", row.last_outcome ? "passed untouched" : "", ago(row.last_at)];
  const { what, before, after, why, at } = row.last;
  const told = what === "failed" ? words(why) : `${short(before)} → ${short(after)}`;
  return [what, what === "failed" ? "notes failed" : what, `${told} · ${ago(at)}`];
}

function makeRow(id) {
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
  part.told = make("span");
  span("last", part.what, part.told).className = "last";
  part.button = make(
    "button", { type: "button", className: "row" },
    make("span", { className: "who" }, part.id, part.model), part.turns,
    make("span", { className: "bar-cell" }, part.bar, part.pct), part.tokens,
    part.cmp, part.trim, part.fail, part.last,
  );
  part.button.dataset.id = id;
  part.button.setAttribute("aria-controls", "detail");
  part.button.addEventListener("click", () => (state.open === id ? closeDetail() : openDetail(id)));
  part.item = make("li", {}, part.button);
  return part;
}

function drawCount(node, n) {
  setText(node, String(n));
  node.classList.toggle("none", n === 0);
}

function drawRow(row) {
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
  drawCount(part.cmp, data.totals.compactions);
  drawCount(part.trim, data.totals.trims);
  drawCount(part.fail, data.totals.failures);
  const [what, named, told] = lastEvent(data);
  part.last.dataset.what = what;
  setText(part.what, named);
  setText(part.told, told && named ? ` ${told}` : told);
  part.button.setAttribute("aria-expanded", String(state.open === data.id));
  part.button.setAttribute(
    "aria-label",
    `Conversation ${data.id}, ${data.model || "no model named"}, ${plural(data.turns, "turn")}, ` +
      `${count(data.tokens)} of ${count(data.budget)} tokens, ${full} percent; ` +
      `${plural(data.totals.compactions, "compaction")}, ${plural(data.totals.trims, "trim")}, ` +
      `${plural(data.totals.failures, "failure")}; ${named} ${told}`,
  );
}

// Newest first; but nothing moves under a pointer, or away from the keyboard.
function drawOrder() {
  const list = $("rows"), focused = document.activeElement;
  const wanted = [...state.rows.values()].sort((a, b) => b.data.last_at - a.data.last_at);
  for (const row of wanted.splice(MOST_ROWS)) forget(row);
  const isHeld = list.matches(":hover") || list.contains(focused);
  const shown = wanted.filter((row) => !isHeld || !row.part.item.isConnected);
  shown.forEach((row, i) => {
    if (list.children[i] !== row.part.item) list.insertBefore(row.part.item, list.children[i] ?? null);
  });
  $("empty").hidden = state.rows.size > 0;
}

function forget(row) {
  row.part.item.remove();
  state.rows.delete(row.data.id);
  if (state.open === row.data.id) closeDetail();
}

function take(summaries, isAll) {
  if (isAll) {
    const known = new Set(summaries.map((summary) => summary.id));
    for (const row of [...state.rows.values()]) if (!known.has(row.data.id)) forget(row);
  }
  for (const data of summaries) {
    let row = state.rows.get(data.id);
    if (!row) state.rows.set(data.id, (row = { data, part: makeRow(data.id) }));
    else announce(row.data, data);
    row.data = data;
    drawRow(row);
  }
  drawOrder();
  if (state.open && summaries.some((summary) => summary.id === state.open)) loadStory();
}

function announce(before, data) {
  if (!data.last || (before.last && before.last.at === data.last.at)) return;
  const { what, before: from, after } = data.last;
  const told = what === "failed" ? "notes failed" : `${what}, from ${count(from)} to ${count(after)} tokens`;
  $("said").textContent = `Conversation ${data.id}: ${told}`;
}

function drawTotals() {
  const t = state.totals;
  const told = [
    [t.requests, "requests"], [t.compactions, "compactions"], [t.trims, "trims"], [t.failures, "failures"],
    [t.prompt_tokens ? `${share(t.cached_tokens, t.prompt_tokens)} %` : "–", "cached"],
  ];
  $("totals").replaceChildren(
    ...told.map(([n, name]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: typeof n === "number" ? count(n) : n })),
    ),
  );
}

function lamp(id, look, text) {
  $(id).dataset.state = look;
  setText($(id), text);
}

function drawHealth() {
  const troubles = [];
  for (const name of ["upstream", "store"]) {
    const told = state.health[name];
    const look = told === "ok" ? "ok" : !told || told === "loading" ? "wait" : "bad";
    lamp(name, look, look === "bad" ? `${name} in trouble` : told === "loading" ? `${name} loading` : name);
    if (look === "bad") troubles.push(`${name}: ${told}`);
  }
  $("trouble").hidden = troubles.length === 0;
  setText($("trouble"), troubles.join(" · "));
}

// One conversation

function openDetail(id) {
  state.open = id;
  state.story = state.at = null;
  for (const row of state.rows.values()) row.part.button.setAttribute("aria-expanded", String(row.data.id === id));
  $("detail").hidden = false;
  $("plot").replaceChildren();
  $("readout").textContent = "";
  document.querySelector("main").classList.add("split");
  drawHead(state.rows.get(id).data);
  $("detail-title").focus();
  loadStory();
}

function closeDetail() {
  const row = state.rows.get(state.open);
  state.open = state.story = null;
  $("detail").hidden = true;
  document.querySelector("main").classList.remove("split");
  if (row) {
    row.part.button.setAttribute("aria-expanded", "false");
    row.part.button.focus();
  }
}

let loading = false, again = false;
async function loadStory() {
  if (loading) return void (again = true);
  loading = true;
  const id = state.open;
  try {
    const answer = await fetch(`status.json?conversation=${encodeURIComponent(id)}`, { cache: "no-store" });
    if (answer.ok && state.open === id) {
      state.story = (await answer.json()).story;
      drawStory();
    }
  } catch {
    // The lamp shows that the proxy is gone; the next change asks again.
  } finally {
    loading = false;
    if (again && state.open) {
      again = false;
      loadStory();
    }
  }
}

function drawHead(data) {
  $("detail-title").replaceChildren(
    make("span", { className: "id", textContent: data.id }), " ",
    make("span", { className: "model", textContent: data.model }),
  );
  const t = data.totals;
  const facts = [
    ["prompt", short(data.tokens), `of ${short(data.budget)}, ${share(data.tokens, data.budget)} %`],
    ["window", short(data.window), ""],
    ["compacts", data.compact_at ? `above ${short(data.compact_at * data.budget)}` : "never", data.compact_at ? `to ${short(data.compact_to * data.budget)}` : ""],
    ["turns", count(data.turns), `${plural(t.requests, "request")}`],
    ["cached", t.prompt_tokens ? `${share(t.cached_tokens, t.prompt_tokens)} %` : "–", ""],
    ["first seen", clock(data.first_at), ""],
  ];
  $("facts").replaceChildren(
    ...facts.map(([name, value, more]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", {}, value, more ? " " : "", make("small", { textContent: more }))),
    ),
  );
}

function drawStory() {
  const { story } = state;
  drawHead(story.conversation);
  drawPlot();
  const list = [...story.changes].reverse().map((change) => {
    const turns = change.turns ? `${plural(change.turns, "turn")} replaced` : "";
    const more = [turns, words(change.why), change.seconds ? `${change.seconds.toFixed(1)} s` : ""];
    return make(
      "li", {},
      make("time", { textContent: clock(change.at) }),
      make("span", { className: `m-${change.what}`, textContent: `${MARKS[change.what]} ${change.what}` }),
      make("span", { className: "soft", textContent: `req. ${change.number}` }),
      make("span", { textContent: change.what === "failed" ? `at ${count(change.before)}` : `${count(change.before)} → ${count(change.after)}` }),
      make("span", { className: "soft", textContent: more.filter(Boolean).join(", ") }),
    );
  });
  $("changes").replaceChildren(...(list.length ? list : [make("li", { className: "none", textContent: "None so far." })]));
  $("block-part").hidden = story.block === null;
  setText($("block"), story.block ?? "");
}

// The time line

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

function drawPlot() {
  const { requests, changes, conversation } = state.story, box = $("plot");
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
    const at = y(part * budget);
    add("line", { class: `limit ${look}`, x1: left, x2: width - right, y1: at, y2: at });
    add("text", { x: width - right + 6, y: at + 4 }, name);
  }
  for (const change of changes) {
    if (change.number < first) continue;
    const at = x(change.number);
    if (change.what !== "failed")
      add("line", { class: `drop m-${change.what}`, x1: at, x2: at, y1: y(change.before), y2: y(change.after) });
    const peak = change.what === "failed" ? y(change.before) - 4 : y(change.before) - 3;
    add("text", { class: `mark m-${change.what}`, x: at, y: Math.max(11, peak), "text-anchor": "middle" }, MARKS[change.what]);
  }
  const every = Math.max(1, Math.ceil(requests.length / Math.max(2, Math.floor((width - left - right) / 70))));
  requests.forEach((r, i) => {
    if (i % every === 0) add("text", { x: x(r.number) + step / 2, y: height - 4, "text-anchor": "middle" }, String(r.turn));
  });
  add("text", { x: width - right + 6, y: height - 4 }, "turn");
  drawn.dataset.left = left;
  drawn.dataset.step = step;
  box.replaceChildren(drawn);
  if (state.at !== null) point(Math.min(state.at, requests.length - 1));
}

function describe() {
  const { requests, changes, conversation } = state.story;
  const by = (what) => changes.filter((change) => change.what === what).length;
  return (
    `Prompt tokens over ${plural(requests.length, "request")}: now ${count(conversation.tokens)} of ` +
    `${count(conversation.budget)}; ${plural(by("compacted"), "compaction")}, ${plural(by("trimmed"), "trim")}, ` +
    `${plural(by("failed"), "failure")}`
  );
}

function point(i) {
  const { requests, changes } = state.story, drawn = $("plot").firstChild, r = requests[i];
  if (!drawn || !r) return;
  state.at = i;
  drawn.querySelector(".cursor")?.remove();
  const at = Number(drawn.dataset.left) + (i + 0.5) * Number(drawn.dataset.step);
  drawn.append(svg("line", { class: "cursor", x1: at, x2: at, y1: 6, y2: $("plot").clientHeight - 20 }));
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
  if (!state.story || !drawn) return;
  const at = event.clientX - $("plot").getBoundingClientRect().left - Number(drawn.dataset.left);
  const i = Math.floor(at / Number(drawn.dataset.step));
  if (i >= 0 && i < state.story.requests.length) point(i);
});
$("plot").addEventListener("keydown", (event) => {
  if (!state.story) return;
  const last = state.story.requests.length - 1, i = state.at ?? last;
  const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  point(Math.min(last, Math.max(0, to)));
});
new ResizeObserver(() => state.story && drawPlot()).observe($("plot"));

// Keyboard

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.open) return closeDetail();
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], isEdge = event.key === "Home" || event.key === "End";
  const focused = document.activeElement, isFree = focused === document.body;
  if ((!step && !isEdge) || event.altKey || event.ctrlKey || event.metaKey) return;
  const buttons = [...document.querySelectorAll(".row")];
  const i = buttons.indexOf(focused);
  if (!buttons.length || (i < 0 && !(isFree && step))) return;
  event.preventDefault();
  const to = isEdge ? (event.key === "Home" ? 0 : buttons.length - 1) : i < 0 ? 0 : i + step;
  buttons[Math.min(buttons.length - 1, Math.max(0, to))].focus();
});
$("close").addEventListener("click", closeDetail);

// The stream

let source, heardAt = 0;
function hear(event) {
  heardAt = Date.now();
  lamp("live", "ok", "live");
  const told = JSON.parse(event.data);
  state.skew = told.now - heardAt / 1000;
  if (told.health) state.health = told.health;
  if (told.totals) state.totals = told.totals;
  if (told.version) setText($("version"), told.version);
  if (told.upstream_url) $("upstream").title = told.upstream_url;
  if (told.conversations) take(told.conversations, event.type === "state");
  drawTotals();
  drawHealth();
}

function connect() {
  source?.close();
  heardAt = Date.now();
  source = new EventSource("status/events");
  for (const name of ["state", "changes", "health"]) source.addEventListener(name, hear);
  source.onerror = () => {
    lamp("live", "bad", "not connected");
    // After an answer that is no stream the browser gives up by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

setInterval(() => {
  if (Date.now() - heardAt > SILENT_MS) connect();
  if (document.hidden) return;
  for (const row of state.rows.values()) drawRow(row);
}, 1000);

$("base-url").textContent = new URL("v1", location.href).href;
connect();
