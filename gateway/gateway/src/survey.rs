//! What others read of a running gateway: figures, and lists that are looked through by parts.
//!
//! Who asks brings all memory that an answer takes, and gets it back with the answer; a worker
//! fills it between batches, looking at [`SLOTS_A_TURN`] slots a turn at most. It keeps nothing
//! between two parts of a list: where to go on comes with the next. So it never waits for who asks,
//! however slow, and a list of millions costs packets no more than a list of one.
//!
//! Each worker has its own subscribers, and lists are those of one worker after another.

use crate::command::{CommandError, Commander};
use crate::router::{LearntRoutes, NeighborInfo, RouterCounters};
use crate::{Link, LoadNow};
use natgate_engine::{
    AddressUsage, BlockInfo, BlockKind, ByEndpoint, Counters, Cursor, Engine, Filter, HeldPort,
    MappingInfo, SessionInfo, Side, SubscriberInfo, TableTotals, Timestamp,
};
use natgate_io::{LinkInfo, Statistics};
use natgate_wire::arp::Mac;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Slots that a worker looks at in one turn.
const SLOTS_A_TURN: usize = 2048;

/// Turns that a part of a list takes at most: then others get their answers.
const MOST_TURNS: u32 = 32;

/// Room for the names of links and pools, bytes, and for how many of each; longer ones and more of
/// them are allocated by the worker.
const NAME: usize = 64;
const MANY: usize = 64;

/// Neighbours of one link and others that fit an answer.
const MOST_NEIGHBORS: usize = 1 << 18;

/// What a worker has counted and has, in figures.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The worker's number, and how many there are.
    pub worker: (usize, usize),
    /// The time.
    pub now: Timestamp,
    /// Packets, with what was lost after translation counted as dropped.
    pub counters: Counters,
    /// What the router has counted besides.
    pub router: RouterCounters,
    /// Packets of the gateway's own making that were lost.
    pub own_lost: u64,
    /// Frames that were not sent to the gateway.
    pub not_addressed: u64,
    /// Mappings, subscribers and sessions: how many there are and may be.
    pub totals: TableTotals,
    /// What the worker has done.
    pub load: LoadNow,
    /// Its devices, one for each link.
    pub links: Vec<LinkFigures>,
    /// Pools, in the engine's numbering.
    pub pools: Vec<PoolFigures>,
}

/// A link's device.
#[derive(Clone, Debug)]
pub struct LinkFigures {
    /// The link.
    pub link: Link,
    /// The device's name.
    pub device: String,
    /// Its hardware address.
    pub mac: Mac,
    /// Largest payload of a frame, bytes.
    pub mtu: u32,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Frames; of a device that several links share, those of all.
    pub frames: Statistics,
}

/// A pool's ports.
#[derive(Clone, Debug, Default)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Ports that a new mapping may take: TCP, UDP, ICMP, DCCP.
    pub free: [u32; 4],
    /// Ports in hold-down, by protocol as those.
    pub held: [u32; 4],
    /// Dynamic mappings: of TCP, UDP, ICMP, DCCP and others.
    pub used: [u64; 5],
    /// Blocks that nobody has, if ports are given out in blocks.
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
    /// Writes what a device tells.
    pub(crate) fn write(&mut self, link: Link, frames: Statistics, info: &LinkInfo) {
        self.device.clone_from(&info.name);
        let LinkInfo { mac, mtu, up, .. } = *info;
        (self.link, self.mac, self.mtu, self.up, self.frames) = (link, mac, mtu, up, frames);
    }
}

impl Figures {
    /// With room for what a worker will write.
    fn with_room() -> Self {
        let pool = || PoolFigures { name: String::with_capacity(NAME), ..PoolFigures::default() };
        let (links, pools) = (roomy(LinkFigures::empty), roomy(pool));
        Self { links, pools, ..Self::default() }
    }

    /// Writes what the devices of links tell.
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

    /// Writes what pools have.
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

    /// Frames that came too fast, over all devices.
    pub fn overrun(&self) -> u64 {
        self.links.iter().map(|link| link.frames.receive_overrun).sum()
    }
}

/// A list with entries to be written over.
fn roomy<T>(entry: impl Fn() -> T) -> Vec<T> {
    (0..MANY).map(|_| entry()).collect()
}

