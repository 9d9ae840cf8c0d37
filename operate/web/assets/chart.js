// The traffic of the last minutes: outbound upwards and inbound downwards from one line, by one scale,
// and drops in a strip below. The place of a line tells its direction; colours only help.
//
// The scale grows at once and shrinks late, so that the picture does not jump. The cursor follows the
// pointer, or the arrow keys; its values are written above the chart, in one place.

import { clock, element, rate, round, write } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
// Seconds that are shown: the least of these in which all samples are; and when ticks are.
const SPANS = [[60, [60, 45, 30, 15]], [120, [120, 90, 60, 30]], [300, [300, 240, 180, 120, 60]]];
const LONGEST = 300;
// More than this between two samples is a gap.
const GAP = 3.5;
const LEFT = 70;
const RIGHT = 10;
const TOP = 10;
const MAIN = 196;
const BETWEEN = 22;
const STRIP = 44;
const BELOW = 20;
const HEIGHT = TOP + MAIN + BETWEEN + STRIP + BELOW;
const SERIES = [["outbound", "Outbound"], ["inbound", "Inbound"], ["drops", "Dropped"]];

export class Chart {
  #samples = [];
  #unit = "packets";
  #width = 0;
  #top = { main: 0, strip: 0 };
  // The chosen sample; null: the latest.
  #cursor = null;

  constructor(holder) {
    this.#make(holder);
    new ResizeObserver(([entry]) => {
      this.#width = Math.max(240, Math.floor(entry.contentRect.width));
      this.draw();
    }).observe(this.frame);
  }

  #make(holder) {
    this.values = {};
    const legend = element("div", { class: "legend" });
    for (const [key, name] of SERIES) {
      this.values[key] = element("b", {}, "–");
      const swatch = element("span", { class: `swatch ${key}`, "aria-hidden": "true" });
      legend.append(element("span", { class: "entry" }, swatch, `${name} `, this.values[key]));
    }
    this.when = element("span", { class: "when" }, "now");
    legend.append(this.when);

    this.svg = drawn("svg", { "aria-hidden": "true", focusable: "false", height: HEIGHT });
    this.frame = element("div", {
      class: "frame", role: "slider", tabindex: "0", "aria-label": "Moment in the chart",
      "aria-valuemin": -LONGEST, "aria-valuemax": 0, "aria-valuenow": 0, "aria-valuetext": "now",
    }, this.svg);
    holder.replaceChildren(legend, this.frame);

