// The strip of health: which gateway this is, one state for each kind of part, and every alarm with
// the time since which it holds. A level is a symbol and a word as well as a colour.

import { arrange, duration, element, moment, write } from "./format.js";

const by = (id) => document.getElementById(id);

// Levels from good to bad.
const LEVELS = {
  ok: { symbol: "\u2713", words: "All is well" },
  warning: { symbol: "!", words: "Warning" },
  critical: { symbol: "\u2717", words: "Needs attention" },
  unknown: { symbol: "?", words: "Not known" },
};
const ORDER = ["ok", "unknown", "warning", "critical"];

// Alarms that are listed; the others are counted.
const MOST_ALARMS = 8;

// The level of each state that a part may have.
const STATES = {
  up: "ok", resolved: "ok", unasked: "ok", connected: "ok", alive: "ok",
  lagging: "warning",
  down: "critical", unresolved: "critical", failed: "critical", stuck: "critical",
};

// Kinds of parts: the title, the good state, and the text if there is no part of the kind.
const KINDS = [
  { key: "links", title: "Links", good: "up", none: "none" },
  { key: "next_hops", title: "Next hops", good: "resolved", none: "none named" },
  { key: "logs", title: "Event logs", good: "connected", none: "none" },
  { key: "workers", title: "Workers", good: "alive", none: "none" },
];

const TITLE = document.title;

export class Health {
  #parts = new Map();

  show(health) {
    const alarms = health.alarms ?? [];
    const isAnswered = health.links !== null && health.next_hops !== null;
    const levels = alarms.map((alarm) => (alarm.severity === "warning" ? "warning" : "critical"));
    const level = worst([health.ok && isAnswered ? "ok" : "unknown", ...levels]);
    const count = alarms.length;
    const problems = count === 1 ? "1 problem" : `${count} problems`;
    this.#level(level, count === 0 ? LEVELS[level].words : `${LEVELS[level].words}: ${problems}`);
    const host = health.host ?? "";
    write(by("health-host"), `${host}${host === "" ? "" : " · "}natgate ${health.version}`);
    document.title = `${LEVELS[level].symbol} ${host || TITLE}${host ? ` · ${TITLE}` : ""}`;
    const parts = KINDS.map((kind) => this.#part(kind, health[kind.key]));
    parts.splice(3, 0, this.#routes(health.routes ?? {}));
    arrange(by("health-parts"), parts);
    this.#alarms(alarms);
  }

  // The health cannot be had; `why` is a sentence without its full stop.
  unknown(why) {
    this.#level("unknown", `${LEVELS.unknown.words}: ${why}`);
    document.title = `${LEVELS.unknown.symbol} ${TITLE}`;
  }

  #level(level, words) {
    by("health").dataset.level = level;
    document.body.dataset.level = level;
    write(by("health-symbol"), LEVELS[level].symbol);
    write(by("health-level"), words);
  }

  // One kind of part: how many of it are as they should be, and the others by their state.
  #part({ key, title, good, none }, list) {
    if (!list) return this.#entry(key, title, "unknown", "not known");
    if (list.length === 0) return this.#entry(key, title, "ok", none);
    const counts = new Map();
    for (const { state } of list) counts.set(state, (counts.get(state) ?? 0) + 1);
    const others = [...counts].filter(([state]) => state !== good);
    const words = [`${counts.get(good) ?? 0} of ${list.length} ${good}`];
    words.push(...others.map(([state, count]) => `${count} ${state}`));
    // A level of another version is not taken for good.
    const level = worst([...counts.keys()].map((state) => STATES[state] ?? "unknown"));
    return this.#entry(key, title, level, words.join(", "));
  }

  #routes({ announced, learnt }) {
    const counts = [[announced, "announced"], [learnt, "learnt"]];
    const words = counts.filter(([count]) => Number.isFinite(count)).map(([count, word]) => `${count} ${word}`);
    return this.#entry("routes", "Routes", "ok", words.join(", ") || "none asked for");
  }

  #entry(key, title, level, words) {
    let part = this.#parts.get(key);
    if (!part) {
      const symbol = element("span", { class: "symbol", "aria-hidden": "true" });
      const [name, state] = [element("span", { class: "kind" }, title), element("span", { class: "of" })];
      const text = element("span", { class: "text" }, name, " ", state);
      part = { symbol, state, item: element("li", { "data-part": key }, symbol, text) };
      this.#parts.set(key, part);
    }
    part.item.dataset.level = level;
    write(part.symbol, LEVELS[level].symbol);
    write(part.state, words);
    return part.item;
  }

  #alarms(alarms) {
    const now = Date.now() / 1000;
    const shown = alarms.slice(0, MOST_ALARMS).map((alarm) => {
      const level = alarm.severity === "warning" ? "warning" : "critical";
      const symbol = element("span", { class: "symbol", "aria-hidden": "true" }, LEVELS[level].symbol);
      const time = element("time", { datetime: moment(alarm.since) },
        `since ${local(alarm.since)}, ${duration(Math.max(0, now - alarm.since))} ago`);
      const text = element("span", { class: "text" },
        element("b", {}, `${level === "warning" ? "Warning" : "Critical"}: ${alarm.text}`), " ", time);
      return element("li", { "data-level": level }, symbol, text);
    });
    if (alarms.length > MOST_ALARMS) {
      const more = `and ${alarms.length - MOST_ALARMS} more; natgate show health lists all`;
      shown.push(element("li", {}, element("span", { class: "symbol" }), element("span", { class: "text" }, more)));
    }
    by("health-alarms").hidden = shown.length === 0;
    by("health-alarms").replaceChildren(...shown);
  }
}

function worst(levels) {
  return levels.reduce((one, other) => (ORDER.indexOf(other) > ORDER.indexOf(one) ? other : one), "ok");
}

// A date and a time of day here; the date is left out today.
function local(seconds) {
  const time = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const date = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} `;
  const isToday = time.toDateString() === new Date().toDateString();
  return `${isToday ? "" : date}${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}