/// A part of a list.
#[derive(Debug)]
pub struct Part<T> {
    cursor: Cursor,
    filter: Filter,
    found: Vec<T>,
    /// When the worker looked last.
    now: Timestamp,
    done: bool,
}

/// What there are lists of.
pub trait Listed: Sized + Send + 'static {
    /// The question for a part.
    #[doc(hidden)]
    fn question(part: Box<Part<Self>>, reply: SyncSender<Box<Part<Self>>>) -> Question;

    /// Looks at so many slots.
    #[doc(hidden)]
    fn look(part: &mut Part<Self>, engine: &Engine, most: usize) -> bool;
}

/// What a mapping or session is to be removed by.
#[derive(Debug)]
pub struct Removal {
    cursor: Cursor,
    filter: Filter,
    sessions: bool,
    count: u64,
    done: bool,
}

macro_rules! lists {
    ($($kind:ident: $of:ty, $scan:ident;)*) => {
        /// What a worker is asked.
        #[derive(Debug)]
        pub enum Question {
            /// For figures.
            Figures(Box<Figures>, SyncSender<Box<Figures>>),
            /// For neighbours.
            Neighbors(Vec<(Link, NeighborInfo)>, SyncSender<Vec<(Link, NeighborInfo)>>),
            /// For the learnt routes.
            Learnt(SyncSender<Arc<LearntRoutes>>),
            /// To remove.
            Clear(Box<Removal>, SyncSender<Box<Removal>>),
            $(
                /// For a part of a list.
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

/// A list that is being read.
#[derive(Debug)]
pub struct List<T> {
    commander: Commander,
    filter: Filter,
    /// The worker that is asked next.
    worker: usize,
    part: Option<Box<Part<T>>>,
}

impl<T: Listed> List<T> {
    /// The next entries, some of them or none, and when they were so; nothing: that was all.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn next_part(&mut self) -> Result<Option<(&[T], Timestamp)>, CommandError> {
        if self.part.as_ref().is_some_and(|part| part.done) {
            self.worker += 1;
            if let Some(part) = &mut self.part {
                (part.cursor, part.done) = (Cursor::default(), false);
            }
        }
        if self.worker >= self.commander.workers() {
            return Ok(None);
        }
        let Some(mut part) = self.part.take() else { return Err(CommandError::Stopping) };
        part.found.clear();
        part.filter = self.filter;
        let part = self.commander.question(self.worker, |reply| T::question(part, reply))?;
        let part = self.part.insert(part);
        Ok(Some((&part.found, part.now)))
    }
}

impl Commander {
    /// What each worker has counted and has.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn figures(&self) -> Result<Vec<Figures>, CommandError> {
        let figures = |worker| {
            let empty = Box::new(Figures::with_room());
            self.question(worker, |reply| Question::Figures(empty, reply)).map(|figures| *figures)
        };
        (0..self.workers()).map(figures).collect()
    }

    /// The mappings, sessions (each with its mapping), subscribers or addresses of pools that a
    /// filter means, in parts of at most so many. Each worker tells its own; of addresses all tell
    /// what they use.
    pub fn list<T: Listed>(&self, filter: Filter, room: usize) -> List<T> {
        let (cursor, found) = (Cursor::default(), Vec::with_capacity(room.max(1)));
        let part = Some(Box::new(Part { cursor, filter, found, now: Timestamp(0), done: false }));
        List { commander: self.clone(), filter, worker: 0, part }
    }

    /// What one worker finds from a place on, at most so many; and whether that was all.
    pub(crate) fn page<T: Listed>(
        &self,
        worker: usize,
        cursor: Cursor,
        most: usize,
    ) -> Result<(Vec<T>, bool), CommandError> {
        let (filter, found) = (Filter::default(), Vec::with_capacity(most));
        let mut part = Box::new(Part { cursor, filter, found, now: Timestamp(0), done: false });
        while !part.done && !part.is_full() {
            part = self.question(worker, |reply| T::question(part, reply))?;
        }
        Ok((part.found, part.done))
    }

    /// Removes the dynamic mappings that a filter means, or the sessions; says how many.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn clear(&self, filter: Filter, sessions: bool) -> Result<u64, CommandError> {
        let mut all = 0;
        for worker in 0..self.workers() {
            let cursor = Cursor::default();
            let mut removal = Box::new(Removal { cursor, filter, sessions, count: 0, done: false });
            while !removal.done {
                removal = self.question(worker, |reply| Question::Clear(removal, reply))?;
            }
            all += removal.count;
        }
        Ok(all)
    }

    /// Each worker's neighbours, in order of link and address. Workers have their own, and may know
    /// the same.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn neighbors(&self) -> Result<Vec<Vec<(Link, NeighborInfo)>>, CommandError> {
        let neighbors = |worker| {
            let room = Vec::with_capacity(MOST_NEIGHBORS);
            let list = self.question(worker, |reply| Question::Neighbors(room, reply));
            list.map(|mut list| {
                let order = |link: Link| (link.side == Side::Outside, link.realm);
                list.sort_by_key(|(link, neighbor)| (order(*link), neighbor.address));
                list
            })
        };
        (0..self.workers()).map(neighbors).collect()
    }

    /// The learnt routes that the routers go by.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn learnt(&self) -> Result<Arc<LearntRoutes>, CommandError> {
        self.question(0, Question::Learnt)
    }
}

