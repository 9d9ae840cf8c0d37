// The search box. An external endpoint has, or had, a subscriber: `who` answers for now or, with a
// time, for then. An internal endpoint, or an address without a port, is answered by its mappings.
// Where no mapping has the port or the address, the blocks of ports tell the owner. An IPv6 address or
// prefix is a subscriber: external endpoints are of IPv4.

import { Refused, ask } from "./api.js";
import { duration, element, fill, moment, whole } from "./format.js";

// Mappings that are listed at most.
const MOST = 50;

// Time that a search in the log on disk may take, milliseconds.
const PATIENCE = 60000;

const EXAMPLE = "write one such as 203.0.113.1:40000, 10.0.0.5 or 2001:db8::5";

// Realms of hosts whose subscribers have IPv6 addresses.
const REALMS6 = ["nat64", "dslite"];

const form = document.getElementById("search");
const query = document.getElementById("query");
const protocol = document.getElementById("protocol");
const panel = document.getElementById("answer");
const title = document.getElementById("answer-title");
const body = document.getElementById("answer-body");

// The question that counts; answers to others come too late.
let latest = 0;
// Where the focus goes when the answer is closed.
let came = query;

export function start() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search(query.value, protocol.value);
  });
  document.getElementById("answer-close").addEventListener("click", close);
  document.addEventListener("keydown", shortcut);
}

// Looks somebody up as if it had been typed.
export function look(text) {
  query.value = text;
  protocol.value = "";
  search(text, "");
}

function shortcut(event) {
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  const isTyping = event.target.closest("input[type=search], select, textarea");
  if (event.key === "/" && isPlain && !isTyping) {
    event.preventDefault();
    query.focus();
    query.select();
  }
  if (event.key === "Escape" && !panel.hidden) {
    event.preventDefault();
    close();
  }
}

function close() {
  latest += 1;
  const hadFocus = panel.contains(document.activeElement) || document.activeElement === document.body;
  panel.hidden = true;
  query.removeAttribute("aria-invalid");
  if (hadFocus) (came.isConnected ? came : query).focus();
}

// Parses ADDRESS[:PORT], or of IPv6 ADDRESS[/LENGTH] or [ADDRESS]:PORT: the address, the text behind
// it, and `isIpv6`.
function parseEnd(word) {
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/.exec(word);
  if (bracketed || word.split(":").length > 2) {
    const [address, after] = bracketed ? bracketed.slice(1) : [word];
    return { address: ipv6(address), after, isIpv6: true, shown: address };
  }
  const [first, after] = word.split(/:(.*)/);
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(first)?.slice(1, 5).map(Number);
  const isAddress = parts?.every((part) => part <= 255);
  return { address: isAddress ? parts.join(".") : null, after, isIpv6: false, shown: first };
}

// An IPv6 address or prefix in its usual form; null if the text is none.
function ipv6(text) {
  const [address, length] = text.split(/\/(.*)/);
  const isLength = length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= 128);
  if (!isLength || !/^[\da-f:.]+$/i.test(address)) return null;
  try {
    const usual = new URL(`${location.protocol}//[${address}]`).hostname.slice(1, -1);
    return length === undefined ? usual : `${usual}/${Number(length)}`;
  } catch {
    return null;
  }
}

