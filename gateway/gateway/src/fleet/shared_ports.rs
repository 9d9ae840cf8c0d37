//! External ports that the workers of one node share: a copied mapping is at the worker of its
//! host, and another worker may give out the mapping's port. And flows of gateways at such ports.
//!
//! The partition has the list of such ports, the strays. Before a node assigns ports of a slice,
//! each worker guards the strays among its ports: no new mapping gets one. When a stray's mapping
//! has ended and its rest is over, the guard ends, and the hold-down begins.

use super::board::Board;
use super::state::Controls;
use super::{read_port, written};
use crate::alg::{AlgSums, Algs, MappingEnds, Stage, internal_of};
use crate::team::{Partition, WHOLE_ADDRESS};
use natgate_engine::{AddressRange, CopyEnds, CopyFacts, Endpoint, Engine, PairPort, Timestamp};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Strays that are guarded in one turn, up to the end of a word of 64 ports, and places of lists
/// that are looked at.
const GUARDS_A_TURN: usize = 1024;
const LOOKS_A_TURN: usize = 1 << 14;

/// What a block that is given to another worker counts as, in such places, at least; and what each
/// of its words does.
const LOOKS_A_BLOCK: usize = 1024;
const LOOKS_A_WORD: usize = 4;

/// Ports that are taken back at once. Each may release a block, and the queue of the engine has
/// room for the events of so many.
const RETURNS_A_TURN: usize = 512;

/// A place in the search for the strays of a slice: number of the address, and word of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SearchPlace {
    address: usize,
    word: usize,
}

/// The shared ports, as one worker sees them.
#[derive(Debug, Default)]
pub(super) struct SharedPorts {
    worker: usize,
    board: Option<Arc<Board>>,
    partition: Option<Arc<Partition>>,
    /// Ports that are guarded. True if the port rests for an earlier copy of this worker as well.
    guards: BTreeMap<u128, bool>,
    /// The block that could not be given to another worker, by its address and first word: its
    /// strays are guarded.
    kept_block: Option<(Ipv4Addr, usize)>,
    /// Looks and guards that are left in this turn.
    looks: usize,
    left: usize,
    /// True if more ports have been given back than a turn takes.
    has_more: bool,
    /// The worker's gateways, during a turn of the fleet.
    pub(super) algs: Option<Box<Algs>>,
    /// True if the partner's version of the link has no control flows in records.
    pub(super) is_partner_old: bool,
    /// True if it has no sums over gateways in states.
    pub(super) lacks_sums: bool,
}

/// The port that stands for a whole address.
fn whole_address(address: Ipv4Addr) -> PairPort {
    let (protocol, port) = WHOLE_ADDRESS;
    let external = Endpoint { address, port };
    PairPort { protocol, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 }
}

/// The ends of the mapping of a record, with its facts at this node.
fn ends_of(record: &[u8], facts: &CopyFacts) -> Option<MappingEnds> {
    let CopyEnds { protocol, external: (address, port), .. } = CopyEnds::read(record)?;
    Some((protocol, Endpoint { address, port }, internal_of(facts)))
}

impl SharedPorts {
    /// The ports of a worker of several.
    pub(super) fn new(worker: usize, board: Arc<Board>) -> Self {
        Self { worker, board: Some(board), ..Self::default() }
    }

    /// The worker's gateways, if any is on.
    pub(super) fn stage(&mut self) -> Option<&mut Stage> {
        self.algs.as_mut().map(|algs| &mut algs.stage)
    }

    /// True if this node has gateways, and the partner's version of the link has no control flows.
    pub(super) fn lacks_flows(&self) -> bool {
        self.algs.as_ref().is_some_and(|algs| algs.stage.lacks_flows())
    }

    /// Sums over the settings of the node's gateways.
    pub(super) fn gateways(&self) -> AlgSums {
        self.algs.as_ref().map_or(AlgSums::default(), |algs| algs.stage.sums())
    }

