//! Several workers that are one gateway: who has what, and how packets come to whom they belong.
//!
//! Each worker is a thread with an engine, a router and devices of its own; on the way of a packet
//! nothing is shared but the list of who has which external ports. Back ends deliver a packet to the
//! worker whose it is where they can; a worker that gets another's hands it over.

mod broker;
mod exchange;
mod guide;
mod partition;

use crate::Settings;
use crate::links::Link;
use broker::{Broker, Trade};
pub(crate) use exchange::{Asked, Kind, Parcel};
use exchange::{Exchange, Waker};
use guide::{Advice, Guide, Waiting};
use natgate_engine::{Engine, Side, Timestamp};
use natgate_io::Steering;
pub use partition::MOST_WORKERS;
pub(crate) use partition::Partition;
use partition::Whose;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What a packet's link header and tag add to the largest packet.
const LINK_HEADER: usize = 18;

/// What makes a worker one of several.
#[derive(Debug)]
pub struct Member {
    number: usize,
    partition: Arc<Partition>,
    exchange: Exchange,
    broker: Broker,
    guide: Guide,
    /// Fragments that have waited here and gone to others since somebody asked.
    followed: u64,
}

/// Where a packet is to go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is this worker's.
    Here,
    /// Another has it now, or will find out whose it is.
    Gone,
    /// It waits for its first fragment.
    Waits,
    /// There is no room for it.
    Lost,
    /// There is no room to wait for its first fragment.
    Unguided,
}

/// The members of a team of so many workers that is to have these settings. Each wakes when a byte is
/// written to its stream, which is the other end of what it waits for.
pub fn team(settings: &Settings, wakers: Vec<UnixStream>) -> Vec<Member> {
    let workers = wakers.len();
    let partition = Arc::new(Partition::new(&settings.engine, workers, None));
    let wakers: Vec<Arc<Waker>> = wakers
        .into_iter()
        .map(|stream| {
            // A pipe that is full has bytes that wake.
            let _ = stream.set_nonblocking(true);
            Waker::new(stream)
        })
        .collect();
    let insides = settings.realms.iter().map(|realm| &realm.inside);
    let sides = insides.chain([&settings.inside, &settings.outside]);
    let longest = sides.map(|side| usize::from(side.mtu)).max().unwrap_or_default() + LINK_HEADER;
    let exchanges = exchange::exchanges(&wakers, longest);
    let member = |(number, (exchange, broker))| Member {
        number,
        partition: Arc::clone(&partition),
        exchange,
        broker,
        guide: Guide::new(settings.engine.timeouts.fragment),
        followed: 0,
    };
    exchanges.into_iter().zip(broker::brokers(&wakers)).enumerate().map(member).collect()
}

/// What devices are told, so that packets of the inside, and of the outside, come to the worker that
/// they belong to. Where that is not the whole truth, the workers see to the rest.
pub fn steering(settings: &Settings) -> [Steering; 2] {
    let outside = partition::stretches(&settings.engine, settings.workers.count);
    [Steering::Source, Steering::Destination(outside)]
}

