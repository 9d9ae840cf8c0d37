//! The gateway's state as JSON for scripts, and as a sentence; of each worker, and of all workers
//! together.

use natgate_control::json::{self, MappingLine};
use natgate_engine::{Counters, Direction, DropReason, MappingId, MappingInfo, Outcome};
use natgate_gateway::router6::{AddressState, NeighborInfo6};
use natgate_gateway::{PcpCounters, ResultCode, SideStatus, SideStatus6, Status, Status6};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::net::Ipv6Addr;

/// The state of one worker, or of several together.
#[derive(Debug)]
pub(super) struct WorkerStatus {
    summary: Summary,
    /// The state with all mappings and sessions; `None`: nobody needs it.
    object: Option<Value>,
}

/// Counters of one worker, or of several together, for one sentence. It costs the same with any
/// number of mappings.
#[derive(Debug)]
pub(super) struct Summary {
    counters: Counters,
    /// Frames lost because they came too fast.
    overrun: u64,
}

impl WorkerStatus {
    /// The state of one worker. `with_object`: mappings and sessions too.
    pub(super) fn of(status: &Status<'_>, names: &json::Names, with_object: bool) -> Self {
        let summary = Summary::of(&status.counters, &status.sides);
        Self { summary, object: with_object.then(|| object(status, names)) }
    }

    /// Adds another worker's state.
    pub(super) fn add(&mut self, other: Self) {
        self.summary.add(&other.summary);
        if let (Some(all), Some(one)) = (&mut self.object, other.object) {
            join(all, one, "");
        }
    }

    /// The state as JSON.
    pub(super) fn object(&self) -> Option<&Value> {
        self.object.as_ref()
    }

    pub(super) fn summary(&self) -> &Summary {
        &self.summary
    }
}

impl Summary {
    /// The counters of one worker.
    pub(super) fn of(counters: &Counters, sides: &[SideStatus; 2]) -> Self {
        let overrun = sides.iter().map(|side| side.frames.receive_overrun).sum();
        Self { counters: counters.clone(), overrun }
    }

    /// Adds another worker's counters.
    pub(super) fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        self.overrun += other.overrun;
    }
}

/// Keys with numbers that are the same for all workers, or of which the largest counts.
const COMMON: [&str; 5] = ["time", "mtu", "link_losses", "learnt_routes", "worker"];

/// Adds one worker's state to that of others: numbers are added, lists are joined.
fn join(all: &mut Value, one: Value, key: &str) {
    match (all, one) {
        (Value::Object(all), Value::Object(one)) => {
            for (key, one) in one {
                match all.get_mut(&key) {
                    Some(all) => join(all, one, &key),
                    None => drop(all.insert(key, one)),
                }
            }
        }
        // Several workers may know one neighbor, and one draining address.
        (Value::Array(all), Value::Array(one)) => {
            for one in one {
                let address = one.get("address").filter(|_| key != "workers");
                // Mappings and sessions are many, and each belongs to one worker, so no duplicate
                // is searched for.
                let known = address.and_then(|address| {
                    all.iter_mut().find(|known| known.get("address") == Some(address))
                });
                match known {
                    Some(known) => join(known, one, ""),
                    None => all.push(one),
                }
            }
        }
        (Value::Number(all), Value::Number(one)) => {
            let more = match (all.as_u64(), one.as_u64()) {
                (Some(all), Some(one)) if COMMON.contains(&key) => all.max(one).into(),
                (Some(all), Some(one)) => (all + one).into(),
                _ => return,
            };
            *all = more;
        }
        (all @ Value::Null, one) => *all = one,
        (Value::Bool(all), Value::Bool(one)) => *all |= one,
        _ => {}
    }
}

