// The panels: each shows one part of the gateway's state, or a note while there is nothing to show.

import { Refused, url } from "./api.js";
import { arrange, clock, element, fill, percent, rate, short, whole, write } from "./format.js";
import { HeatMap, MEASURES, STEPS, share } from "./heatmap.js";

const by = (id) => document.getElementById(id);

// Writes a panel's note; no text hides it.
export function note(panel, text) {
  const place = document.querySelector(`[data-note="${panel}"]`);
  if (!place) return;
  write(place, text ?? "");
  place.hidden = !text;
}

// The figures at the top: means over a few samples, so that they can be read.
export class Tiles {
  #recent = [];

  flows(flows, dropped) {
    this.#recent.push({ flows, dropped });
    if (this.#recent.length > 3) this.#recent.shift();
    const mean = (of) => this.#recent.reduce((sum, one) => sum + of(one), 0) / this.#recent.length;
    for (const way of ["outbound", "inbound"]) {
      this.#tile(way, rate(mean((one) => one.flows[way].bits), "bit/s"),
        rate(mean((one) => one.flows[way].packets), "pps"));
    }
    const drops = mean((one) => one.dropped);
    const all = mean((one) => Object.values(one.flows).reduce((sum, way) => sum + way.packets, 0)) + drops;
    this.#tile("drops", rate(drops, "pps"), all > 0 ? `${percent(drops / all)} of all` : "no packets");
  }

  mappings(count) {
    write(document.querySelector('[data-tile="mappings"]'), short(count));
  }

  subscribers(count) {
    const noun = count === 1 ? "subscriber" : "subscribers";
    write(document.querySelector('[data-under="mappings"]'), `of ${short(count)} ${noun}`);
  }

  pool(fullest) {
    if (!fullest) return this.#tile("pool", "–", "no pool");
    this.#tile("pool", percent(fullest.share), `${fullest.name}, ${MEASURES[fullest.measure]}`);
  }

  #tile(name, value, under) {
    write(document.querySelector(`[data-tile="${name}"]`), value);
    write(document.querySelector(`[data-under="${name}"]`), under);
  }
}

export class Directions {
  show(flows) {
    const columns = [
      { head: "Direction", of: ([way]) => way },
      { head: "pps", n: true, of: ([, flow]) => short(flow.packets) },
      { head: "bit/s", n: true, of: ([, flow]) => short(flow.bits) },
      { head: "packets in all", n: true, of: ([, flow]) => whole(flow.total) },
      { head: "dropped", n: true, of: ([, flow]) => whole(flow.dropped) },
    ];
    fill(by("directions"), columns, Object.entries(flows), ([way]) => way);
  }
}

// Reasons that have occurred, the most frequent first, each with its meaning; the others are folded away.
export class Drops {
  #rates = {};
  #texts = {};
  #rows = new Map();

  meanings(texts) {
    this.#texts = texts;
  }

