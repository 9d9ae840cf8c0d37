//! Questions to a running gateway: figures, and lists that are read part by part.
//!
//! The asker allocates all memory of an answer and gets it back with the answer. A worker fills it
//! between batches and looks at [`SLOTS_A_TURN`] slots a turn at most. A worker keeps no state
//! between two parts of a list: each question carries the cursor. So a worker never waits for a
//! slow asker, and a list of millions costs packets no more than a list of one.
//!
//! Each worker has its own subscribers; a list is the concatenation of the workers' lists.

use crate::alg::{AlgCounters, Kind as AlgKind, OpenExpectation, Stage};
use crate::health::{Health, ServerHealth};
use crate::link::Link;
use crate::load::LoadNow;
use crate::router::{LearntRoutes, NeighborInfo, RouterCounters};
use crate::router6::{NeighborInfo6, Router6Counters};
use natgate_engine::{
    AddressUsage, BlockInfo, BlockKind, ByEndpoint, Counters, Cursor, Engine, Filter, HeldPort,
    MappingInfo, Prefix, SessionInfo, SubscriberInfo, TableTotals, Timestamp,
};
use natgate_io::{LinkInfo, Statistics};
use natgate_ipv6::softwire::DomainCounters;
use natgate_ipv6::{HostKind, HostName, Translator};
use natgate_wire::arp::Mac;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Most slots that a worker looks at in one turn.
const SLOTS_A_TURN: usize = 2048;

/// Most turns for one part of a list; then other questions get their turn.
const MOST_TURNS: u32 = 32;

/// Room for the names of links and pools, bytes, and for how many of each; longer ones and more of
/// them are allocated by the worker.
const NAME: usize = 64;
const MANY: usize = 64;

/// Counters and table sizes of one worker.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The worker's number, and the number of workers.
    pub worker: (usize, usize),
    /// Time of the figures.
    pub now: Timestamp,
    /// Packets; losses after translation are counted as dropped.
    pub counters: Counters,
    /// Counters of the router besides those of packets.
    pub router: RouterCounters,
    /// Counters of the router of IPv6, if IPv6 is configured.
    pub router6: Option<Router6Counters>,
    /// Packets of the gateway's own making that were lost.
    pub own_lost: u64,
    /// Frames addressed to other stations.
    pub not_addressed: u64,
    /// Mappings, subscribers and sessions: present numbers and limits.
    pub totals: TableTotals,
    /// Load of the worker.
    pub load: LoadNow,
    /// Devices of the worker, one for each link.
    pub links: Vec<LinkFigures>,
    /// Pools, in the engine's numbering.
    pub pools: Vec<PoolFigures>,
    /// Packets of lw4o6, then of each rule of MAP in the order of the configuration, then of
    /// DS-Lite. Empty without softwires.
    pub domains: Vec<DomainCounters>,
    /// Counters of the application-level gateways that are on.
    pub algs: Vec<(AlgKind, AlgCounters)>,
}

/// The device of one link.
#[derive(Clone, Debug)]
pub struct LinkFigures {
    /// The link.
    pub link: Link,
    /// Name of the device.
    pub device: String,
    /// Hardware address of the device.
    pub mac: Mac,
    /// Largest payload of a frame, bytes.
    pub mtu: u32,
    /// True if the device is switched on and has a carrier.
    pub up: bool,
    /// Frame counters. A device that several links share counts the frames of all.
    pub frames: Statistics,
}

/// Ports of one pool.
#[derive(Clone, Debug, Default)]
pub struct PoolFigures {
    /// Name of the pool.
    pub name: String,
    /// Ports that a new mapping may take: TCP, UDP, ICMP, DCCP.
    pub free: [u32; 4],
    /// Ports in hold-down, by protocol in the same order.
    pub held: [u32; 4],
    /// Dynamic mappings: of TCP, UDP, ICMP, DCCP and others.
    pub used: [u64; 5],
    /// Blocks without an owner, if ports are given out in blocks.
    pub free_blocks: Option<u32>,
}

impl LinkFigures {
    fn empty() -> Self {
        Self {
            link: Link::OUTSIDE,
            device: String::with_capacity(NAME),
            mac: Mac::default(),
            mtu: 0,
            up: false,
            frames: Statistics::default(),
        }
    }
}

