// A pool's external addresses, a cell each, coloured by how much of an address is used. Of large pools
// a cell stands for several neighbors, which Enter or a click opens.
//
// A grid as screen readers know it: one cell takes part in the tab order, arrows go from cell to cell.
// The text below says what the chosen cell stands for; colour is a help. The fullest cells have a mark.

import { arrange, element, percent, whole, write } from "./format.js";

// Cells that are drawn at most; a power of two.
const MOST = 512;
// The least share of each step; an address without use is of step 0.
export const STEPS = [0, 0, 0.25, 0.5, 0.75, 0.9];

// Measures that give addresses their colour.
export const MEASURES = { tcp: "TCP ports", udp: "UDP ports", icmp: "ICMP ids", blocks: "port blocks" };

export class HeatMap {
  #pool = null;
  #measure = "tcp";
  // Addresses that are looked at, if not all; and where the focus is.
  #window = null;
  #place = 0;
  #cells = [];

  // `title` gets how many addresses there are; `choose` is told the address that is opened.
  constructor(title, holder, choose) {
    this.choose = choose;
    this.back = element("button", { type: "button", class: "quiet", hidden: "" }, "All addresses");
    this.extent = element("span", { class: "extent" });
    this.grid = element("div", { class: "cells", role: "grid" });
    this.pick = element("p", { class: "pick", "aria-hidden": "true" });
    title.append(this.extent, this.back);
    holder.append(this.grid, this.pick);
    this.back.addEventListener("click", () => {
      this.#window = null;
      this.#place = 0;
      this.#draw();
      this.#focus(0);
    });
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    this.grid.addEventListener("focusin", (event) => this.#at(event.target, true));
    this.grid.addEventListener("pointerover", (event) => this.#at(event.target, false));
    this.grid.addEventListener("pointerleave", () => this.#tell(null));
    this.grid.addEventListener("focusout", () => this.#tell(null));
    this.grid.addEventListener("click", (event) => this.#open(event.target.closest("[role=gridcell]")));
    new ResizeObserver(() => this.#arrange()).observe(this.grid);
  }

  show(pool, measure) {
    this.#pool = pool;
    this.#measure = measure;
    this.#draw();
  }

  // The cells: runs of neighbors, as long as it takes to have no more than MOST.
  #groups() {
    const all = this.#pool.addresses;
    const [first, end] = this.#window ?? [0, all.length];
    const seen = all.slice(first, end);
    let size = 1;
    while (seen.length / size > MOST) size *= 2;
    const groups = [];
    for (let start = 0; start < seen.length; start += size) {
      groups.push({ first: first + start, members: seen.slice(start, start + size) });
    }
    return groups;
  }

  #draw() {
    this.groups = this.#groups();
    while (this.#cells.length < this.groups.length) {
      const cell = element("div", { role: "gridcell", tabindex: "-1" });
      cell.dataset.place = this.#cells.length;
      this.#cells.push(cell);
    }
    this.#cells.length = this.groups.length;
    this.#place = Math.min(this.#place, this.groups.length - 1);
    this.groups.forEach((group, place) => {
      const cell = this.#cells[place];
      const share = this.#share(group);
      cell.dataset.step = step(share);
      cell.toggleAttribute("data-draining", group.members.some((one) => one.draining));
      const label = this.#label(group);
      if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
      cell.tabIndex = place === this.#place ? 0 : -1;
    });
    const size = this.groups[0]?.members.length ?? 1;
    const each = size > 1 ? `, ${whole(size)} to a cell` : "";
    const count = this.groups.reduce((sum, group) => sum + group.members.length, 0);
    const noun = count === 1 ? "address" : "addresses";
    const part = this.#window === null && this.#pool.count > count ? ` of ${whole(this.#pool.count)}` : "";
    write(this.extent, `${whole(count)}${part} ${noun}${each}`);
    this.back.hidden = this.#window === null;
    this.grid.setAttribute("aria-label", `Addresses of pool ${this.#pool.name} by use of ${MEASURES[this.#measure]}`);
    this.#arrange();
    this.#tell(this.told);
  }

  // Rows as wide as there is room, of a power of two.
  #arrange() {
    const width = this.grid.clientWidth;
    if (width === 0 || this.#cells.length === 0) return;
    const room = Math.max(8, Math.floor(width / 17));
    const columns = Math.min(2 ** Math.floor(Math.log2(room)), 32);
    if (this.columns === columns && this.arranged === this.#cells.length) return;
    [this.columns, this.arranged] = [columns, this.#cells.length];
    const rows = [];
    for (let start = 0; start < this.#cells.length; start += columns) {
      const row = this.grid.children[rows.length] ?? element("div", { role: "row" });
      row.style.setProperty("--columns", columns);
      arrange(row, this.#cells.slice(start, start + columns));
      rows.push(row);
    }
    arrange(this.grid, rows);
  }

  // The largest share among a group's addresses.
  #share(group) {
    return Math.max(0, ...group.members.map((one) => share(one.use[this.#measure])));
  }

  #label(group) {
    const [first, last] = [group.members[0], group.members.at(-1)];
    if (group.members.length === 1) return describe(first);
    const fullest = percent(this.#share(group));
    return `${first.address} to ${last.address}: ${MEASURES[this.#measure]} up to ${fullest} used`;
  }

  #at(target, hasFocus) {
    const cell = target.closest("[role=gridcell]");
    if (!cell) return;
    const place = Number(cell.dataset.place);
    if (hasFocus && place !== this.#place) {
      this.#cells[this.#place].tabIndex = -1;
      cell.tabIndex = 0;
      this.#place = place;
    }
    this.#tell(place);
  }

  // Writes what a cell stands for; without a cell, what the focused one stands for.
  #tell(place) {
    const focused = this.grid.contains(document.activeElement) ? this.#place : null;
    this.told = place ?? focused;
    this.pick.classList.toggle("hint-only", this.told === null);
    const group = this.groups?.[this.told];
    if (!group) return write(this.pick, "Point at an address, or go there by Tab and the arrow keys.");
    const more = group.members.length > 1 ? "Enter or a click shows each" : "Enter or a click lists its mappings";
    write(this.pick, `${this.#label(group)}. ${more}.`);
  }

  #focus(place) {
    this.#cells[Math.min(Math.max(place, 0), this.#cells.length - 1)]?.focus();
  }

  #key(event) {
    const [here, columns] = [this.#place, this.columns];
    const there = {
      ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: here - columns, ArrowDown: here + columns,
      PageUp: here - 8 * columns, PageDown: here + 8 * columns, Home: 0, End: this.#cells.length - 1,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.#open(event.target.closest("[role=gridcell]"));
    }
    if (there === undefined) return;
    event.preventDefault();
    // Up and down stay in their column; beyond the end is the end.
    if (there < 0 && event.key === "ArrowUp") return;
    if (there >= this.#cells.length && event.key === "ArrowDown") return;
    this.#focus(there);
  }

  #open(cell) {
    if (!cell) return;
    const group = this.groups[Number(cell.dataset.place)];
    if (group.members.length === 1) return this.choose(group.members[0].address);
    this.#window = [group.first, group.first + group.members.length];
    this.#place = 0;
    this.#draw();
    this.#focus(0);
  }
}

// A share of one, as far as it is known.
export function share(use) {
  return use && use.total > 0 ? Math.min(1, use.used / use.total) : 0;
}

function step(share) {
  if (share <= 0) return 0;
  return STEPS.findLastIndex((least, place) => place > 0 && share >= least);
}

// One line about an address.
function describe(one) {
  const uses = Object.entries(MEASURES).flatMap(([key, name]) => {
    const use = one.use[key];
    return use ? [`${name} ${whole(use.used)} of ${whole(use.total)}`] : [];
  });
  const subscribers = one.subscribers === undefined ? [] : [`subscribers ${whole(one.subscribers)}`];
  const draining = one.draining ? ["draining"] : [];
  return `${one.address}: ${[...uses, ...subscribers, ...draining].join(", ")}`;
}