    /// What this node tells of control flows of a slice that it owns, if the partner can read it.
    pub(super) fn controls(&self, now: Timestamp, slice: u16) -> Option<Controls> {
        let stage = self.algs.as_ref().map(|algs| &algs.stage);
        let since = stage.and_then(|stage| stage.doubted(now, slice.into()));
        let doubt = since.map(|since| now.since(since));
        let gateways = (!self.lacks_sums).then(|| self.gateways());
        let controls = Controls { doubt, gateways };
        (!self.is_partner_old).then_some(controls)
    }

    /// Adds the flows of a mapping to its record, which begins at `start` of `out`. Returns the
    /// fingerprint of the whole by that of the mapping. `None`: the partner can have no copy.
    pub(super) fn add_flows(
        &self,
        now: Timestamp,
        facts: &CopyFacts,
        (start, print): (usize, u64),
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let algs = self.algs.as_ref().filter(|algs| algs.stage.may_have_flows(facts.port));
        let ends = algs.and_then(|_| ends_of(&out[start..], facts));
        algs.zip(ends).map_or(Some(print), |(algs, ends)| {
            algs.stage.add_flows(now, (ends, facts.is_static), (start, print), out)
        })
    }

    /// False if a mapping has no control flows.
    pub(super) fn may_have_flows(&self, facts: &CopyFacts) -> bool {
        self.algs.as_ref().is_some_and(|algs| algs.stage.may_have_flows(facts.port))
    }

    /// True if the node has gateways.
    pub(super) fn have_gateways(&self) -> bool {
        self.algs.is_some()
    }

    /// True if the mapping of a record has control flows.
    pub(super) fn has_flows(&self, facts: &CopyFacts, record: &[u8]) -> bool {
        let ends = self.algs.as_ref().and_then(|_| ends_of(record, facts));
        self.algs.as_ref().zip(ends).is_some_and(|(algs, ends)| algs.stage.has_flows(ends))
    }

    /// Takes the flows of a copied mapping with an external port. Returns false if one cannot be
    /// taken.
    pub(super) fn copy_flows(
        &mut self,
        (engine, now): (&mut Engine, Timestamp),
        (PairPort { protocol, external, .. }, facts): (PairPort, CopyFacts),
        flows: Option<(u64, &[u8])>,
    ) -> bool {
        match self.stage() {
            Some(stage) if flows.is_none() && !stage.may_have_flows(facts.port) => true,
            Some(stage) => stage.copy_flows(engine, now, (protocol, external, facts), flows),
            None => flows.is_none(),
        }
    }

    /// Forgets the flows of the copy of a mapping that may become another one.
    pub(super) fn forget_copied_flows(
        &mut self,
        PairPort { protocol, external, .. }: PairPort,
        facts: Option<CopyFacts>,
    ) {
        let may_have = |stage: &&mut Stage| {
            facts.as_ref().is_none_or(|facts| stage.may_have_flows(facts.port))
        };
        if let Some(stage) = self.stage().filter(may_have) {
            let mapping = (protocol, external, facts.as_ref().and_then(internal_of));
            stage.forget_flows(mapping);
            stage.forget_server(mapping);
        }
    }

    /// Ends the connections of gateways of a static mapping, which stands although the connections
    /// have no copy. If segments begin mappings, one may get the endpoint
    /// of any other. Returns true if this node had one. `leaves_out`: no connection begins for a
    /// while.
    pub(super) fn sever(
        &mut self,
        (engine, now): (&Engine, Timestamp),
        (protocol, external, internal): MappingEnds,
        leaves_out: bool,
    ) -> bool {
        let key = engine.copy_key(protocol, external);
        let facts = key.and_then(|key| engine.copy_facts(key));
        let stands = facts.is_some_and(|facts| facts.is_static) || engine.config().tcp_pickup;
        let Some(stage) = self.stage() else { return false };
        if !leaves_out {
            stage.forget_marks(protocol, external);
        }
        stands && stage.sever(now, (protocol, external, internal), leaves_out)
    }