/// The state as JSON.
fn object(status: &Status<'_>, names: &json::Names) -> Value {
    let now = status.now;
    let all = status.engine.mappings().filter(|info| status.is_own(&info.id));
    let by_id: HashMap<MappingId, MappingInfo> = all.map(|info| (info.id, info)).collect();
    let host = |id: &MappingId| status.host(id.realm, id.internal.address);
    let mapping = |info: &MappingInfo| {
        json!(MappingLine::of_mapping(info, now, names).of_host(host(&info.id).as_ref()))
    };
    let mappings: Vec<_> = by_id.values().map(mapping).collect();
    let sessions = status.engine.sessions().filter_map(|session| {
        let mapping = by_id.get(&session.mapping)?;
        let line = MappingLine::of_session(&session, mapping, now, names);
        Some(json!(line.of_host(host(&mapping.id).as_ref())))
    });
    let [inside, outside] = &status.sides;
    let draining = status.engine.draining().map(|one| {
        json!({
            "address": one.address,
            "pool": status.engine.config().pools[one.pool].name,
            "mappings": one.mappings,
            "leaves": one.leaves,
        })
    });
    let mut counters = json::counters(&status.counters);
    json::add_algs(&mut counters, &status.algs);
    let mut object = json!({
        "time": now.0 as f64 / 1e9,
        "counters": counters,
        "mappings": mappings,
        "sessions": sessions.collect::<Vec<_>>(),
        "draining": draining.collect::<Vec<_>>(),
        "neighbors": { "inside": neighbors(inside), "outside": neighbors(outside) },
        "devices": { "inside": device(inside), "outside": device(outside) },
        "workers": [json::load(status.worker().0, &status.load)],
        "router": {
            "arp_received": status.router.arp_received,
            "arp_asked": status.router.arp_asked,
            "arp_answered": status.router.arp_answered,
            "arp_ignored": status.router.arp_ignored,
            "arp_conflicts": status.router.arp_conflicts,
            "left_to_the_kernel": status.router.left_to_the_kernel,
            "learnt_routes": status.router.learnt_routes,
            "neighbors_lost": status.router.neighbors_lost,
            "neighbors_refused": status.router.neighbors_refused,
            "sources_refused": status.router.sources_refused,
            "neighbor_conflicts": status.router.neighbor_conflicts,
            "neighbor_changes": status.router.neighbor_changes,
            "errors_made": status.router.errors_made,
            "errors_suppressed": status.router.errors_suppressed,
            "own_packets_lost": status.own_lost,
            "frames_not_addressed": status.not_addressed,
        },
        "pcp": pcp(&status.pcp),
    });
    if let Some(ipv6) = &status.ipv6 {
        object["ipv6"] = of_ipv6(ipv6);
    }
    // The first name is the inside's own network.
    for (number, realm) in &status.realms {
        let Some(name) = names.realms.get(usize::from(*number)) else { continue };
        object["realms"][name] = json!({ "neighbors": neighbors(realm), "device": device(realm) });
    }
    object
}

fn pcp(counters: &PcpCounters) -> Value {
    let results = ResultCode::ALL.iter().zip(counters.results);
    let results: serde_json::Map<String, Value> =
        results.map(|(code, count)| (code.name().to_owned(), count.into())).collect();
    json!({
        "results": results,
        "ignored": counters.ignored,
        "dropped": counters.dropped,
        "announced": counters.announced,
    })
}

fn neighbors(side: &SideStatus) -> Value {
    let object = |neighbor: &natgate_gateway::router::NeighborInfo| {
        json!({
            "address": neighbor.address,
            "mac": neighbor.mac.map(|mac| mac.to_string()),
            "state": neighbor.state.name(),
            "asking": neighbor.asking,
            "held": neighbor.held,
        })
    };
    side.neighbors.iter().map(object).collect()
}

/// State of IPv6: own addresses and neighbors of the sides, and counters of the router.
fn of_ipv6(ipv6: &Status6<'_>) -> Value {
    let side = |side: &SideStatus6| {
        let address = |(address, state): &(Ipv6Addr, AddressState)| {
            let state = state.name();
            json!({ "address": address, "state": state })
        };
        let neighbor = |neighbor: &NeighborInfo6| {
            json!({
                "address": neighbor.address,
                "mac": neighbor.mac.map(|mac| mac.to_string()),
                "state": neighbor.state.name(),
                "held": neighbor.held,
            })
        };
        json!({
            "addresses": side.addresses.iter().map(address).collect::<Vec<_>>(),
            "neighbors": side.neighbors.iter().map(neighbor).collect::<Vec<_>>(),
        })
    };
    let counts = ipv6.router.each().map(|(name, count)| (name.to_owned(), Value::from(count)));
    let [inside, outside] = &ipv6.sides;
    json!({
        "inside": side(inside),
        "outside": side(outside),
        "router": serde_json::Map::from_iter(counts),
    })
}

