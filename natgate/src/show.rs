//! `natgate show`: asks the running gateway.
//!
//! Lists are written while they arrive, at any length. docs/control.md describes requests and
//! answers.

mod tables;

pub(crate) use tables::{b4, duration, health};

use crate::Failure;
use crate::api::{Filters, Gateway};
use anyhow::Context;
use clap::ValueEnum;
use natgate_cli::NO_OUTPUT;
use serde_json::Value;
use std::io::{self, BufRead, BufWriter, Write};
use std::thread;
use std::time::Duration;
use tables::Table;

/// Time between the two looks that a difference is computed from.
const INTERVAL: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
mappings, sessions and subscribers take the filters. The gateway looks up mappings and sessions of
one external endpoint or subscriber. For all other filters it reads the whole table, part by part,
while packets flow. --subscriber, --external and --remote take a prefix instead of an address. A
mapping matches --remote if one of its sessions does. blocks take --subscriber, --realm and
--external; blocks of a deterministic pool are the ranges of all its subscribers, with and without
mappings. rules and routes take --limit. bindings take --subscriber (a B4, or a prefix of IPv6) and
--external.

show workers reads counters twice, a second apart, and shows for each worker: its mappings; frames
a second from devices; the shares of time in which it had packets, searched for packets, and slept;
packets that came together, on average and at most since the start; packets a second that it handed
over to other workers, that it took over, and that were lost because the other worker had no room
(all since the start); external ports that it borrowed and lent since the start.

In a pair, the mappings of a node say which are copies of the other node's.

With --json, standard output has one object, as docs/control.md describes it: {\"mappings\": [...],
\"more\": false} and the like; counters are {\"packets\", \"bytes\", \"drops\", ...}; workers are
the counters of each worker since the start.

Examples:
natgate show mappings --subscriber 10.0.0.5
natgate show sessions --external 203.0.113.1:2300 --protocol udp --json
natgate show sessions --subscriber 10.1.0.0/16 --remote 198.51.100.7:443
natgate show blocks --external 203.0.113.1:2300
natgate show subscribers --limit 20
natgate show bindings --external 203.0.113.7:1024
natgate show domains
natgate show expectations --json
natgate show servers
natgate show counters
natgate show workers --json --socket /run/natgate/second.sock";

/// Ask the running gateway
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to show
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    filters: Filters,
    /// Most entries [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    gateway: Gateway,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// External endpoints that subscribers have
    Mappings,
    /// Mappings with each of their remote endpoints
    Sessions,
    /// Subscribers that have mappings
    Subscribers,
    /// Blocks of ports and the subscribers that have them
    Blocks,
    /// Numbers of external addresses and ports, all and taken
    Pools,
    /// Packets and bytes by direction and verdict, drops by reason
    Counters,
    /// The rules in force
    Rules,
    /// Routes, by the next hop of packets
    Routes,
    /// Neighbours and their hardware addresses
    Neighbors,
    /// State and problems of links, next hops, event logs, routes and workers
    Health,
    /// Load, bursts, packets handed over and idle time of each worker
    Workers,
    /// Customers of lw4o6: IPv4 address, port set and tunnel
    Bindings,
    /// lw4o6, the domains of MAP and DS-Lite, with their packets
    Domains,
    /// Flows that application-level gateways expect
    Expectations,
    /// Servers of static mappings: shares and health
    Servers,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Mappings => "mappings",
            Self::Sessions => "sessions",
            Self::Subscribers => "subscribers",
            Self::Blocks => "blocks",
            Self::Pools => "pools",
            Self::Counters => "counters",
            Self::Rules => "rules",
            Self::Routes => "routes",
            Self::Neighbors => "neighbors",
            Self::Health => "health",
            Self::Workers => "workers",
            Self::Bindings => "bindings",
            Self::Domains => "domains",
            Self::Expectations => "expectations",
            Self::Servers => "servers",
        }
    }

    /// True if the answer is a list of any length.
    fn is_list(self) -> bool {
        use What::{Bindings, Blocks, Mappings, Routes, Rules, Sessions, Subscribers};
        matches!(self, Mappings | Sessions | Subscribers | Blocks | Rules | Routes | Bindings)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Without a limit, a list has all entries.
    let limit = args.what.is_list().then(|| args.limit.unwrap_or(u64::MAX)).or(args.limit);
    let limit: Vec<_> = limit.map(|limit| ("limit", limit.to_string())).into_iter().collect();
    let path = format!("/v1/{}?{}", args.what.name(), args.filters.query(&limit));
    let mut out = BufWriter::new(io::stdout().lock());
    match (args.json, args.what) {
        (true, _) => copy(args, &path, &mut out)?,
        (false, What::Workers) => {
            let first = args.gateway.get(&path)?;
            thread::sleep(INTERVAL);
            write(&mut out, &table(&first, &args.gateway.get(&path)?))?;
        }
        (false, what) if what.is_list() => list(args, &path, &mut out)?,
        (false, what) => write(&mut out, &tables::text(what, &args.gateway.get(&path)?))?,
    }
    Ok(out.flush().context(NO_OUTPUT)?)
}

