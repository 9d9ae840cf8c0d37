//! Random histories of a pair, and a judge of what comes out of it.

use super::*;
use natgate_engine::BlockId;

/// Random histories: no external endpoint ever leads to two flows, whatever is lost, and whichever
/// node the packets come to.
#[test]
fn no_port_is_two_subscribers_in_any_history() {
    let number = std::env::var("NATGATE_FLEET_HISTORIES").ok();
    let number: u64 = number.map_or(600, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let result = std::panic::catch_unwind(|| history(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// A random history of a pair in which each node has one worker.
fn history(seed: u64) {
    let all = [
        Allotment::Random,
        Allotment::Blocks,
        Allotment::Arithmetic,
        Allotment::Realms,
        Allotment::Nat64,
        Allotment::Dslite,
        Allotment::Both,
        Allotment::Whole,
    ];
    let pair = Pair::with(all[seed as usize % all.len()]);
    run_history(pair, (seed, seed / all.len() as u64 % 4));
}

pub(super) fn run_history(mut pair: Pair, (seed, faults): (u64, u64)) {
    pair.wire().random = seed;
    pair.wire().faults = faults;
    let mut judge = Judge { allotment: pair.allotment, ..Judge::default() };
    for _ in 0..250 {
        let (choice, host) = (pair.below(64), pair.below(12) as u8 + 2);
        let flow = (host, pair.below(6) as u16 + 1);
        let to_a = pair.below(2) == 0 && pair.a.is_some();
        match choice {
            0 => pair.a = None,
            13 if pair.a.is_some() => pair.end_a_with_guardian(),
            1 if pair.a.is_none() => pair.restart_a(),
            2 => {
                let is_cut = pair.wire().is_cut;
                pair.wire().is_cut = !is_cut;
            }
            3 if pair.a.is_some() => drop(pair.ask("a", FleetRequest::Drain("a".into()))),
            4 => drop(pair.ask("b", FleetRequest::Move(0, "a".into()))),
            5 => pair.run(150.0),
            6..10 => pair.run(2.0),
            10 => pair.either(to_a).clear(host),
            11 if is_whole_of_several(&pair) => pair.either(to_a).reload_statics(host),
            11 => pair.either(to_a).reload(250 + u64::from(host)),
            12 => {
                // A machine stands still, and the other serves.
                let still = if to_a { pair.a.take() } else { None };
                pair.run(400.0);
                pair.a = still.or(pair.a.take());
            }
            56.. => {
                pair.run(0.05);
                judge.answer(pair.either(to_a), (flow, choice >= 60));
            }
            48.. => {
                judge.hear_of_losses(&pair);
                judge.request(pair.either(to_a), flow, choice >= 54);
                pair.run(0.05);
            }
            // Workers of one node may use one external address for one remote address, but not a
            // whole one.
            40..44 | 47 if is_whole_of_several(&pair) => {
                judge.tunnel(&mut pair, to_a, host);
                pair.run(0.05);
            }
            44.. if !pair.workers.are_one() => pair.disturb(choice, to_a, host),
            44.. => {
                judge.tunnel(&mut pair, to_a, host);
                pair.run(0.05);
            }
            _ => {
                judge.hear_of_losses(&pair);
                let flags = [SYN, ACK, FIN | ACK, RST][pair.below(4) as usize];
                let process = pair.either(to_a);
                match choice {
                    14..24 => judge.note(process.send_segment(flow, flags), (flow, true), pair.now),
                    24..30 => {
                        let flags = if flags == SYN { SYN | ACK } else { flags };
                        let known = judge.known((flow, true));
                        let known = known.filter(|external| !process.has_static(external.0));
                        known.map(|external| process.answer(external, Some(flags)));
                    }
                    _ => judge.note(process.send(flow), (flow, false), pair.now),
                }
                pair.run(0.05);
            }
        }
        pair.check();
        pair.check_blocks();
        pair.check_words();
    }
    [&pair.a, &pair.b].into_iter().flatten().for_each(Process::check_whole_blocks);
    if is_whole_of_several(&pair) {
        pair.check_free_addresses();
    }
}

/// True if hosts have whole addresses, and a node has several workers.
fn is_whole_of_several(pair: &Pair) -> bool {
    pair.allotment == Allotment::Whole && !pair.workers.are_one()
}

/// A block and its subscriber, by address and ports.
type Blocks = BTreeMap<(Ipv4Addr, (u16, u16)), BlockId>;

impl Pair {
    /// In the log of a node, a block has one subscriber at a time, whichever workers tell of it.
    fn check_blocks(&mut self) {
        for process in [&mut self.a, &mut self.b].into_iter().flatten() {
            let mut log = std::mem::take(&mut process.block_log);
            process.engines().for_each(|engine| take_events(engine, &mut log));
            log.sort_by_key(|event| event.time);
            let mut blocks = Blocks::new();
            log.chunk_by(|one, other| one.time == other.time).for_each(|events| {
                read_log(events, &mut blocks);
            });
            process.block_log = log;
        }
    }
}

impl Pair {
    /// At each node each word of ports is in one engine, or on its way to one.
    pub(super) fn check_words(&mut self) {
        [&mut self.a, &mut self.b].into_iter().flatten().for_each(Process::check_words);
    }
}

/// Reads what happened to blocks at one time. Workers tell it in any order.
fn read_log(events: &[Event], blocks: &mut Blocks) {
    let mut left = events.to_vec();
    while !left.is_empty() {
        let is_next = |event: &Event| match event.change {
            Change::BlockAssigned(id) => !blocks.contains_key(&(id.external, id.ports)),
            Change::BlockReleased(id) => blocks.get(&(id.external, id.ports)) == Some(&id),
            _ => false,
        };
        let next = left.iter().position(is_next);
        let next = next.unwrap_or_else(|| panic!("{left:?} after {blocks:?}"));
        match left.remove(next).change {
            Change::BlockAssigned(id) => _ = blocks.insert((id.external, id.ports), id),
            Change::BlockReleased(id) => _ = blocks.remove(&(id.external, id.ports)),
            _ => {}
        }
    }
}

/// A judge outside: who had each external endpoint, and when its last packet came out.
#[derive(Default)]
pub(super) struct Judge {
    users: BTreeMap<(External, bool), (u64, (u8, u16))>,
    pub(super) allotment: Allotment,
    /// The host that had each block of ports, or whole address, and the time of its last packet.
    blocks: BTreeMap<External, (u64, u8)>,
    pub(super) grants: requests::Grants,
    pub(super) tunnels: portless::Tunnels,
}

impl Judge {
    /// Notes a packet that came out. A port of UDP changes its flow only after a hold-down.
    pub(super) fn note(
        &mut self,
        out: Option<External>,
        (flow, is_tcp): ((u8, u16), bool),
        now: u64,
    ) {
        let Some(external) = out else { return };
        self.note_whole(external.0, flow.0, now);
        let before = self.users.insert((external, is_tcp), (now, flow));
        let (last, user) = before.unwrap_or((now, flow));
        let is_other = user != flow && !is_tcp && now - last < 100 * SECOND;
        assert!(!is_other, "{external:?} of {user:?} leads to {flow:?}");
        if !is_tcp {
            self.grants.check(external, flow, now);
        }
        if self.allotment == Allotment::Arithmetic {
            let of = computed(external);
            assert!(of.is_none_or(|of| of == flow.0), "{external:?} is of {of:?}, not {flow:?}");
        }
        if let Some(size) = self.allotment.block_size().filter(|_| !is_tcp) {
            let block = (external.0, external.1 / size);
            let (last, user) = self.blocks.insert(block, (now, flow.0)).unwrap_or((now, flow.0));
            let is_other = user != flow.0 && now - last < 100 * SECOND;
            assert!(!is_other, "block {block:?} of {user} has a port of {}", flow.0);
        }
    }

    /// Notes a packet of a host from an address. A whole address changes its host only after a
    /// hold-down.
    pub(super) fn note_whole(&mut self, address: Ipv4Addr, host: u8, now: u64) {
        if self.allotment == Allotment::Whole {
            let of_address = (address, 0);
            let (last, user) = self.blocks.insert(of_address, (now, host)).unwrap_or((now, host));
            let is_other = user != host && now - last < 100 * SECOND;
            assert!(!is_other, "{address} of {user} is {host}'s");
        }
    }

    /// A packet of the server comes to the latest endpoint of a flow. It reaches nobody else.
    fn answer(&self, process: &mut Process, of: ((u8, u16), bool)) {
        let Some(external) = self.known(of) else { return };
        if process.has_static(external.0) {
            // The static mapping comes before a copy.
            return;
        }
        let Some(reached) = process.answer(external, of.1.then_some(ACK)) else { return };
        let (_, (host, port)) = self.users[&(external, of.1)];
        let (realm, address) = self.allotment.place(host);
        let user = (realm.to_owned(), (address, port));
        assert_eq!(reached, user, "{external:?} leads to another host");
    }

    /// The latest endpoint of a flow.
    fn known(&self, (flow, is_tcp): ((u8, u16), bool)) -> Option<External> {
        let is_its = |of: bool, user: (u8, u16)| of == is_tcp && user == flow;
        let its = self.users.iter().filter(|((_, of), (_, user))| is_its(*of, *user));
        its.max_by_key(|(_, (at, _))| *at).map(|((external, _), _)| *external)
    }
}