// Parses ADDRESS[:PORT] [PORT] [PROTOCOL] [[at] TIME]; `wrong` is a sentence about an error. natgate
// checks protocols and times.
export function parse(text) {
  const words = text.trim().split(/\s+/);
  const { address, after, isIpv6, shown } = parseEnd(words.shift());
  if (shown === "" && after === undefined) return { wrong: `Nothing is typed; ${EXAMPLE}.` };
  if (address === null) {
    return { wrong: `“${shown}” is no ${isIpv6 ? "IPv6" : "IPv4"} address; ${EXAMPLE}.` };
  }
  const isNumber = (word) => /^\d+$/.test(word ?? "");
  const port = after ?? (isNumber(words[0]) ? words.shift() : null);
  if (port !== null && (!isNumber(port) || Number(port) > 65535)) {
    return { wrong: `“${port}” is no port; write a number up to 65535.` };
  }
  const isProtocol = /^(?!at$)[a-z]+$|^\d{1,3}$/i.test(words[0] ?? "");
  const protocol = isProtocol ? words.shift().toLowerCase() : "";
  if (words[0]?.toLowerCase() === "at") {
    words.shift();
    if (words.length === 0) return { wrong: "A time is to follow “at”, such as 2026-03-01T12:30:00Z." };
  }
  const at = words.join(" ");
  if (at !== "" && isIpv6) {
    return { wrong: "Who had it then is known by an external endpoint, which is of IPv4; write no time." };
  }
  if (at !== "" && port === null) {
    return { wrong: "Who had it then is known by address and port; write the port as well." };
  }
  return { address, isIpv6, port: port === null ? null : Number(port), protocol, at };
}

async function search(text, chosen) {
  const mine = (latest += 1);
  came = document.activeElement ?? query;
  const asked = parse(text);
  query.toggleAttribute("aria-invalid", asked.wrong !== undefined);
  if (asked.wrong !== undefined) return tell("Not understood", sentence(asked.wrong));
  const wanted = asked.protocol || chosen;
  tell(text.trim(), sentence("Looking …"));
  let answer;
  try {
    if (asked.isIpv6) answer = await findSubscriber(asked, wanted);
    else answer = asked.at === "" ? await find(asked, wanted) : await findThen(asked, wanted);
  } catch (error) {
    const why = error instanceof Refused ? error.message : "natgate does not answer; try again when it is back";
    answer = [sentence(closed(why), "failure")];
  }
  if (mine === latest) tell(text.trim(), ...answer);
}

function tell(heading, ...content) {
  title.textContent = heading;
  body.replaceChildren(...content);
  panel.hidden = false;
  panel.scrollIntoView({ block: "nearest" });
}

async function find({ address, port }, wanted) {
  const endpoint = port === null ? address : `${address}:${port}`;
  if (port !== null) {
    const who = await whose(endpoint, wanted);
    if (who.length > 0) return who;
  }
  const outside = port === null ? await list({ external: address }, wanted) : null;
  if (outside?.mappings.length > 0) return about(`${address} is an external address.`, outside);
  const inside = await list({ subscriber: address }, wanted);
  const own = inside.mappings.filter((one) => port === null || one.internal === endpoint);
  const isSubscriber = `${address} is a subscriber's address.`;
  if (own.length > 0) return about(isSubscriber, { ...inside, mappings: own });
  if (port === null) {
    const given = await blocks({ external: address });
    const first = `${address} is an external address. No mapping has it now.`;
    if (given.blocks.length > 0) return owned(`${first} It has ${many(given)}.`, given);
  }
  const had = await blocks({ subscriber: address });
  const none = port === null ? "no mapping" : "no mapping by that port";
  if (had.blocks.length > 0) return owned(`${isSubscriber} It has ${none} now, and ${many(had)}.`, had);
  const protocols = wanted === "" ? "" : ` by ${wanted}`;
  return [sentence(`Nobody has ${endpoint}${protocols} now: it is no external endpoint in use, and no subscriber has a mapping by it.`)];
}

// What a subscriber with an IPv6 address or prefix has. The internal endpoint of a host behind a tunnel
// is an IPv4 one, so the port alone is compared.
async function findSubscriber({ address, port }, wanted) {
  const all = await ofRealms("mappings", (realm) => list({ subscriber: address, ...realm }, wanted));
  const own = all.mappings.filter((one) => port === null || one.internal.endsWith(`:${port}`));
  const first = `${address} is a subscriber.`;
  if (own.length > 0) return about(first, { ...all, mappings: own });
  const had = await ofRealms("blocks", (realm) => blocks({ subscriber: address, ...realm }));
  const none = port === null ? "no mapping" : "no mapping by that port";
  if (had.blocks.length > 0) return owned(`${first} It has ${none} now, and ${many(had)}.`, had);
  const protocols = wanted === "" ? "" : ` by ${wanted}`;
  const such = port === null ? "" : " by that port";
  return [sentence(`No host of ${address} has a mapping${such}${protocols} now, nor a block of ports.`)];
}