    /// Forgets the flows of a mapping that has ended.
    pub(super) fn forget_flows(&mut self, PairPort { protocol, external, .. }: PairPort) {
        if let Some(stage) = self.stage() {
            stage.forget_mapping(protocol, external);
        }
    }

    /// Begins the work of a turn.
    pub(super) fn begin_turn(&mut self) {
        (self.looks, self.left) = (LOOKS_A_TURN, GUARDS_A_TURN);
    }

    /// Sets the partition in force. `None`: the node has one worker.
    pub(super) fn set_partition(&mut self, partition: Option<&Arc<Partition>>) {
        self.partition = partition.cloned();
    }

    /// True if the mappings of a host are at this worker.
    pub(super) fn has_host(&self, (realm, host): (u16, Ipv4Addr)) -> bool {
        let partition = self.partition.as_ref();
        partition.is_none_or(|partition| partition.of_host(realm, host.to_bits()) == self.worker)
    }

    /// True if the mapping of a record is at this worker, as far as the worker can tell. If it does
    /// not have the realm, another one may have it: a reload reaches one after the other. So each
    /// refuses the record, until it has the realm itself.
    pub(super) fn has_record(&self, engine: &Engine, record: &[u8]) -> bool {
        self.partition.as_ref().is_none_or(|partition| {
            let host = engine.copy_host(record);
            host.is_none_or(|host| partition.of_record(host) == self.worker)
        })
    }

    /// True if this worker tells of realms that the node lacks. The others refuse the same records.
    pub(super) fn tells_of_realms(&self) -> bool {
        self.worker == 0
    }

    /// True if this worker holds a port that the owner has taken: it gives the port out, and no
    /// other worker has its mapping.
    pub(super) fn holds(&self, protocol: u8, address: Ipv4Addr, port: u16) -> bool {
        let Some(partition) = &self.partition else { return true };
        partition.giver_of(address, port) == Some(self.worker)
            && partition.stray(protocol, address, port).is_none()
    }

    /// A copied mapping is here now. It is no stray if it is of a static mapping: packets find
    /// that. A dynamic one may be at a port of a static mapping of this node. Packets find it after
    /// the reload that takes the static mapping away.
    pub(super) fn note_copy(&mut self, port: PairPort, is_static: bool) {
        let Some(partition) = &self.partition else { return };
        let PairPort { protocol, external, .. } = port;
        if !is_static {
            partition.note_copy(self.worker, protocol, external.address, external.port);
        }
        self.guards.remove(&written(PairPort { number: 0, ..port }));
    }

    /// Ends the rest of a port whose mapping was here. If the port is guarded, another worker has
    /// had its mapping since, and the rest goes on.
    pub(super) fn end_rest(&mut self, engine: &mut Engine, port: u128) {
        match self.guards.get_mut(&port) {
            Some(rests) => *rests = false,
            None => engine.end_rest(read_port(port)),
        }
        self.note_end(engine, read_port(port));
    }

    /// A copy has become static, or a static mapping has ended. A whole address is given back if
    /// nothing of it is left here. A single port may rest: the end of the rest gives it back.
    pub(super) fn note_static(&self, engine: &Engine, port: PairPort) {
        let partition = self.partition.as_ref();
        if partition.is_some_and(|partition| partition.is_whole(port.external.address)) {
            self.note_end(engine, port);
        }
    }

