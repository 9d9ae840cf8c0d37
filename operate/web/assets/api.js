// Requests to the interface's GET paths. A request that fails is repeated, at growing intervals up to a
// bound. Listeners are told when natgate stops answering and when it answers again.

// Usual limit of the time for an answer, milliseconds.
const PATIENCE = 8000;

export class Refused extends Error {
  // `body`: the answer's object, if it has one.
  constructor(status, message, body = null) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

// Told "up" or "down" whenever that changes.
const listeners = new Set();
let reachable = null;

export function onReachable(listener) {
  listeners.add(listener);
}

function note(isUp) {
  if (reachable === isUp) return;
  reachable = isUp;
  listeners.forEach((listener) => listener(isUp));
}

// Asks a path; `query` has its parameters, of which empty ones are left out; `patience` is how long the
// answer may take, milliseconds.
export async function ask(path, query = {}, patience = PATIENCE) {
  let answer;
  try {
    answer = await fetch(url(path, query), {
      headers: { accept: "application/json" },
      signal: AbortSignal.timeout(patience),
      cache: "no-store",
    });
  } catch (error) {
    note(false);
    throw error;
  }
  note(true);
  return await content(answer);
}

export function url(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return text === "" ? path : `${path}?${text}`;
}

async function content(answer) {
  const text = await answer.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    if (answer.ok) throw new Refused(answer.status, "natgate's answer cannot be read");
  }
  if (answer.ok) return body;
  const errors = Array.isArray(body?.errors) ? body.errors.join("; ") : undefined;
  const message = body?.message ?? errors ?? text.trim().slice(0, 200);
  throw new Refused(answer.status, message || `natgate answers with status ${answer.status}`, body);
}

// Addresses that are asked for at most.
const MOST_ADDRESSES = 8192;

// The pools with their addresses, and the use of each kind of ports in both.
export async function askPools() {
  const [told, list] = await Promise.all([
    ask("/v1/pools"), ask("/v1/addresses", { limit: MOST_ADDRESSES }),
  ]);
  const pools = told.pools.map((pool) => ({
    name: pool.name, count: pool.addresses, use: usage(pool), addresses: [],
  }));
  const byName = new Map(pools.map((pool) => [pool.name, pool]));
  for (const one of list.addresses) {
    byName.get(one.pool)?.addresses.push({ ...one, use: usage(one) });
  }
  return pools;
}

// Ports in use of those that mappings have or may have, as the alerts count them: ports in hold-down
// and reserved ports count on neither side. Blocks in use, where ports are given out in blocks.
function usage({ used, free, free_blocks: freeBlocks, taken_blocks: taken }) {
  const of = (protocol) => ({ used: used[protocol], total: used[protocol] + free[protocol] });
  const use = { tcp: of("tcp"), udp: of("udp"), icmp: of("icmp") };
  const hasBlocks = Number.isFinite(freeBlocks) && Number.isFinite(taken);
  return hasBlocks ? { ...use, blocks: { used: taken, total: taken + freeBlocks } } : use;
}

// Asks again and again, `period` milliseconds after the last question began, while the page is seen.
// `take` gets the answer, `fail` the error.
export function follow(question, period, take, fail) {
  let failures = 0;
  let timer = 0;
  let asking = false;

  const turn = async () => {
    if (asking) return;
    asking = true;
    const begun = performance.now();
    try {
      const answer = await question();
      failures = 0;
      take(answer);
    } catch (error) {
      failures += 1;
      fail(error);
    }
    asking = false;
    // A failed request is repeated at least every five seconds, so the page is back soon after natgate.
    const wait = failures === 0 ? period : Math.min(Math.max(period, 1000 * failures), 5000);
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(turn, Math.max(0, begun + wait - performance.now()));
  };

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) turn();
  });
  turn();
}