impl Member {
    /// Its place among the workers.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.partition.workers()
    }

    /// Whether a host inside is this worker's.
    pub(crate) fn has(&self, realm: u16, host: Ipv4Addr) -> bool {
        self.partition.of_host(realm, host.to_bits()) == self.number
    }

    /// Who has what.
    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Who has what from now on.
    pub(crate) fn set_partition(&mut self, partition: Arc<Partition>, engine: &mut Engine) {
        self.partition = partition;
        self.broker.look_after(engine.config());
        self.settle(engine);
    }

    /// Tells the engine which ports it has.
    pub(crate) fn settle(&self, engine: &mut Engine) {
        for (address, words) in self.partition.owned(self.number) {
            engine.own(address, words);
        }
    }

    /// Makes an engine this worker's.
    pub(crate) fn divide(&mut self, engine: &mut Engine) {
        self.broker.look_after(engine.config());
        let partition = &self.partition;
        let place = (self.number as u16, self.workers() as u16);
        engine.divide(place, |realm, host| partition.of_host(realm, host.to_bits()) == self.number);
        self.settle(engine);
    }

    /// Sends a packet that came in by a link where it belongs.
    #[inline]
    pub(crate) fn dispatch(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        link: Link,
        bytes: &[u8],
    ) -> Way {
        let whose = self.partition.whose(link.side, link.realm, bytes);
        if let (Side::Inside, Whose::Of(owner)) = (link.side, whose) {
            // All fragments have the same sender.
            return self.give(owner, Kind::Packet(link, Asked::Settled), bytes);
        }
        self.follow(now, engine, bytes, whose, |asked| Kind::Packet(link, asked))
    }

    /// The same for one that turns round, from a realm.
    pub(crate) fn dispatch_turned(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        realm: u16,
        bytes: &[u8],
    ) -> Way {
        let whose = self.partition.whose(Side::Outside, 0, bytes);
        self.follow(now, engine, bytes, whose, |asked| Kind::Turned(realm, asked))
    }

    /// The same for an ICMP error of the router's own.
    pub(crate) fn dispatch_error(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        realm: u16,
        bytes: &[u8],
    ) -> Way {
        let whose = self.partition.whose(Side::Outside, 0, bytes);
        self.follow(now, engine, bytes, whose, |asked| Kind::Error(realm, asked))
    }

    /// The same for one that another has handed over, for it does not know whose it is.
    pub(crate) fn dispatch_again(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        kind: Kind,
        bytes: &[u8],
    ) -> Way {
        let (asked, of): (Asked, &dyn Fn(Asked) -> Kind) = match kind {
            Kind::Packet(link, asked) => (asked, &move |asked| Kind::Packet(link, asked)),
            Kind::Turned(realm, asked) => (asked, &move |asked| Kind::Turned(realm, asked)),
            Kind::Error(realm, asked) => (asked, &move |asked| Kind::Error(realm, asked)),
            Kind::Arp(_) => return Way::Here,
        };
        match asked {
            Asked::Settled => Way::Here,
            Asked::Portless(asked) => self.ask_next(engine, bytes, asked, of),
            Asked::Guide => {
                let owner = match self.partition.whose(Side::Outside, 0, bytes) {
                    Whose::Of(owner) => Some(owner),
                    Whose::Fragment(_) | Whose::Portless => None,
                };
                self.guide(now, of(Asked::Settled), bytes, owner)
            }
        }
    }

    fn follow(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        bytes: &[u8],
        whose: Whose,
        kind: impl Fn(Asked) -> Kind,
    ) -> Way {
        match whose {
            Whose::Of(owner) => match self.partition.guide_of(bytes) {
                None => self.give(owner, kind(Asked::Settled), bytes),
                Some(guide) if guide == self.number => {
                    self.guide(now, kind(Asked::Settled), bytes, Some(owner))
                }
                Some(guide) => self.give(guide, kind(Asked::Guide), bytes),
            },
            Whose::Fragment(guide) if guide == self.number => {
                self.guide(now, kind(Asked::Settled), bytes, None)
            }
            Whose::Fragment(guide) => self.give(guide, kind(Asked::Guide), bytes),
            Whose::Portless => self.ask_next(engine, bytes, 0, &kind),
        }
    }

    /// Keeps a packet of a protocol without ports if a mapping here is for it, or nobody is left to ask.
    fn ask_next(
        &mut self,
        engine: &mut Engine,
        bytes: &[u8],
        asked: u8,
        kind: &dyn Fn(Asked) -> Kind,
    ) -> Way {
        let workers = self.workers();
        if usize::from(asked) + 1 >= workers || engine.expects(bytes) {
            return Way::Here;
        }
        let next = (self.number + 1) % workers;
        self.give(next, kind(Asked::Portless(asked + 1)), bytes)
    }

    fn guide(&mut self, now: Timestamp, kind: Kind, bytes: &[u8], owner: Option<usize>) -> Way {
        match self.guide.advise(now, kind, bytes, owner) {
            Advice::Wait => Way::Waits,
            Advice::Full => Way::Unguided,
            Advice::Go(owner, waiting) => {
                let way = self.give(owner, kind, bytes);
                if owner == self.number {
                    // They come after it, by way of itself.
                    self.guide.recall(waiting);
                } else {
                    for Waiting { kind, bytes } in waiting {
                        match self.give(owner, kind, &bytes) {
                            Way::Lost => self.guide.give_up(Waiting { kind, bytes }),
                            _ => self.followed += 1,
                        }
                    }
                }
                way
            }
        }
    }

    fn give(&mut self, to: usize, kind: Kind, bytes: &[u8]) -> Way {
        if to == self.number {
            Way::Here
        } else if self.exchange.give(to, kind, bytes) {
            Way::Gone
        } else {
            Way::Lost
        }
    }

    /// Tells all others what an ARP frame says that came in by a link.
    pub(crate) fn tell_arp(&mut self, link: Link, frame: &[u8]) {
        self.exchange.tell_all(Kind::Arp(link), frame);
    }

    /// How many fragments that waited here have followed their first to others since the last call.
    pub(crate) fn followed(&mut self) -> u64 {
        std::mem::take(&mut self.followed)
    }

    /// A fragment that has waited here and whose first has come here since.
    pub(crate) fn recalled(&mut self) -> Option<(Kind, Vec<u8>)> {
        self.guide.recalled().map(|Waiting { kind, bytes }| (kind, bytes))
    }

    /// A fragment that has waited in vain; and whether there was no room for it where it belonged.
    pub(crate) fn given_up(&mut self, now: Timestamp) -> Option<(Kind, usize, bool)> {
        self.guide.given_up(now)
    }

    /// Takes what others have handed over, at most so much.
    pub(crate) fn take(&mut self, parcel: impl FnMut(usize, Parcel), most: usize) {
        self.exchange.take(parcel, most);
    }

    /// Gives a buffer back to whom it came from.
    pub(crate) fn give_back(&mut self, from: usize, buffer: Box<[u8]>) {
        self.exchange.give_back(from, buffer);
    }

    /// Wakes those whom something was handed over.
    pub(crate) fn flush(&mut self) {
        self.exchange.flush();
    }

    /// Sees to it that there are ports; returns how many were borrowed and lent.
    pub(crate) fn trade(&mut self, now: Timestamp, engine: &mut Engine) -> (u64, u64) {
        let Trade { borrowed, lent } = self.broker.turn(now, engine, &self.partition);
        (borrowed, lent)
    }

    /// When something is to be done even if nothing comes.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.guide.next_deadline()
    }

    /// Says that the worker is going to sleep; `false`: it is not to, something has come.
    pub(crate) fn falls_asleep(&self) -> bool {
        self.exchange.falls_asleep()
    }

    /// Says that the worker is awake.
    pub(crate) fn wakes_up(&self) {
        self.exchange.wakes_up();
    }
}