impl LinkFigures {
    /// Writes the state of a device.
    pub(crate) fn write(&mut self, link: Link, frames: Statistics, info: &LinkInfo) {
        self.device.clone_from(&info.name);
        let LinkInfo { mac, mtu, up, .. } = *info;
        (self.link, self.mac, self.mtu, self.up, self.frames) = (link, mac, mtu, up, frames);
    }
}

impl Figures {
    /// Creates figures with room for what a worker will write.
    pub(crate) fn with_room() -> Self {
        let pool = || PoolFigures { name: String::with_capacity(NAME), ..PoolFigures::default() };
        let (links, pools) = (roomy(LinkFigures::empty), roomy(pool));
        Self { links, pools, ..Self::default() }
    }

    /// Writes the state of the links' devices.
    pub(crate) fn set_links(
        &mut self,
        links: impl Iterator<Item = Link>,
        mut write: impl FnMut(Link, &mut LinkFigures),
    ) {
        let mut count = 0;
        for link in links {
            if self.links.len() == count {
                self.links.push(LinkFigures::empty());
            }
            write(link, &mut self.links[count]);
            count += 1;
        }
        self.links.truncate(count);
    }

    /// Writes the use of the pools.
    pub(crate) fn set_pools(&mut self, engine: &Engine) {
        let pools = &engine.config().pools;
        self.pools.resize_with(pools.len(), PoolFigures::default);
        for (number, (pool, entry)) in pools.iter().zip(&mut self.pools).enumerate() {
            entry.name.clone_from(&pool.name);
            (entry.free, entry.free_blocks) = engine.pool_free(number);
            entry.held = engine.pool_held(number);
            entry.used = engine.pool_used(number);
        }
    }

    /// Counters of the application-level gateways that are on or have been, over all workers.
    pub fn algs_of(all: &[Self]) -> Vec<(AlgKind, AlgCounters)> {
        let mut sum = BTreeMap::<AlgKind, AlgCounters>::new();
        for (kind, one) in all.iter().flat_map(|one| &one.algs) {
            sum.entry(*kind).or_default().add(one);
        }
        sum.into_iter().collect()
    }

    /// Counters of lw4o6, the rules of MAP and DS-Lite, over all workers.
    pub fn domains_of(all: &[Self]) -> Vec<DomainCounters> {
        let most = all.iter().map(|one| one.domains.len()).max().unwrap_or(0);
        let mut sums = vec![DomainCounters::default(); most];
        for one in all {
            sums.iter_mut().zip(&one.domains).for_each(|(sum, domain)| sum.add(domain));
        }
        sums
    }

    /// Counters of the router of IPv6, over all workers; `None`: there is no IPv6.
    pub fn router6_of(all: &[Self]) -> Option<Router6Counters> {
        let of_workers = all.iter().filter_map(|one| one.router6);
        of_workers.reduce(|mut sum, one| {
            sum.add(&one);
            sum
        })
    }

    /// Frames lost because they came too fast, over all devices.
    pub fn overrun(&self) -> u64 {
        self.links.iter().map(|link| link.frames.receive_overrun).sum()
    }
}

/// Creates a list of entries that will be overwritten.
fn roomy<T>(entry: impl Fn() -> T) -> Vec<T> {
    (0..MANY).map(|_| entry()).collect()
}

/// One part of a list.
#[derive(Debug)]
pub struct Part<T> {
    pub(crate) cursor: Cursor,
    pub(crate) filter: Filter,
    pub(crate) found: Vec<T>,
    /// Time of the worker's last look.
    pub(crate) now: Timestamp,
    pub(crate) done: bool,
}

/// Types that have a list.
pub trait Listed: Sized + Send + 'static {
    /// The question for a part.
    #[doc(hidden)]
    fn question(part: Box<Part<Self>>, reply: SyncSender<Box<Part<Self>>>) -> Question;

    /// Scans at most `most` slots; returns true at the end of the table.
    #[doc(hidden)]
    fn look(part: &mut Part<Self>, engine: &Engine, most: usize) -> bool;
}

/// A removal of mappings or sessions by filter.
#[derive(Debug)]
pub struct Removal {
    pub(crate) cursor: Cursor,
    pub(crate) filter: Filter,
    pub(crate) sessions: bool,
    pub(crate) count: u64,
    pub(crate) done: bool,
}