    /// A mapping here has ended, and its port does not rest, or no more. If another worker gives
    /// out the port, that worker ends its guard. A whole address is given back when nothing of it
    /// is left here.
    pub(super) fn note_end(&self, engine: &Engine, port: PairPort) {
        let Some((partition, board)) = self.partition.as_ref().zip(self.board.as_ref()) else {
            return;
        };
        let is_whole = partition.is_whole(port.external.address);
        let port = if is_whole { whole_address(port.external.address) } else { port };
        let PairPort { protocol, external, .. } = port;
        let Endpoint { address, port: number } = external;
        let is_used = match is_whole {
            true => engine.uses_address(address),
            // Each worker has every static mapping. The copy that it displaced was here.
            false => {
                let key = engine.copy_key(protocol, external);
                let facts = key.and_then(|key| engine.copy_facts(key));
                facts.is_some_and(|facts| !facts.is_static)
            }
        };
        if is_used {
            return;
        }
        let clear = || partition.note_end(self.worker, protocol, address, number);
        match partition.giver_of(address, number) {
            Some(other) if other != self.worker => board.give_back(other, written(port), clear),
            _ => _ = clear(),
        }
    }

    /// Ends the guards of ports that other workers have given back. A port that was not guarded yet
    /// has its hold-down as well. A port that rests for an earlier copy here rests until the end of
    /// that rest. Without room for events it takes none. Returns true if none is left.
    pub(super) fn take_back(&mut self, engine: &mut Engine) -> bool {
        let Some((partition, board)) = self.partition.as_ref().zip(self.board.as_ref()) else {
            return true;
        };
        let most = if engine.has_room_for_events() { RETURNS_A_TURN } else { 0 };
        let (ports, is_all) = board.returned(self.worker, most);
        for port in ports {
            let known = read_port(port);
            let PairPort { protocol, external, .. } = known;
            // The port may have got another copied mapping since.
            let is_stray = partition.stray(protocol, external.address, external.port).is_some();
            if is_stray {
                continue;
            }
            let rests = self.guards.remove(&port).unwrap_or_else(|| engine.rests_at(known));
            if !rests && engine.guard(known) {
                engine.end_rest(known);
            }
        }
        self.has_more = !is_all;
        is_all
    }

    /// True if more ports have been given back than the last turn took.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Guards some strays of a slice, from a place on. Returns the next place; `None`: all are
    /// guarded. A stray that ended before the search reached it has been given back, so those are
    /// taken back at the end. Without room for the events of blocks it ends early.
    pub(super) fn guard_some(
        &mut self,
        engine: &mut Engine,
        ranges: &[AddressRange],
        from: SearchPlace,
    ) -> Option<SearchPlace> {
        let partition = Arc::clone(self.partition.as_ref()?);
        if from == SearchPlace::default() {
            self.kept_block = None;
        }
        let mut next = from;
        let addresses = ranges.iter().flat_map(|range| range.each()).skip(from.address);
        for address in addresses {
            if self.looks == 0 || self.left == 0 || !engine.has_room_for_events() {
                return Some(next);
            }
            // An address without a list costs a look.
            self.looks -= 1;
            let bounds = (&mut self.looks, self.left);
            let (found, word) = partition.strays_in_part(self.worker, (address, next.word), bounds);
            self.left = self.left.saturating_sub(found.len());
            for (protocol, port) in found {
                if !engine.has_room_for_events() {
                    // Those that are guarded already are found once more, and have no event.
                    return Some(next);
                }
                if self.cede_block(engine, &partition, (protocol, address, port)) {
                    continue;
                }
                let external = Endpoint { address, port };
                let remote = Ipv4Addr::UNSPECIFIED;
                let port = PairPort { protocol, external, remote, number: 0 };
                let rests = engine.rests_at(port);
                if engine.guard(port) {
                    self.guards.entry(written(port)).or_insert(rests);
                }
            }
            next = match word {
                Some(word) => SearchPlace { word, ..next },
                None => SearchPlace { address: next.address + 1, word: 0 },
            };
            if word.is_some() {
                return Some(next);
            }
        }
        (!self.take_back(engine)).then_some(next)
    }

