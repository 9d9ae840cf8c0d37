// The page: asks, works out rates, and hands each part of an answer to the panel that shows it.

import { Refused, ask, askPools, follow, onReachable } from "./api.js";
import { Chart } from "./chart.js";
import { clock, duration, write } from "./format.js";
import { Health } from "./health.js";
import {
  Directions, Drops, Events, Pair, Pools, Subscribers, Tiles, Workers, note,
} from "./panels.js";
import { look, start as startSearch } from "./search.js";

const WAYS = ["outbound", "inbound", "hairpin", "local"];
const SUBSCRIBERS = 10;

const chart = new Chart(document.getElementById("chart"));
const health = new Health();
const tiles = new Tiles();
const directions = new Directions();
const drops = new Drops();
const pools = new Pools(look, (fullest) => tiles.pool(fullest));
const subscribers = new Subscribers(look);
const workers = new Workers((mappings, count) => tiles.mappings(mappings, count));
const events = new Events();
const pair = new Pair();

// Two counters' difference by the time between them, as natgate read its clock: answers may come late.
// A counter that fell began anew.
let before = null;

function counted(counters) {
  const now = { counters, time: counters.time };
  const past = before;
  before = now;
  drops.totals(counters.drops);
  if (past === null) return;
  const seconds = now.time - past.time;
  const sent = (which, way, verdict) => counters[which][way]?.[verdict] ?? 0;
  const more = (which, way, verdict) =>
    sent(which, way, verdict) - (past.counters[which][way]?.[verdict] ?? 0);
  const verdicts = ["forwarded", "replied"];
  const fell = WAYS.some((way) => verdicts.some((verdict) => more("packets", way, verdict) < 0));
  if (fell || seconds <= 0) return;

  const flows = {};
  for (const way of WAYS) {
    const sum = (which) => verdicts.reduce((all, verdict) => all + more(which, way, verdict), 0);
    flows[way] = {
      packets: sum("packets") / seconds,
      bits: (sum("bytes") * 8) / seconds,
      total: verdicts.reduce((all, verdict) => all + sent("packets", way, verdict), 0),
      dropped: sent("packets", way, "dropped"),
    };
  }
  const rates = {};
  for (const [reason, total] of Object.entries(counters.drops)) {
    rates[reason] = Math.max(0, total - (past.counters.drops[reason] ?? 0)) / seconds;
  }
  const dropped = Object.values(rates).reduce((sum, one) => sum + one, 0);
  chart.add({ time: now.time, outbound: flows.outbound, inbound: flows.inbound, drops: dropped });
  tiles.flows(flows, dropped);
  directions.show(flows);
  drops.rates(rates);
}

function state(status) {
  write(document.getElementById("state-text"), `running for ${duration(status.running_s)}`);
  write(document.getElementById("about"), `natgate ${status.version}`);
  tiles.subscribers(status.subscribers.now);
  const section = document.getElementById("pair");
  if (status.pair && section.hidden) {
    section.hidden = false;
    panel("pair", () => ask("/v1/fleet"), 2000, (answer) => pair.show(answer));
  }
}

// Shows once, above everything, that natgate does not answer, and marks the figures as old.
let gone = null;

function reachable(isUp) {
  const banner = document.getElementById("banner");
  document.body.classList.toggle("gone", !isUp);
  banner.hidden = isUp;
  if (isUp) {
    if (gone !== null) events.restart();
    gone = null;
    before = null;
    return;
  }
  gone ??= Date.now() / 1000;
  health.unknown("natgate does not answer");
  write(banner, `natgate has not answered since ${clock(gone)}. The figures are from before; ` +
    "the page goes on by itself when it is back. Is natgate running?");
  write(document.getElementById("state-text"), "no answer");
}

// Asks for a panel's content; what natgate says instead of it stands in the panel.
function panel(name, question, period, take) {
  const failed = (error) => {
    if (error instanceof Refused) note(name, error.message);
  };
  follow(question, period, take, failed);
}

function start() {
  onReachable(reachable);
  startSearch();
  document.getElementById("unit").addEventListener("change", (event) => chart.unit(event.target.value));
  ask("/drop-reasons.json").then((texts) => drops.meanings(texts), () => {});
  panel("drops", () => ask("/v1/counters"), 1000, counted);
  const unexamined = (error) => error instanceof Refused && health.unknown(error.message);
  follow(() => ask("/v1/health"), 2000, (answer) => health.show(answer), unexamined);
  panel("state", () => ask("/v1/status"), 5000, state);
  panel("workers", () => ask("/v1/workers"), 2000, (answer) => workers.show(answer.workers));
  panel("pools", askPools, 5000, (answer) => pools.show(answer));
  const top = () => ask("/v1/subscribers", { top: SUBSCRIBERS });
  panel("subscribers", top, 5000, (answer) => subscribers.show(answer.subscribers));
  events.start();
  const asked = decodeURIComponent(location.hash).replace(/^#who=/, "");
  if (location.hash.startsWith("#who=")) look(asked);
}

start();