// A list of one subscriber. One with hosts of NAT64 and of DS-Lite has a list in each realm.
async function ofRealms(name, get) {
  try {
    return await get({});
  } catch (error) {
    if (!(error instanceof Refused && error.status === 400)) throw error;
    const each = await Promise.all(REALMS6.map((realm) => get({ realm })));
    return { [name]: each.flatMap((one) => one[name]), more: each.some((one) => one.more) };
  }
}

// The subscriber that had an external endpoint, by the events of the log on disk, else by the configuration of that time.
async function findThen({ address, port, at }, wanted) {
  const endpoint = `${address}:${port}`;
  let found;
  try {
    found = await ask("/v1/who", { external: endpoint, protocol: wanted, at }, PATIENCE);
  } catch (error) {
    // Nobody, or no log: natgate says which.
    if (error instanceof Refused && error.status === 404) return [sentence(closed(capital(error.message)))];
    throw error;
  }
  const names = [...new Set(found.answers.map(named))].join(", ");
  const first = element("p", { class: "verdict" }, `${endpoint} was `, element("strong", {}, names));
  const doubts = pairDoubts(found);
  const logged = found.answers.filter((one) => one.since !== undefined);
  if (logged.length === 0) return [first, ...doubts, sentence("No event names it. The log records the configuration of that time, which gives the endpoint to this subscriber.")];
  const missing = Math.max(...logged.map((one) => one.missing ?? 0));
  const doubt = `${whole(missing)} events are missing in the log since, so this may be wrong.`;
  return [first, ...doubts, ...(missing > 0 ? [sentence(doubt, "failure")] : []), held(logged)];
}

// What makes the answer of a pair doubtful.
function pairDoubts({ not_asked = [], doubts = [] }) {
  const unasked = not_asked.map((node) => `the log of node ${node} was not searched`);
  return [...unasked, ...doubts].map((one) => sentence(`${capital(one)}, so this may be wrong.`, "failure"));
}

function named({ subscriber, realm }) {
  return realm ? `${subscriber} of ${realm}` : subscriber;
}

// The subscriber of an external endpoint, by each protocol; nothing if natgate knows of none.
async function whose(endpoint, wanted) {
  let found;
  try {
    found = await ask("/v1/who", { external: endpoint, protocol: wanted });
  } catch (error) {
    if (!(error instanceof Refused && error.status === 404)) throw error;
    return error.body?.resting ? [sentence(closed(error.message))] : [];
  }
  const names = [...new Set(found.answers.map(named))];
  if (names.length === 0) return [];
  const first = element("p", { class: "verdict" }, `${endpoint} is `, element("strong", {}, names.join(", ")));
  const owners = found.answers.filter((one) => one.by === "block");
  if (owners.length > 0) {
    const owner = `No mapping has the port now. It is in a block of ${names.join(", ")}:`;
    return [first, ...rest(found.answers), ...owned(owner, { blocks: owners })];
  }
  const kinds = [...new Set(found.answers.map((one) => one.kind))].join(", ");
  const own = await list({ external: endpoint }, wanted);
  return own.mappings.length > 0
    ? [first, table(own.mappings)]
    : [first, sentence(`No mapping has it now; by the configuration it can be nobody else's (${kinds}).`), ...rest(found.answers)];
}

// The hold-down of a port, if an answer has it.
function rest(answers) {
  const resting = answers.find((one) => one.resting)?.resting ?? [];
  if (resting.length === 0) return [];
  const each = resting.map((one) => (one.for_s === null ? one.protocol : `${one.protocol}, ${duration(one.for_s)} more`));
  return [sentence(`The port is in hold-down: ${each.join("; ")}.`)];
}

async function blocks(filter) {
  return await ask("/v1/blocks", { ...filter, limit: MOST });
}

