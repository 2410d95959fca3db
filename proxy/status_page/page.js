// Draws what /status/events tells: the list of conversations, one of them opened, the health.

import { drawPlot } from "./plot.js";
import { drawRow, makeRow } from "./rows.js";
import { $, MARKS, clock, count, make, plural, setText, share, short, words } from "./text.js";

const MOST_ROWS = 100;
const SILENT_MS = 30000; // three missed heartbeats
const AGAIN_MS = 1000;

const state = { rows: new Map(), totals: {}, health: {}, skew: 0, open: null };
const toggle = (id) => (state.open === id ? closeDetail() : openDetail(id));
const draw = (row) => drawRow(row, Date.now() / 1000 + state.skew, state.open === row.data.id);

// The list

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
    if (!row) state.rows.set(data.id, (row = { data, part: makeRow(data.id, toggle) }));
    else announce(row.data, data);
    row.data = data;
    draw(row);
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
    [t.requests, "requests"], [t.compactions, "compactions"], ...(t.masks ? [[t.masks, "masks"]] : []), [t.trims, "trims"], [t.failures, "failures"],
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
  drawPlot(null);
  for (const row of state.rows.values()) row.part.button.setAttribute("aria-expanded", String(row.data.id === id));
  $("detail").hidden = false;
  $("plot").replaceChildren();
  $("readout").textContent = "Point at the time line, or move along it with ← and →.";
  document.querySelector("main").classList.add("split");
  drawHead(state.rows.get(id).data);
  $("detail-title").focus();
  loadStory();
}

function closeDetail() {
  const row = state.rows.get(state.open);
  state.open = null;
  drawPlot(null);
  $("detail").hidden = true;
  document.querySelector("main").classList.remove("split");
  if (row) {
    row.part.button.setAttribute("aria-expanded", "false");
    row.part.button.focus();
  }
}

let loading = false, isStale = false;
async function loadStory() {
  if (loading) return void (isStale = true);
  loading = true;
  const id = state.open;
  try {
    const answer = await fetch(`status.json?conversation=${encodeURIComponent(id)}`, { cache: "no-store" });
    if (answer.ok && state.open === id) {
      drawStory((await answer.json()).story);
    }
  } catch {
    // The lamp shows that the proxy is gone; the next change asks again.
  } finally {
    loading = false;
    if (isStale && state.open) {
      isStale = false;
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
    ["turns", count(data.turns), `${plural(t.requests, "request")} since ${clock(data.first_at)}`],
    ["cached", t.prompt_tokens ? `${share(t.cached_tokens, t.prompt_tokens)} %` : "–", ""],
  ];
  $("facts").replaceChildren(
    ...facts.map(([name, value, more]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", {}, value, more ? " " : "", make("small", { textContent: more }))),
    ),
  );
}

function drawStory(story) {
  drawHead(story.conversation);
  drawPlot(story);
  const list = [...story.changes].reverse().map((change) => {
    const turns = change.turns ? plural(change.turns, "turn") : "";
    const more = [turns, words(change.why), change.seconds ? `${change.seconds.toFixed(1)}\u00a0s` : ""];
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

let source, again, heardAt = 0;
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
    // Browsers wait longer each time, and give up after an answer that is no stream.
    source.close();
    clearTimeout(again);
    again = setTimeout(connect, AGAIN_MS);
  };
}

setInterval(() => {
  if (Date.now() - heardAt > SILENT_MS) connect();
  if (document.hidden) return;
  for (const row of state.rows.values()) draw(row);
}, 1000);

$("base-url").textContent = new URL("v1", location.href).href;
connect();
