// Numbers, durations and elements as the page writes them. A number keeps its width while it changes:
// three significant digits and a prefix of the unit, or all digits, grouped.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

// 1234567 -> "1.23 M": three digits, always with a point until there are three before it.
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  let size = Math.abs(value);
  let prefix = 0;
  while (size >= 999.5 && prefix < PREFIXES.length - 1) {
    size /= 1000;
    prefix += 1;
  }
  const digits = prefix === 0 && Number.isInteger(value) ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return `${value < 0 ? "−" : ""}${size.toFixed(digits)} ${PREFIXES[prefix]}`.trimEnd();
}

// A rate with its unit: "1.23 Mbit/s".
export function rate(value, unit) {
  if (!Number.isFinite(value)) return "–";
  const text = short(value < 0.005 ? 0 : value);
  return /[a-zA-Z]$/.test(text) ? `${text}${unit}` : `${text} ${unit}`;
}

// A rate without zeros at its end: "2 Mbit/s".
export function round(value, unit) {
  return rate(value, unit).replace(/(\.\d*?)0+(?=\D)/, "$1").replace(/\.(?=\D)/, "");
}

// All digits, in groups of three that do not break.
export function whole(value) {
  if (!Number.isFinite(value)) return "–";
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// A share of one as a percentage; what is little but there is never 0, what is not full never 100.
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share === 0) return "0 %";
  if (share < 0.001) return "< 0.1 %";
  const shown = share < 0.0995 ? (share * 100).toFixed(1) : Math.round(share * 100).toString();
  return share < 1 && shown === "100" ? "> 99 %" : `${shown} %`;
}

// Seconds as people say them: two units at most.
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [name, size] of units) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0 || (parts.length > 0 && parts.length < 2)) parts.push(`${count} ${name}`);
    if (parts.length === 2) break;
  }
  return parts.filter((part, place) => place === 0 || !part.startsWith("0 ")).join(" ") || "0 s";
}

// The time of day of seconds since 1970, here.
export function clock(seconds) {
  const time = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

// A date and a time of seconds since 1970, as `at` takes it: "2026-03-01T12:30:00.125Z".
export function moment(seconds) {
  return new Date(seconds * 1000).toISOString();
}

// An element with attributes and children; text is always text.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

// Writes a text only where it changes, so that selections and screen readers are left alone.
export function write(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

// A table's rows, kept from one writing to the next. A column has `head`, `of(row)`, which gives text
// or an element, and `n` if it holds numbers; `key` tells rows apart.
export function fill(table, columns, rows, key) {
  const names = columns.map((column) => column.head).join("\n");
  if (table.dataset.columns !== names) {
    table.dataset.columns = names;
    const cells = columns.map((c) => element("th", { scope: "col", class: c.n && "n" }, c.head));
    table.tHead.replaceChildren(element("tr", {}, ...cells));
    table.tBodies[0].replaceChildren();
  }
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = rows.map((row) => {
    const name = String(key(row));
    let line = known.get(name);
    if (!line) {
      const cells = columns.map((column, place) =>
        element(place === 0 ? "th" : "td", { scope: place === 0 && "row", class: column.n && "n" }));
      line = element("tr", { "data-key": name }, ...cells);
    }
    columns.forEach((column, place) => put(line.cells[place], column.of(row)));
    return line;
  });
  arrange(body, wanted);
}

// Content of a cell: text, or an element that is put there anew only if it would read otherwise.
function put(cell, content) {
  if (!(content instanceof Node)) write(cell, String(content));
  else if (cell.innerHTML !== content.outerHTML) cell.replaceChildren(content);
}

// Gives a parent these children in this order and moves only those that stand elsewhere, so that
// the focus stays where it is.
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  [...parent.children].forEach((child) => keep.has(child) || child.remove());
  wanted.forEach((child, place) => {
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
}