/// Neighbours, and on which links they are.
type Neighborhood = Vec<(Link, NeighborInfo)>;

/// What the worker gives for answers.
pub(crate) struct SurveyContext<'a> {
    pub(crate) now: Timestamp,
    pub(crate) engine: &'a mut Engine,
    /// Writes figures.
    pub(crate) figures: &'a mut dyn FnMut(&Engine, &mut Figures),
    /// Writes neighbours.
    pub(crate) neighbors: &'a mut dyn FnMut(&mut Neighborhood),
    pub(crate) learnt: &'a dyn Fn() -> Arc<LearntRoutes>,
    /// Whether this worker has a host: static mappings and their blocks are those of all workers,
    /// and this one tells of them.
    pub(crate) has_host: &'a dyn Fn(u16, Ipv4Addr) -> bool,
}

/// A question under way.
pub(crate) struct Inquiry {
    question: Question,
    turns: u32,
}

impl Inquiry {
    pub(crate) fn new(question: Question) -> Self {
        Self { question, turns: 0 }
    }

    /// Does a turn's share; what is left, if anything.
    pub(crate) fn turn(mut self, sight: &mut SurveyContext<'_>) -> Option<Self> {
        self.turns += 1;
        let late = self.turns >= MOST_TURNS;
        let turns = self.turns;
        let question = match self.question {
            Question::Figures(mut figures, reply) => {
                (sight.figures)(sight.engine, &mut figures);
                // Who does not wait for the answer has stopped; so with all answers here.
                let _ = reply.send(figures);
                return None;
            }
            Question::Neighbors(mut list, reply) => {
                (sight.neighbors)(&mut list);
                let _ = reply.send(list);
                return None;
            }
            Question::Learnt(reply) => {
                let _ = reply.send((sight.learnt)());
                return None;
            }
            Question::Clear(mut removal, reply) => {
                let Removal { cursor, filter, sessions, .. } = &mut *removal;
                let (count, done) = match *sessions {
                    true => sight.engine.clear_sessions(cursor, SLOTS_A_TURN, filter),
                    false => sight.engine.clear_mappings(cursor, SLOTS_A_TURN, filter),
                };
                removal.count += count;
                removal.done = done;
                if done || late {
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
            Question::Sessions(mut part, reply) => {
                let done = part.look(sight);
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Subscribers(mut part, reply) => {
                let done = part.look(sight);
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Addresses(mut part, reply) => {
                let done = part.look(sight);
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Blocks(mut part, reply) => {
                let done = part.look(sight);
                part.found.retain(|block| {
                    let is_everybodys = block.kind == BlockKind::Static;
                    !is_everybodys || (sight.has_host)(block.realm, block.subscriber)
                });
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Held(mut part, reply) => {
                let done = part.look(sight);
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
            Question::Endpoints(mut part, reply) => {
                let done = part.look(sight);
                let full = part.is_full();
                part.go_on(done, late || full, reply)?
            }
        };
        Some(Self { question, turns })
    }
}

impl<T: Listed> Part<T> {
    fn look(&mut self, sight: &SurveyContext<'_>) -> bool {
        self.now = sight.now;
        T::look(self, sight.engine, SLOTS_A_TURN)
    }

    fn is_full(&self) -> bool {
        self.found.len() == self.found.capacity()
    }

    /// Answers, if that was all or it is time to; else the question for the next turn.
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