    /// Gives the block of a stray to the worker of its mapping, which has the block's subscriber.
    /// Returns false if the port has to be guarded: it is in no block of whole words, a port of the
    /// block rests here, or another worker has a stray in the block as well. That worker's stray
    /// would be without a guard: the one that gets the block may have done its search already.
    fn cede_block(
        &mut self,
        engine: &mut Engine,
        partition: &Partition,
        (protocol, address, port): (u8, Ipv4Addr, u16),
    ) -> bool {
        let Some(block) = engine.block_words(address, port) else { return false };
        if partition.giver_of(address, port) != Some(self.worker) {
            // The block has gone with another of its ports.
            return true;
        }
        let place = (address, block.start);
        if self.kept_block == Some(place) {
            return false;
        }
        self.looks = self.looks.saturating_sub(LOOKS_A_BLOCK.max(LOOKS_A_WORD * block.len()));
        let Some(to) = partition.stray(protocol, address, port) else { return false };
        // A stray of another worker that has just ended is among the returned ports. Its hold-down
        // begins here before the block goes.
        let goes = partition.strays_are_of(to, address, block.clone()) && self.take_back(engine);
        let words = partition.own_words(self.worker, (address, port), block);
        let held = if goes { engine.cede_block(address, words.clone()) } else { None };
        self.kept_block = if held.is_none() { Some(place) } else { None };
        let Some((held, board)) = held.zip(self.board.as_ref()) else { return false };
        let enter = || partition.give_block(address, words.clone(), to);
        board.give_block(to, (address, words.clone(), held), enter);
        true
    }

    /// Gives out the words of blocks that other workers have given to this one, without their held
    /// ports. A reload gives the words alone: it calls this before a packet comes. The worker may
    /// have lent some of them since.
    pub(super) fn take_blocks(&mut self, engine: &mut Engine) {
        let Some(board) = &self.board else { return };
        for (address, words, held) in board.blocks(self.worker) {
            let own = self.partition.as_ref().map_or_else(
                || vec![words.clone()],
                |partition| partition.owned_of(self.worker, address, &words),
            );
            for words in own {
                let is_there = |(_, port): &&(u8, u16)| words.contains(&(usize::from(*port) / 64));
                let held: Vec<_> = held.iter().filter(is_there).copied().collect();
                engine.own_block(address, words, &held);
            }
        }
    }