    this.frame.addEventListener("pointermove", (event) => this.#point(event));
    this.frame.addEventListener("pointerleave", () => this.#look(null));
    this.frame.addEventListener("blur", () => this.#look(null));
    this.frame.addEventListener("keydown", (event) => this.#key(event));
  }

  // Packets or bits; drops are always packets.
  unit(unit) {
    this.#unit = unit;
    this.#top.main = 0;
    this.draw();
  }

  // A sample: `time` in seconds since 1970, `outbound` and `inbound` as `{packets, bits}` a second, and
  // `drops`. When the clock has gone back, the chart begins anew.
  add(sample) {
    if (this.#samples.at(-1)?.time >= sample.time) [this.#samples, this.#cursor] = [[], null];
    this.#samples.push(sample);
    const oldest = sample.time - LONGEST;
    while (this.#samples[0].time < oldest) {
      if (this.#samples[0] === this.#cursor) this.#cursor = null;
      this.#samples.shift();
    }
    this.draw();
  }

  #of(sample, key) {
    return key === "drops" ? sample.drops : sample[key][this.#unit];
  }

  draw() {
    if (this.#width === 0) return;
    const now = this.#samples.at(-1)?.time ?? 0;
    const age = now - (this.#samples[0]?.time ?? now);
    [this.span, this.ticks] = SPANS.find(([span]) => age <= span) ?? SPANS.at(-1);
    const x = (time) => LEFT + (1 - (now - time) / this.span) * (this.#width - LEFT - RIGHT);
    this.place = x;
    const most = (keys) => Math.max(0, ...this.#samples.flatMap((s) => keys.map((k) => this.#of(s, k))));
    this.#top.main = scale(this.#top.main, most(["outbound", "inbound"]));
    this.#top.strip = scale(this.#top.strip, most(["drops"]));
    const middle = TOP + MAIN / 2;
    const ground = TOP + MAIN + BETWEEN + STRIP;
    const up = (value) => middle - (value / this.#top.main) * (MAIN / 2);
    const down = (value) => middle + (value / this.#top.main) * (MAIN / 2);
    const strip = (value) => ground - (value / this.#top.strip) * STRIP;
    this.heights = { outbound: up, inbound: down, drops: strip };

    const parts = [...this.#grid(middle, ground)];
    for (const [key] of SERIES) {
      const base = key === "drops" ? ground : middle;
      for (const run of runs(this.#samples)) {
        const line = run.map((s) => `${x(s.time).toFixed(1)},${this.heights[key](this.#of(s, key)).toFixed(1)}`);
        const [first, last] = [x(run[0].time).toFixed(1), x(run.at(-1).time).toFixed(1)];
        const area = `M${first},${base}L${line.join("L")}L${last},${base}Z`;
        parts.push(drawn("path", { class: `area ${key}`, d: area }));
        parts.push(drawn("path", { class: `line ${key}`, d: `M${line.join("L")}` }));
      }
    }
    this.cursorGroup = drawn("g", { class: "cursor" });
    this.svg.setAttribute("viewBox", `0 0 ${this.#width} ${HEIGHT}`);
    this.svg.setAttribute("width", this.#width);
    this.svg.replaceChildren(...parts, this.cursorGroup);
    this.#mark();
  }

  // Lines and words that do not move.
  *#grid(middle, ground) {
    const [right, half] = [this.#width - RIGHT, MAIN / 2];
    const unit = this.#unit === "bits" ? "bit/s" : "pps";
    const label = (y, text) => drawn("text", { class: "axis", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, text);
    const rule = (y, kind) => drawn("path", { class: kind, d: `M${LEFT},${y}H${right}` });
    for (const part of [1, 0.5, 0, -0.5, -1]) {
      const y = middle - part * half;
      yield rule(y, part === 0 ? "zero" : "grid");
      const value = Math.abs(part) * this.#top.main;
      yield label(y, part === 0 ? "0" : round(value, unit));
    }
    yield rule(ground, "zero");
    yield rule(ground - STRIP, "grid");
    yield label(ground - STRIP, round(this.#top.strip, "pps"));
    const name = (y, text) => drawn("text", { class: "name", x: LEFT + 6, y }, text);
    yield name(TOP + 14, "↑ outbound");
    yield name(TOP + MAIN - 6, "↓ inbound");
    yield name(ground - STRIP - 6, "dropped");
    const ticks = this.#width < 480 ? this.ticks.filter((_, place) => place % 2 === 0) : this.ticks;
    for (const ago of ticks) {
      const x = LEFT + (1 - ago / this.span) * (right - LEFT);
      const text = ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`;
      const anchor = ago === this.span ? "start" : "middle";
      yield drawn("text", { class: "axis", x, y: HEIGHT - 4, "text-anchor": anchor }, text);
    }
    yield drawn("text", { class: "axis", x: right, y: HEIGHT - 4, "text-anchor": "end" }, "now");
  }

  #point(event) {
    if (!this.place || this.#samples.length === 0) return;
    const x = event.clientX - this.frame.getBoundingClientRect().left;
    const away = (sample) => Math.abs(this.place(sample.time) - x);
    this.#look(this.#samples.reduce((best, sample) => (away(sample) < away(best) ? sample : best)));
  }

  #key(event) {
    const last = this.#samples.length - 1;
    if (last < 0) return;
    const here = this.#cursor === null ? last : this.#samples.indexOf(this.#cursor);
    const there = {
      ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1,
      PageUp: here + 30, PageDown: here - 30, Home: 0, End: last,
    }[event.key];
    if (there === undefined) return;
    event.preventDefault();
    const place = Math.min(last, Math.max(0, there));
    this.#look(place === last ? null : this.#samples[place]);
    this.#tell();
  }

  #look(sample) {
    this.#cursor = sample;
    if (sample === null) this.frame.setAttribute("aria-valuetext", "now");
    this.#mark();
  }

  // The text for screen readers about the chosen sample.
  #tell() {
    const sample = this.#cursor ?? this.#samples.at(-1);
    const ago = Math.round(sample.time - this.#samples.at(-1).time);
    this.frame.setAttribute("aria-valuenow", ago);
    const values = SERIES.map(([key, name]) => `${name} ${this.#text(sample, key)}`).join(", ");
    this.frame.setAttribute("aria-valuetext", `${clock(sample.time)}: ${values}`);
  }

  #text(sample, key) {
    const unit = key === "drops" || this.#unit === "packets" ? "pps" : "bit/s";
    return rate(this.#of(sample, key), unit);
  }

  // Writes the values of the chosen sample and draws the cursor there.
  #mark() {
    const sample = this.#cursor ?? this.#samples.at(-1);
    for (const [key] of SERIES) write(this.values[key], sample ? this.#text(sample, key) : "–");
    write(this.when, this.#cursor ? `at ${clock(this.#cursor.time)}` : "now");
    if (!this.cursorGroup) return;
    if (!this.#cursor) return this.cursorGroup.replaceChildren();
    const x = this.place(this.#cursor.time);
    const dots = SERIES.map(([key]) => drawn("circle", {
      class: `point ${key}`, r: 3.5, cx: x, cy: this.heights[key](this.#of(this.#cursor, key)),
    }));
    const line = drawn("path", { class: "hair", d: `M${x},${TOP}V${HEIGHT - BELOW}` });
    this.cursorGroup.replaceChildren(line, ...dots);
  }
}

// Samples without gaps between them.
function runs(samples) {
  const all = [];
  let run = [];
  for (const sample of samples) {
    const before = run.at(-1);
    if (before && sample.time - before.time > GAP) {
      all.push(run);
      run = [];
    }
    run.push(sample);
  }
  if (run.length > 0) all.push(run);
  return all;
}

// The value at the top of the scale: 1, 2 or 5 and zeros.
function scale(now, most) {
  const wanted = stepped(Math.max(most * 1.05, 1));
  return wanted > now || wanted * 2.5 <= now ? wanted : now;
}

function stepped(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * unit).find((step) => step >= value) ?? 10 * unit;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