macro_rules! lists {
    ($($kind:ident: $of:ty, $scan:ident;)*) => {
        /// A question to a worker.
        #[derive(Debug)]
        pub enum Question {
            /// Asks for figures.
            Figures(Box<Figures>, SyncSender<Box<Figures>>),
            /// Asks for neighbours.
            Neighbors(Vec<(Link, NeighborInfo)>, SyncSender<Vec<(Link, NeighborInfo)>>),
            /// Asks for the names of hosts of NAT64: realm and number of each.
            Hosts(Vec<NumberedHost>, SyncSender<Vec<NumberedHost>>),
            /// Asks for the numbers of the hosts in a prefix of IPv6: their realm and a prefix of
            /// numbers.
            Numbers((Ipv6Addr, u8), SyncSender<Vec<(u16, Prefix)>>),
            /// Asks for the neighbours of IPv6.
            Neighbors6(SyncSender<Vec<(Link, NeighborInfo6)>>),
            /// Asks for the expectations whose flow may begin.
            Expectations(SyncSender<Vec<OpenExpectation>>),
            /// Asks for the health of servers.
            Servers(SyncSender<Vec<ServerHealth>>),
            /// Asks for the learnt routes.
            Learnt(SyncSender<Arc<LearntRoutes>>),
            /// Asks to remove mappings or sessions.
            Clear(Box<Removal>, SyncSender<Box<Removal>>),
            $(
                /// Asks for a part of a list.
                $kind(Box<Part<$of>>, SyncSender<Box<Part<$of>>>),
            )*
        }

        $(impl Listed for $of {
            fn question(part: Box<Part<Self>>, reply: SyncSender<Box<Part<Self>>>) -> Question {
                Question::$kind(part, reply)
            }

            fn look(part: &mut Part<Self>, engine: &Engine, most: usize) -> bool {
                engine.$scan(&mut part.cursor, most, &part.filter, &mut part.found)
            }
        })*
    };
}

lists! {
    Mappings: MappingInfo, scan_mappings;
    Sessions: (SessionInfo, MappingInfo), scan_sessions;
    Subscribers: SubscriberInfo, scan_subscribers;
    Addresses: AddressUsage, scan_addresses;
    Endpoints: ByEndpoint, scan_endpoints;
    Blocks: BlockInfo, scan_blocks;
    Held: HeldPort, scan_held;
}

/// Realm and number of a host of NAT64, and its name.
pub type NumberedHost = (u16, Ipv4Addr, Option<HostName>);

/// Neighbours with their links.
type Neighborhood = Vec<(Link, NeighborInfo)>;

/// Parts of a worker that answers read.
pub(crate) struct SurveyContext<'a> {
    pub(crate) now: Timestamp,
    pub(crate) engine: &'a mut Engine,
    /// Writes figures.
    pub(crate) figures: &'a mut dyn FnMut(&Engine, &mut Figures),
    /// Writes neighbours.
    pub(crate) neighbors: &'a mut dyn FnMut(&mut Neighborhood),
    pub(crate) learnt: &'a dyn Fn() -> Arc<LearntRoutes>,
    /// The translator of IPv6, if there is one.
    pub(crate) translator: Option<&'a Translator>,
    /// Neighbours of IPv6.
    pub(crate) neighbors6: &'a dyn Fn() -> Vec<(Link, NeighborInfo6)>,
    /// The application-level gateways, if any is on.
    pub(crate) alg: Option<&'a Stage>,
    /// The health checks, if there are any.
    pub(crate) health: Option<&'a Health>,
    /// True if this worker owns a host. Every worker has the static mappings, their blocks and the
    /// deterministic ranges; the host's worker lists them.
    pub(crate) has_host: &'a dyn Fn(u16, Ipv4Addr) -> bool,
}