fn write(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    Ok(out.write_all(text.as_bytes()).context(NO_OUTPUT)?)
}

/// Writes an object while it arrives.
fn copy(args: &Args, path: &str, out: &mut impl Write) -> Result<(), Failure> {
    let mut reply = args.gateway.stream(path, false)?;
    loop {
        let piece = reply.fill_buf().context("the gateway broke off")?;
        if piece.is_empty() {
            return Ok(());
        }
        out.write_all(piece).context(NO_OUTPUT)?;
        let taken = piece.len();
        reply.consume(taken);
    }
}

/// Writes a table while its lines arrive.
fn list(args: &Args, path: &str, out: &mut impl Write) -> Result<(), Failure> {
    let mut table = Table::of(args.what);
    let mut count = 0_u64;
    for line in args.gateway.stream(path, true)?.lines() {
        let line = line.context("the gateway broke off")?;
        let entry: Value = serde_json::from_str(&line).context("the gateway sent no JSON")?;
        let is_wider = table.prepare(&entry);
        let row = table.row(&entry);
        if count > 0 && is_wider {
            write(out, "\n")?;
        }
        if count == 0 || is_wider {
            write(out, &table.head())?;
        }
        write(out, &row)?;
        count += 1;
    }
    if count == 0 {
        let one = args.filters.subscriber.as_ref().filter(|address| !address.contains(['/', ':']));
        let hint = one.map(|address| {
            format!(
                "; if it should have some, `natgate trace \"udp {address}:1024 > \
                 198.51.100.10:53\"` says what becomes of its packets"
            )
        });
        let (what, words) = (args.what.name(), args.filters.words());
        write(out, &format!("no {what}{words}{}\n", hint.unwrap_or_default()))?;
    }
    Ok(())
}

/// The difference between two looks.
fn table(before: &Value, now: &Value) -> String {
    let mut text = format!(
        "{:>6} {:>10} {:>10} {:>6} {:>6} {:>6} {:>6} {:>5} {:>10} {:>10} {:>8} {:>9} {:>9}\n",
        "worker",
        "mappings",
        "frames/s",
        "busy",
        "looks",
        "asleep",
        "burst",
        "most",
        "handed/s",
        "taken/s",
        "full",
        "borrowed",
        "lent",
    );
    let workers = |value: &Value| value["workers"].as_array().cloned().unwrap_or_default();
    for (before, now) in workers(before).iter().zip(&workers(now)) {
        let count = |key: &str| now[key].as_u64().unwrap_or_default();
        let more =
            |key: &str| count(key).saturating_sub(before[key].as_u64().unwrap_or_default()) as f64;
        let age = more("age_ns").max(1.0);
        let rate = |key: &str| format!("{:.0}", more(key) / (age / 1e9));
        let share = |part: f64| format!("{:.0} %", 100.0 * (part / age).clamp(0.0, 1.0));
        let (busy, asleep) = (more("busy_ns"), more("asleep_ns"));
        text += &format!(
            "{:>6} {:>10} {:>10} {:>6} {:>6} {:>6} {:>6.1} {:>5} {:>10} {:>10} {:>8} {:>9} {:>9}\n",
            count("worker"),
            count("mappings"),
            rate("frames"),
            share(busy),
            share(age - busy - asleep),
            share(asleep),
            more("frames") / more("bursts").max(1.0),
            count("largest_burst"),
            rate("handed_over"),
            rate("taken_over"),
            count("hand_over_full"),
            count("ports_borrowed"),
            count("ports_lent"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_shows_what_was_done_between_two_looks() {
        let look = |frames: u64| {
            json!({ "workers": [{
                "worker": 0, "mappings": 7, "age_ns": frames * 1000, "busy_ns": frames * 250,
                "asleep_ns": frames * 500, "frames": frames, "bursts": frames / 10,
                "largest_burst": 64, "handed_over": 3 * frames, "taken_over": 0,
                "hand_over_full": 0, "ports_borrowed": 64, "ports_lent": 0,
            }] })
        };
        let text = table(&look(1_000_000), &look(2_000_000));
        let shown: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        let expected = "0 7 1000000 25 % 25 % 50 % 10.0 64 3000000 0 0 64 0";
        assert_eq!(shown.join(" "), expected);
    }
}