    /// Number of ports that rest because of a guard.
    pub(super) fn guards(&self) -> usize {
        self.guards.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::fleet::tests::packet;
    use crate::pcp::CommonEpoch;
    use crate::router::settings_of_tests;
    use natgate_engine::{
        Allocation, BlockConfig, Change, Config, Cursor, Filter, Packet, PoolConfig, Side, Verdict,
    };
    use natgate_wire::protocol::UDP;
    use std::ops::Range;
    use std::time::Duration;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    const RANGE: AddressRange = AddressRange { first: ADDRESS, last: ADDRESS };

    /// The first of some workers, which has some words of ports. Blocks have `size` ports.
    fn first_worker(
        size: u16,
        workers: u16,
        words: Range<usize>,
    ) -> (Engine, SharedPorts, Arc<Partition>) {
        let release_after = Duration::from_secs(60);
        let block = BlockConfig { size, max_per_subscriber: 1, release_after };
        let allocation = Some(Allocation::Block(block));
        let pools =
            vec![PoolConfig { addresses: vec![RANGE], allocation, ..PoolConfig::default() }];
        let settings =
            Settings { engine: Config { pools, ..Config::default() }, ..settings_of_tests() };
        let partition = Arc::new(Partition::of(&settings, workers.into(), None));
        partition.give_block(ADDRESS, 0..1024, 1);
        partition.give_block(ADDRESS, words.clone(), 0);
        let engine = Engine::new(&settings.engine, [7; 32], Timestamp(0));
        let mut engine = engine.expect("it is right");
        engine.divide((0, workers), |_, _| true);
        engine.own(ADDRESS, words);
        let board = Board::new(workers.into(), CommonEpoch::new(0));
        let mut ports = SharedPorts::new(0, Arc::new(board));
        ports.set_partition(Some(&partition));
        (engine, ports, partition)
    }

    /// Sends a datagram of each of some hosts. Returns their external ports.
    fn begin(engine: &mut Engine, hosts: Range<u32>) -> Vec<u16> {
        let port = |host: u32| {
            let mut bytes = packet(None, (0x6440_0000 + host, 4000), (0xc633_6407, 80));
            let mut packets = [Packet::new(&mut bytes, 0)];
            let mut verdicts = [Verdict::Held];
            engine.process(Timestamp(0), Side::Inside, &mut packets, &mut verdicts);
            assert!(matches!(verdicts[0], Verdict::Forward(_)), "{host}: {:?}", verdicts[0]);
            u16::from_be_bytes([bytes[20], bytes[21]])
        };
        hosts.map(port).collect()
    }

    /// Takes the events of an engine. Returns the number of released blocks.
    fn released(engine: &mut Engine) -> usize {
        let events = std::iter::from_fn(|| engine.poll_event());
        events.filter(|event| matches!(event.change, Change::BlockReleased(_))).count()
    }

    /// Blocks whose subscribers have no mapping are released by guards.
    #[test]
    fn a_guard_waits_until_there_is_room_for_the_events_of_blocks() {
        let (mut engine, mut ports, partition) = first_worker(16, 2, 0..1024);
        let ended = begin(&mut engine, 0..1000);
        released(&mut engine);
        let mut cursor = Cursor::default();
        while !engine.clear_mappings(&mut cursor, 1000, &Filter::default()).1 {
            released(&mut engine);
        }
        released(&mut engine);
        for port in &ended {
            partition.note_copy(1, UDP, ADDRESS, port ^ 1);
        }
        begin(&mut engine, 1000..3000);
        assert!(!engine.has_room_for_events());
        let lost = engine.counters().events_lost;
        let (mut next, mut count, mut turns) = (Some(SearchPlace::default()), 0, 0);
        while let Some(from) = next {
            ports.begin_turn();
            next = ports.guard_some(&mut engine, &[RANGE], from);
            assert!(turns > 0 || next == Some(from), "it waits");
            count += released(&mut engine);
            turns += 1;
            assert!(turns < 1000, "it ends");
        }
        assert_eq!((count, ports.guards()), (ended.len(), ended.len()));
        assert_eq!(engine.counters().events_lost, lost);
    }

    /// A reload gives words to the engine that other workers have given to it, and the worker lends
    /// some before it takes the block.
    #[test]
    fn words_of_a_block_that_a_worker_has_lent_are_not_its_own_when_it_takes_the_block() {
        let (mut engine, mut ports, partition) = first_worker(64, 3, 32..32);
        let board = Arc::clone(ports.board.as_ref().expect("several workers"));
        let words = 32..36;
        let held = [33, 34].map(|word| (UDP, word * 64)).to_vec();
        let enter = || partition.give_block(ADDRESS, words.clone(), 0);
        board.give_block(0, (ADDRESS, words.clone(), held), enter);
        engine.own(ADDRESS, words);
        assert_eq!(engine.cede(0, Some(ADDRESS), false, 2), Some((ADDRESS, 32..34)));
        partition.give_block(ADDRESS, 32..34, 2);
        ports.take_blocks(&mut engine);
        let own: Vec<usize> = (0..1024).filter(|word| engine.owns(ADDRESS, *word)).collect();
        assert_eq!(own, [34, 35]);
        let mut taken = [0; 1024];
        assert_eq!(engine.taken_ports(0, UDP, &mut taken), Some(ADDRESS));
        assert_eq!((taken[33], taken[34]), (0, 1), "the held port of an own word");
    }
}