fn device(side: &SideStatus) -> Value {
    let (link, frames) = (&side.link, &side.frames);
    json!({
        "name": link.name,
        "mac": link.mac.to_string(),
        "mtu": link.mtu,
        "up": link.up,
        "received": frames.received,
        "transmitted": frames.transmitted,
        "receive_overrun": frames.receive_overrun,
        "receive_no_buffer": frames.receive_no_buffer,
        "receive_oversize": frames.receive_oversize,
        "receive_unfinished": frames.receive_unfinished,
        "transmit_full": frames.transmit_full,
        "transmit_refused": frames.transmit_refused,
        "link_losses": frames.link_losses,
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counters, overrun } = self;
        let ways = Direction::ALL.map(|direction| {
            let packets = counters.packets[direction as usize];
            let bytes = counters.bytes[direction as usize];
            let done = match direction {
                Direction::Local => Outcome::Replied,
                _ => Outcome::Forwarded,
            } as usize;
            format!("{} {} packets ({} bytes)", direction.name(), packets[done], bytes[done])
        });
        let reasons = DropReason::ALL.iter().map(|reason| (reason.name(), *reason as usize));
        let drops = reasons.map(|(name, reason)| (name, counters.drops[reason]));
        let drops: Vec<_> = drops
            .chain([("frames that came too fast", *overrun)])
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let drops = if drops.is_empty() { "nothing".to_owned() } else { drops.join(", ") };
        write!(f, "{}; dropped: {drops}", ways.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_states_add_up() {
        let mut all = json!({
            "time": 7.5, "counters": { "packets": { "outbound": 3 } }, "mappings": [{ "id": 1 }],
            "neighbors": [{ "address": "10.0.0.2", "mac": null, "held": 1 }],
            "devices": { "inside": { "mtu": 1500, "received": 5, "up": true } },
            "workers": [{ "worker": 0 }],
        });
        let one = json!({
            "time": 7.6, "counters": { "packets": { "outbound": 4 } }, "mappings": [{ "id": 2 }],
            "neighbors": [
                { "address": "10.0.0.2", "mac": "02:00:00:00:00:01", "held": 2 },
                { "address": "10.0.0.3", "mac": null, "held": 0 },
            ],
            "devices": { "inside": { "mtu": 1500, "received": 6, "up": true } },
            "workers": [{ "worker": 1 }],
        });
        join(&mut all, one, "");
        let expected = json!({
            "time": 7.5, "counters": { "packets": { "outbound": 7 } },
            "mappings": [{ "id": 1 }, { "id": 2 }],
            "neighbors": [
                { "address": "10.0.0.2", "mac": "02:00:00:00:00:01", "held": 3 },
                { "address": "10.0.0.3", "mac": null, "held": 0 },
            ],
            "devices": { "inside": { "mtu": 1500, "received": 11, "up": true } },
            "workers": [{ "worker": 0 }, { "worker": 1 }],
        });
        assert_eq!(all, expected);
    }

    #[test]
    fn a_summary_has_the_counters_of_all_workers() {
        let mut counters = Counters::default();
        counters.packets[Direction::Outbound as usize][Outcome::Forwarded as usize] = 3;
        let mut all = Summary { counters: counters.clone(), overrun: 0 };
        assert!(all.to_string().ends_with("; dropped: nothing"), "{all}");
        all.add(&Summary { counters, overrun: 4 });
        let text = all.to_string();
        assert!(text.starts_with("outbound 6 packets (0 bytes), "), "{text}");
        assert!(text.ends_with("; dropped: frames that came too fast 4"), "{text}");
    }
}