  rates(rates) {
    this.#rates = rates;
    for (const [reason, row] of this.#rows) write(row.rate, rate(rates[reason] ?? 0, "pps"));
  }

  totals(drops) {
    const all = Object.entries(drops);
    const seen = all.filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
    const sum = seen.reduce((total, [, count]) => total + count, 0);
    note("drops", seen.length === 0 ? "Nothing has been dropped." : "");
    arrange(by("drops"), seen.map(([reason, count]) => this.#row(reason, count, sum)));
    this.#never(all.filter(([, count]) => count === 0).map(([reason]) => reason));
  }

  #row(reason, count, sum) {
    const row = this.#rows.get(reason) ?? this.#make(reason);
    write(row.count, whole(count));
    write(row.meaning, this.#texts[reason] ?? "");
    row.bar.style.setProperty("--share", count / sum);
    return row.item;
  }

  #make(reason) {
    const row = {
      rate: element("span", { class: "n rate" }, rate(this.#rates[reason] ?? 0, "pps")),
      count: element("span", { class: "n count" }),
      meaning: element("p", { class: "meaning" }),
      bar: element("div", { class: "bar", "aria-hidden": "true" }),
    };
    const first = element("div", { class: "row" }, element("code", {}, reason), row.rate, row.count);
    row.item = element("li", {}, first, row.bar, row.meaning);
    this.#rows.set(reason, row);
    return row;
  }

  #never(reasons) {
    by("never").hidden = reasons.length === 0;
    const these = reasons.length === 1 ? "reason that has" : "reasons that have";
    write(by("never-summary"), `${whole(reasons.length)} ${these} not occurred`);
    const named = `${reasons.join()} ${Object.keys(this.#texts).length}`;
    if (by("never-list").dataset.named === named) return;
    by("never-list").dataset.named = named;
    by("never-list").replaceChildren(...reasons.flatMap((reason) => [
      element("dt", {}, element("code", {}, reason)), element("dd", {}, this.#texts[reason] ?? ""),
    ]));
  }
}

// Each pool: how full it is, by what there is of it, and its addresses as a heat map.
export class Pools {
  #panels = new Map();
  #pools = [];
  #measure = null;

  constructor(look, fullest) {
    this.look = look;
    this.fullest = fullest;
    by("steps").append(...legend());
    by("measure").addEventListener("change", (event) => {
      this.#measure = event.target.value;
      this.#draw();
    });
  }

  show(pools) {
    this.#pools = pools;
    note("pools", pools.length === 0 ? "There is no pool: nothing is translated dynamically." : "");
    this.#offer();
    this.#draw();
    const uses = pools.flatMap((pool) => Object.keys(MEASURES).flatMap((measure) =>
      pool.use[measure] ? [{ name: pool.name, measure, share: share(pool.use[measure]) }] : []));
    this.fullest(uses.sort((a, b) => b.share - a.share)[0]);
  }

  // Offers the measures for colours: at first blocks where there are some, else the fullest protocol.
  #offer() {
    const offered = Object.keys(MEASURES).filter((measure) => this.#pools.some((pool) => pool.use[measure]));
    const select = by("measure");
    if (select.dataset.offered !== offered.join()) {
      select.dataset.offered = offered.join();
      select.replaceChildren(...offered.map((key) => element("option", { value: key }, MEASURES[key])));
    }
    if (!offered.includes(this.#measure)) {
      const most = (measure) => Math.max(...this.#pools.map((pool) => share(pool.use[measure])));
      const ports = offered.filter((measure) => measure !== "blocks").sort((a, b) => most(b) - most(a));
      this.#measure = offered.includes("blocks") ? "blocks" : ports[0] ?? "tcp";
    }
    select.value = this.#measure;
  }

  #draw() {
    arrange(by("pools"), this.#pools.map((pool) => {
      const panel = this.#panels.get(pool.name) ?? this.#make(pool.name);
      this.#meters(panel, pool);
      // A pool that has no blocks is coloured by its fullest protocol.
      const measure = pool.use[this.#measure] ? this.#measure : fullest(pool);
      panel.map.show(pool, measure);
      return panel.holder;
    }));
  }

  #make(name) {
    const id = `pool-${this.#panels.size}`;
    const meters = element("div", { class: "meters" });
    const cells = element("div", { class: "map" });
    const title = element("div", { class: "title" }, element("h3", { id }, name));
    const holder = element("article", { class: "pool", "aria-labelledby": id }, title, meters, cells);
    const panel = { holder, meters, map: new HeatMap(title, cells, this.look) };
    this.#panels.set(name, panel);
    return panel;
  }

  #meters({ meters }, pool) {
    const wanted = Object.keys(MEASURES).filter((measure) => pool.use[measure]);
    while (meters.children.length < wanted.length) {
      meters.append(element("div", { class: "use", role: "meter", "aria-valuemin": 0, "aria-valuemax": 100 },
        element("span", { class: "what" }), element("span", { class: "n" }),
        element("div", { class: "bar", "aria-hidden": "true" }), element("span", { class: "of" })));
    }
    while (meters.children.length > wanted.length) meters.lastChild.remove();
    wanted.forEach((measure, place) => {
      const use = pool.use[measure];
      const [what, part, bar, of] = meters.children[place].children;
      write(what, MEASURES[measure]);
      write(part, percent(share(use)));
      write(of, `${whole(use.used)} of ${whole(use.total)}`);
      bar.style.setProperty("--share", share(use));
      meters.children[place].classList.toggle("full", share(use) >= STEPS.at(-1));
      meters.children[place].setAttribute("aria-valuenow", Math.round(share(use) * 100));
      meters.children[place].setAttribute("aria-label", `${MEASURES[measure]} of pool ${pool.name}`);
    });
  }
}

function legend() {
  const names = ["none", "to 25 %", "to 50 %", "to 75 %", "to 90 %", "above"];
  const entries = names.map((name, place) => element("li", {},
    element("span", { class: "cell", "data-step": place, "aria-hidden": "true" }), name));
  entries.push(element("li", {},
    element("span", { class: "cell", "data-step": 0, "data-draining": "", "aria-hidden": "true" }), "draining"));
  return entries;
}

// The protocol with the largest share in use.
function fullest(pool) {
  const offered = Object.keys(MEASURES).filter((measure) => pool.use[measure] && measure !== "blocks");
  return offered.sort((a, b) => share(pool.use[b]) - share(pool.use[a]))[0] ?? "tcp";
}

export class Subscribers {
  constructor(look) {
    this.look = look;
    by("subscribers").addEventListener("click", (event) => {
      const address = event.target.closest("button")?.dataset.address;
      if (address) look(address);
    });
  }

  show(list) {
    note("subscribers", list.length === 0 ? "Nobody has a mapping now." : "");
    const link = (address) => element("button", {
      type: "button", class: "link", "data-address": address, "aria-label": `Mappings of ${address}`,
    }, address);
    const columns = [
      { head: "Subscriber", of: (one) => link(one.subscriber) },
      { head: "TCP", n: true, of: (one) => whole(one.mappings.tcp) },
      { head: "UDP", n: true, of: (one) => whole(one.mappings.udp) },
      { head: "Other", n: true, of: (one) => whole(one.mappings.other) },
      { head: "Sessions", n: true, of: (one) => whole(one.sessions) },
    ];
    if (list.some((one) => one.realm !== undefined)) {
      columns.splice(1, 0, { head: "Realm", of: (one) => one.realm ?? "" });
    }
    fill(by("subscribers"), columns, list, (one) => `${one.realm ?? ""} ${one.subscriber}`);
  }
}

export class Workers {
  #before = null;

  constructor(totals) {
    this.totals = totals;
  }

  show(workers) {
    this.totals(workers.reduce((sum, one) => sum + one.mappings, 0));
    const past = this.#before;
    this.#before = workers;
    note("workers", past === null ? "Waiting for a second look." : "");
    if (past === null) return;
    const rows = workers.flatMap((now) => {
      const then = past.find((one) => one.worker === now.worker);
      return then && now.age_ns > then.age_ns ? [{ now, then }] : [];
    });
    const more = ({ now, then }, key) => Math.max(0, now[key] - then[key]);
    const perSecond = (row, key) => short((more(row, key) * 1e9) / more(row, "age_ns"));
    const part = (row, key) => Math.min(1, more(row, key) / more(row, "age_ns"));
    const columns = [
      { head: "Worker", of: ({ now }) => now.worker },
      { head: "Busy", n: true, of: (row) => busy(part(row, "busy_ns")) },
      { head: "Asleep", n: true, of: (row) => percent(part(row, "asleep_ns")) },
      { head: "Frames/s", n: true, of: (row) => perSecond(row, "frames") },
      { head: "Burst", n: true, of: (row) => (more(row, "frames") / Math.max(1, more(row, "bursts"))).toFixed(1) },
      { head: "Mappings", n: true, of: ({ now }) => whole(now.mappings) },
      { head: "Handed over/s", n: true, of: (row) => perSecond(row, "handed_over") },
      { head: "No room", n: true, of: ({ now }) => whole(now.hand_over_full) },
    ];
    fill(by("workers"), columns, rows, ({ now }) => now.worker);
    for (const bar of by("workers").querySelectorAll(".bar")) {
      bar.style.setProperty("--share", bar.dataset.share);
    }
  }
}

// One of two gateways: its link, and the slices of the external addresses.
export class Pair {
  show({ node, partner, partner_ended: hasEnded, link, resting_ports: resting, slices, faults }) {
    note("pair", "");
    const state = link.connected ? `connected, round trip ${(1e3 * link.round_trip_s).toFixed(1)} ms`
      : hasEnded ? "its process has ended" : `not connected (${link.reason ?? "no attempt yet"})`;
    write(by("pair-link"), `This is node ${node}. Partner ${partner}: ${state}. Ports that rest: ${whole(resting)}.`);
    const yes = (is) => (is ? "yes" : "no");
    const columns = [
      { head: "Slice", of: (one) => one.slice },
      { head: "Addresses", of: (one) => one.addresses.join(", ") },
      { head: "Owner", of: (one) => one.owner ?? "not known" },
      { head: "Epoch", n: true, of: (one) => whole(one.epoch) },
      { head: "Assigns", of: (one) => yes(one.assigns) },
      { head: "Copy complete", of: (one) => yes(one.complete) },
      { head: "Copy's age", n: true, of: (one) => (one.age_s === null ? "–" : `${one.age_s.toFixed(1)} s`) },
      { head: "Lag", n: true, of: (one) => `${(1e3 * one.lag_s).toFixed(0)} ms` },
    ];
    fill(by("slices"), columns, slices, (one) => one.slice);
    by("pair-faults").hidden = faults.length === 0;
    by("pair-faults").replaceChildren(...faults.map((fault) => element("li", { "data-level": "critical" },
      element("span", { class: "symbol", "aria-hidden": "true" }, "✗"), element("b", {}, fault))));
  }
}

function busy(share) {
  const bar = element("span", { class: "bar", "data-share": share.toFixed(3), "aria-hidden": "true" });
  return element("span", { class: "load" }, bar, percent(share));
}

const EVENTS = {
  mapping_created: "mapping created", mapping_removed: "mapping removed", block_assigned: "block assigned",
  block_released: "block released", quota_reached: "quota reached", pool_exhausted: "pool exhausted",
  threshold_reached: "threshold reached", slice_owner: "new owner", gap: "events missing",
};
// Events that an operator may have to act on.
const URGENT = ["quota_reached", "pool_exhausted", "threshold_reached", "gap"];
const MOST_EVENTS = 40;
const LONGEST_LINE = 1 << 16;

// The latest events, as they come: a stream of lines, shown at a pace that can be read.
export class Events {
  #lines = [];
  #held = false;
  #stop = null;
  #waiting = 0;

  start() {
    by("events-hold").addEventListener("click", () => {
      this.#held = !this.#held;
      by("events-hold").setAttribute("aria-pressed", this.#held);
      write(by("events-hold"), this.#held ? "Go on" : "Hold");
      this.#draw();
    });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#end() : this.restart()));
    setInterval(() => this.#waiting > 0 && this.#draw(), 500);
    this.restart();
  }

  restart() {
    this.#end();
    if (document.hidden) return;
    this.#stop = new AbortController();
    this.#read(this.#stop.signal);
  }

  #end() {
    this.#stop?.abort();
    this.#stop = null;
  }

  async #read(signal) {
    try {
      const answer = await fetch(url("/v1/events"), {
        headers: { accept: "application/x-ndjson" }, cache: "no-store", signal,
      });
      if (!answer.ok) throw new Refused(answer.status, (await answer.json()).message);
      if (this.#lines.length === 0) note("events", "Nothing has happened since the page was opened.");
      await this.#take(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      if (signal.aborted) return;
      // A request that natgate refuses now is refused the next time, too.
      if (error instanceof Refused) return note("events", `There are no events: ${error.message}.`);
    }
    setTimeout(() => signal.aborted || this.restart(), 3000);
  }

  async #take(reader) {
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop().slice(-LONGEST_LINE);
      const news = lines.slice(-MOST_EVENTS).filter((line) => line.trim() !== "");
      for (const line of news) this.#lines.unshift(JSON.parse(line));
      this.#lines.length = Math.min(this.#lines.length, MOST_EVENTS);
      this.#waiting += news.length;
    }
  }

  #draw() {
    if (this.#held || this.#waiting === 0) return;
    this.#waiting = 0;
    note("events", "");
    by("events").replaceChildren(...this.#lines.map(entry));
  }
}

function entry(event) {
  const isUrgent = URGENT.includes(event.event);
  const { time, event: name, ...rest } = event;
  const when = element("time", { datetime: new Date(time * 1000).toISOString() }, clock(time));
  const what = element("span", { class: isUrgent ? "kind urgent" : "kind" }, EVENTS[name] ?? name.replaceAll("_", " "));
  return element("li", {}, when, what, element("span", { class: "about" }, about(rest)));
}

// The subscriber and the other fields of an event, in an order for readers.
function about(event) {
  if (event.lost) return `${whole(event.lost)} before this, since ${clock(event.from)}`;
  if (event.internal) return `${event.protocol} ${event.internal} → ${event.external}`;
  if (event.ports) return `${event.subscriber} → ${event.external} ports ${event.ports}`;
  const words = [event.subscriber, event.class && `class ${event.class}`, event.pool && `pool ${event.pool}`,
    event.protocol, event.what, event.percent !== undefined && `${event.percent} %`];
  return words.filter(Boolean).join(" · ");
}