// The number of blocks in words.
function many({ blocks, more }) {
  const count = whole(blocks.length);
  return more ? `more than ${count} blocks of ports` : `${count} ${blocks.length === 1 ? "block" : "blocks"} of ports`;
}

// Blocks of ports and their owners.
function owned(first, { blocks }) {
  return [sentence(first), tabled("Blocks of ports", COLUMNS_BLOCKS, blocks, (one) => `${one.external} ${one.ports}`)];
}

async function list(filter, wanted) {
  return await ask("/v1/mappings", { ...filter, protocol: wanted, limit: MOST });
}

function about(first, { mappings, more }) {
  const count = whole(mappings.length);
  const noun = mappings.length === 1 ? "mapping" : "mappings";
  const all = more ? `It has more than ${count} mappings, of which ${count} are shown.` : `It has ${count} ${noun}.`;
  return [sentence(`${first} ${all}`), table(mappings)];
}

const COLUMNS = [
  { head: "Protocol", of: (one) => one.protocol },
  { head: "Internal", of: (one) => element("code", {}, one.internal) },
  { head: "External", of: (one) => element("code", {}, one.external ?? "–") },
  { head: "Kind", of: (one) => one.kind ?? "–" },
  { head: "Sessions", n: true, of: (one) => whole(one.sessions) },
  { head: "Age", n: true, of: (one) => duration(one.age_s) },
  { head: "Expires in", n: true, of: (one) => (one.expires_in_s == null ? "never" : duration(one.expires_in_s)) },
  { head: "Packets out", n: true, of: (one) => whole(one.packets_out) },
  { head: "Packets in", n: true, of: (one) => whole(one.packets_in) },
];

const total = (ports) => Object.values(ports ?? {}).reduce((sum, count) => sum + count, 0);

const COLUMNS_BLOCKS = [
  { head: "External", of: (one) => element("code", {}, `${one.external}:${one.ports}`) },
  { head: "Subscriber", of: (one) => element("code", {}, named(one)) },
  { head: "Pool", of: (one) => one.pool ?? "–" },
  { head: "Kind", of: (one) => one.kind },
  { head: "Ports in use", n: true, of: (one) => whole(total(one.used)) },
  { head: "In hold-down", n: true, of: (one) => whole(total(one.held)) },
  { head: "Age", n: true, of: (one) => (one.age_s == null ? "–" : duration(one.age_s)) },
  { head: "Released in", n: true, of: (one) => (one.released_in_s == null ? "–" : duration(one.released_in_s)) },
];

function table(mappings) {
  return tabled("Mappings", COLUMNS, mappings, (one) => `${one.realm ?? ""} ${one.protocol} ${one.internal} ${one.external}`);
}

const COLUMNS_THEN = [
  { head: "Protocol", of: (one) => one.protocol ?? "all" },
  { head: "Subscriber", of: (one) => element("code", {}, named(one)) },
  { head: "Internal", of: (one) => (one.internal ? element("code", {}, one.internal) : "–") },
  { head: "External", of: (one) => element("code", {}, `${one.external}:${one.ports}`) },
  { head: "Remote", of: (one) => (one.remote ? element("code", {}, one.remote) : "–") },
  { head: "Since", of: (one) => (one.since === null ? "before the log begins" : moment(one.since)) },
  { head: "Until", of: (one) => (one.until === null ? "as far as the log goes" : moment(one.until)) },
];

function held(holders) {
  return tabled("Who had it", COLUMNS_THEN, holders, (one) => JSON.stringify(one));
}

function tabled(name, columns, rows, key) {
  const caption = element("caption", { class: "unseen" }, name);
  const made = element("table", { class: "figures" }, caption, element("thead"), element("tbody"));
  fill(made, columns, rows, key);
  return element("div", { class: "wide" }, made);
}

function closed(text) {
  return text.endsWith(".") ? text : `${text}.`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function sentence(text, kind = "") {
  return element("p", { class: kind }, text);
}