impl SurveyContext<'_> {
    /// Names hosts of NAT64.
    fn name(&self, hosts: &mut [NumberedHost]) {
        for (realm, number, name) in hosts {
            // Another worker may have named the host.
            *name = name.or_else(|| self.translator.and_then(|one| one.host(*realm, *number)));
        }
    }

    /// Expectations of application-level gateways.
    fn expectations(&mut self) -> Vec<OpenExpectation> {
        let (translator, now) = (self.translator, self.now);
        self.alg.map(|alg| alg.open(self.engine, translator, now)).unwrap_or_default()
    }

    /// State of the servers that this worker checks.
    fn servers(&self) -> Vec<ServerHealth> {
        self.health.map(|health| health.servers(self.has_host)).unwrap_or_default()
    }

    /// Answers a question whose answer is short; returns any other question. If the receiver has
    /// ended, the answer is not needed and is lost.
    fn answer_at_once(&mut self, question: Question) -> Option<Question> {
        match question {
            Question::Numbers((prefix, len), reply) => {
                let of = |kind: &HostKind| self.translator?.numbers(*kind, prefix, len);
                let _ = reply.send(HostKind::ALL.iter().filter_map(of).collect());
            }
            Question::Neighbors6(reply) => drop(reply.send((self.neighbors6)())),
            Question::Expectations(reply) => drop(reply.send(self.expectations())),
            Question::Servers(reply) => drop(reply.send(self.servers())),
            Question::Learnt(reply) => drop(reply.send((self.learnt)())),
            other => return Some(other),
        }
        None
    }

    /// Removes one turn's share of mappings or sessions.
    fn remove(&mut self, removal: &mut Removal) {
        let Removal { cursor, filter, sessions, .. } = removal;
        let (count, done) = match *sessions {
            true => self.engine.clear_sessions(cursor, SLOTS_A_TURN, filter),
            false => self.engine.clear_mappings(cursor, SLOTS_A_TURN, filter),
        };
        removal.count += count;
        removal.done = done;
    }
}

/// A question in progress.
pub(crate) struct Inquiry {
    question: Question,
    turns: u32,
}

impl Inquiry {
    pub(crate) fn new(question: Question) -> Self {
        Self { question, turns: 0 }
    }

    /// Does one turn's share; returns the question if it needs another turn.
    pub(crate) fn turn(mut self, sight: &mut SurveyContext<'_>) -> Option<Self> {
        self.turns += 1;
        let late = self.turns >= MOST_TURNS;
        let turns = self.turns;
        let question = match sight.answer_at_once(self.question)? {
            Question::Figures(mut figures, reply) => {
                (sight.figures)(sight.engine, &mut figures);
                // If the receiver has ended, the answer is not needed and is lost.
                let _ = reply.send(figures);
                return None;
            }
            Question::Neighbors(mut list, reply) => {
                (sight.neighbors)(&mut list);
                let _ = reply.send(list);
                return None;
            }
            Question::Hosts(mut hosts, reply) => {
                sight.name(&mut hosts);
                let _ = reply.send(hosts);
                return None;
            }
            Question::Numbers(..)
            | Question::Neighbors6(_)
            | Question::Expectations(_)
            | Question::Servers(_)
            | Question::Learnt(_) => return None,
            Question::Clear(mut removal, reply) => {
                sight.remove(&mut removal);
                if removal.done || late {
                    let _ = reply.send(removal);
                    return None;
                }
                Question::Clear(removal, reply)
            }
            Question::Mappings(mut part, reply) => {
                let done = part.look(sight);
                part.found.retain(|MappingInfo { id, expires, .. }| {
                    expires.is_some() || (sight.has_host)(id.realm, id.internal.address)
                });
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Sessions(part, reply) => part.turn(sight, late, reply)?,
            Question::Subscribers(part, reply) => part.turn(sight, late, reply)?,
            Question::Addresses(part, reply) => part.turn(sight, late, reply)?,
            Question::Blocks(mut part, reply) => {
                let done = part.look(sight);
                part.found.retain(|block| {
                    let is_own = block.kind == BlockKind::Assigned;
                    is_own || (sight.has_host)(block.realm, block.subscriber)
                });
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Held(part, reply) => part.turn(sight, late, reply)?,
            Question::Endpoints(part, reply) => part.turn(sight, late, reply)?,
        };
        Some(Self { question, turns })
    }
}

impl<T: Listed> Part<T> {
    /// Scans one turn's share, and answers if the part is complete or `late`.
    fn turn(
        mut self: Box<Self>,
        sight: &SurveyContext<'_>,
        late: bool,
        reply: SyncSender<Box<Self>>,
    ) -> Option<Question> {
        let done = self.look(sight);
        let full = self.is_full();
        self.go_on(done, late || full, reply)
    }

    fn look(&mut self, sight: &SurveyContext<'_>) -> bool {
        self.now = sight.now;
        T::look(self, sight.engine, SLOTS_A_TURN)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.found.len() == self.found.capacity()
    }

    /// Answers if the scan is done or an answer is due now; else returns the question for the next
    /// turn.
    fn go_on(
        mut self: Box<Self>,
        done: bool,
        now: bool,
        reply: SyncSender<Box<Self>>,
    ) -> Option<Question> {
        self.done = done;
        if done || now {
            let _ = reply.send(self);
            return None;
        }
        Some(T::question(self, reply))
    }
}
