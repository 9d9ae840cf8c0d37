//! Several workers that are one gateway: who has what, and how packets come to whom they belong.
//!
//! Each worker is a thread with an engine, a router and devices of its own; on the way of a packet
//! nothing is shared but the list of who has which external ports. Back ends deliver a packet to
//! the worker whose it is where they can; a worker that gets another's hands it over.

mod broker;
mod exchange;
mod guide;
mod partition;

use crate::link::Link;
use crate::pcp::RequestClass;
use crate::settings::Settings;
use broker::{Mailbox, PortLender, Trade};
pub use exchange::Wake;
use exchange::{Exchange, Waker, Ways};
pub(crate) use exchange::{HandedPacket, Kind, OwnerLookup};
use guide::{Advice, Guide, Waiting};
use natgate_engine::{Engine, Side, Timestamp};
use natgate_io::Steering;
pub(crate) use partition::Partition;
use partition::{Host, PacketOwner};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What a packet's link header and tag add to the largest packet.
const LINK_HEADER: usize = 18;

/// Division of subscribers and external ports among workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// For each bucket of subscribers: its worker, and a bit for each worker that had the bucket
    /// before and may still have some of the subscribers.
    pub buckets: Vec<(u8, u64)>,
    /// For each external address: runs of words of 64 ports, as number of words and worker.
    pub addresses: Vec<(u32, Vec<(u16, u8)>)>,
}

/// What makes a worker one of several.
#[derive(Debug)]
pub struct Member {
    number: usize,
    partition: Arc<Partition>,
    exchange: Exchange,
    broker: PortLender,
    guide: Guide,
    /// Packets handed over since it was last asked.
    handed_over: u64,
}

/// Where a packet is to go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is this worker's.
    Here,
    /// Another has it now, or will find out whose it is; or it waits for its first fragment.
    Gone,
    /// There is no room for it.
    Lost,
    /// There is no room to wait for its first fragment.
    Unguided,
}

/// The members of a team of so many workers that is to have these settings, each with what ends its
/// sleep: a stream is the other end of what it waits for.
pub fn team(settings: &Settings, wakers: Vec<impl Into<Box<dyn Wake>>>) -> Vec<Member> {
    let workers = wakers.len();
    let partition = Arc::new(Partition::new(&settings.engine, workers, None));
    let wakers: Vec<Arc<Waker>> = wakers.into_iter().map(Waker::new).collect();
    let exchanges = exchange::exchanges(&wakers, longest(settings));
    let member = |(number, (exchange, broker))| Member {
        number,
        partition: Arc::clone(&partition),
        exchange,
        broker,
        guide: Guide::new(settings.engine.timeouts.fragment),
        handed_over: 0,
    };
    exchanges.into_iter().zip(broker::brokers(&wakers)).enumerate().map(member).collect()
}

/// Bytes that such a team takes beside its engines.
pub fn team_memory(settings: &Settings) -> u64 {
    exchange::memory(settings.workers.count.max(1), longest(settings)) as u64
}

/// What devices are told, so that packets of the inside, and of the outside, come to the worker
/// that they belong to. Where that is not the whole truth, the workers see to the rest.
pub fn steering(settings: &Settings) -> [Steering; 2] {
    let outside = partition::stretches(&settings.engine, settings.workers.count);
    [Steering::Source, Steering::Destination(outside)]
}

/// The longest frame that is handed over.
fn longest(settings: &Settings) -> usize {
    let insides = settings.realms.iter().map(|realm| &realm.inside);
    let sides = insides.chain([&settings.inside, &settings.outside]);
    sides.map(|side| usize::from(side.mtu)).max().unwrap_or_default() + LINK_HEADER
}

/// What a worker is told of one that joins.
#[derive(Debug)]
pub(crate) struct Newcomer {
    partition: Arc<Partition>,
    ways: Ways,
    mailbox: Mailbox,
}

/// What is needed to join a team.
#[derive(Debug)]
pub(crate) struct Invitation {
    partition: Arc<Partition>,
    wakers: Vec<Arc<Waker>>,
    mailboxes: Vec<Mailbox>,
}

impl Invitation {
    /// The member that joins a team with these settings, which wakes by its stream, and what each
    /// of the others is to be told. Subscribers come once it begins.
    pub(crate) fn accept(
        self,
        settings: &Settings,
        waker: UnixStream,
    ) -> (Member, Vec<Newcomer>, Beginning) {
        let Self { partition, wakers, mailboxes } = self;
        let own = Waker::new(waker);
        let number = wakers.len();
        let partition = Partition::new(&settings.engine, number + 1, Some(&partition));
        let partition = Arc::new(partition);
        let (exchange, ways) = exchange::join(&wakers, &own, longest(settings));
        let (broker, mailbox) = broker::join(mailboxes, &own);
        let newcomer =
            |ways| Newcomer { partition: Arc::clone(&partition), ways, mailbox: mailbox.clone() };
        let others = ways.into_iter().map(newcomer).collect();
        let guide = Guide::new(settings.engine.timeouts.fragment);
        let beginning = Beginning(Arc::clone(&partition));
        (Member { number, partition, exchange, broker, guide, handed_over: 0 }, others, beginning)
    }
}

/// Lets a worker that has joined take its part.
#[derive(Debug)]
pub(crate) struct Beginning(Arc<Partition>);

impl Beginning {
    /// Gives it subscribers: those of its buckets that nobody knows yet.
    pub(crate) fn begin(self) {
        self.0.welcome();
    }
}

impl Member {
    /// Makes the engine of a worker that was alone so far one of several.
    pub(crate) fn no_longer_alone(&mut self, engine: &mut Engine) {
        self.broker.look_after(engine.config());
        engine.divide_from_now((0, 1));
    }

    /// What another needs to join.
    pub(crate) fn invite(&self) -> Invitation {
        let mailboxes = self.broker.mailboxes();
        let wakers = mailboxes.iter().map(|(_, waker)| Arc::clone(waker)).collect();
        Invitation { partition: Arc::clone(&self.partition), wakers, mailboxes }
    }

    /// Takes a newcomer in.
    pub(crate) fn welcome(&mut self, newcomer: Newcomer, engine: &mut Engine) {
        let Newcomer { partition, ways, mailbox } = newcomer;
        self.exchange.welcome(ways);
        self.broker.welcome(mailbox);
        self.partition = partition;
        self.broker.look_after(engine.config());
        engine.set_engines((self.number as u16, self.workers() as u16));
    }

    /// Forgets that buckets were this worker's of which it has no subscribers any more.
    pub(crate) fn tidy(&self, engine: &Engine) {
        self.partition.forget(self.number, |bucket| engine.hosts_of(bucket) == 0);
    }

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

    /// Tells an engine which ports it has, and that it has no others.
    pub(crate) fn settle_only(&self, engine: &mut Engine) {
        for (address, words) in self.partition.all_owned(self.number) {
            engine.own_only(address, &words);
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

    /// Sends a packet where it belongs.
    #[inline]
    pub(crate) fn dispatch(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        kind: Kind,
        bytes: &[u8],
    ) -> Way {
        let link = kind.link();
        match self.partition.whose(link.side, link.realm, bytes) {
            // All fragments from inside have the same sender.
            PacketOwner::Of(owner) if link.side == Side::Inside => {
                self.give(owner, kind, OwnerLookup::Settled, bytes)
            }
            PacketOwner::Of(owner) => match self.partition.guide_of(bytes) {
                None => self.give(owner, kind, OwnerLookup::Settled, bytes),
                Some(guide) if guide == self.number => self.guide(now, kind, bytes, Some(owner)),
                Some(guide) => self.give(guide, kind, OwnerLookup::Guide, bytes),
            },
            PacketOwner::Fragment(guide) if guide == self.number => {
                self.guide(now, kind, bytes, None)
            }
            PacketOwner::Fragment(guide) => self.give(guide, kind, OwnerLookup::Guide, bytes),
            PacketOwner::Portless => self.ask_next(engine, kind, bytes, 0),
            PacketOwner::Host(host) => {
                let (_, before) = self.partition.now_and_before(host);
                self.find_host(engine, kind, bytes, host, before)
            }
        }
    }

    /// Sends a request for a mapping of a host to whose the host is.
    pub(crate) fn dispatch_request(
        &mut self,
        engine: &Engine,
        (realm, host): (u16, Ipv4Addr),
        class: RequestClass,
        bytes: &[u8],
    ) -> Way {
        let host = (realm, host.to_bits());
        let kind = Kind::Request { realm, host: host.1, class };
        match self.partition.whose_host(host) {
            PacketOwner::Of(owner) => self.give(owner, kind, OwnerLookup::Settled, bytes),
            _ => {
                let (_, before) = self.partition.now_and_before(host);
                self.find_host(engine, kind, bytes, host, before)
            }
        }
    }

    /// The same for one that another has handed over, having asked so far.
    pub(crate) fn dispatch_again(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        (kind, asked): (Kind, OwnerLookup),
        bytes: &[u8],
    ) -> Way {
        let link = kind.link();
        let whose = || match kind {
            Kind::Request { realm, host, .. } => self.partition.whose_host((realm, host)),
            _ => self.partition.whose(link.side, link.realm, bytes),
        };
        match asked {
            OwnerLookup::Settled => Way::Here,
            OwnerLookup::Portless(asked) => self.ask_next(engine, kind, bytes, asked),
            OwnerLookup::Former(left) => match whose() {
                PacketOwner::Host(host) => self.find_host(engine, kind, bytes, host, left),
                PacketOwner::Of(owner) => self.give(owner, kind, OwnerLookup::Settled, bytes),
                PacketOwner::Fragment(_) | PacketOwner::Portless => Way::Here,
            },
            OwnerLookup::Guide => {
                let owner = match whose() {
                    PacketOwner::Of(owner) => Some(owner),
                    // Its datagram is followed to whom the bucket is now.
                    PacketOwner::Host(host) => Some(self.partition.now_and_before(host).0),
                    PacketOwner::Fragment(_) | PacketOwner::Portless => None,
                };
                self.guide(now, kind, bytes, owner)
            }
        }
    }

    /// Keeps a packet of a host inside if it has mappings here; else gives it to the next of those
    /// that may have some, and in the end to whom the host is of now.
    fn find_host(
        &mut self,
        engine: &Engine,
        kind: Kind,
        bytes: &[u8],
        host: Host,
        mut left: u64,
    ) -> Way {
        while left != 0 {
            let next = left.trailing_zeros() as usize;
            if next != self.number {
                return self.give(next, kind, OwnerLookup::Former(left), bytes);
            }
            if engine.knows(host.0, Ipv4Addr::from_bits(host.1)) {
                return Way::Here;
            }
            left &= left - 1;
        }
        let (owner, _) = self.partition.now_and_before(host);
        self.give(owner, kind, OwnerLookup::Settled, bytes)
    }

    /// Keeps a packet of a protocol without ports if a mapping here is for it, or nobody is left to
    /// ask.
    fn ask_next(&mut self, engine: &mut Engine, kind: Kind, bytes: &[u8], asked: u8) -> Way {
        let workers = self.workers();
        if usize::from(asked) + 1 >= workers || engine.expects(bytes) {
            return Way::Here;
        }
        let next = (self.number + 1) % workers;
        self.give(next, kind, OwnerLookup::Portless(asked + 1), bytes)
    }

    fn guide(&mut self, now: Timestamp, kind: Kind, bytes: &[u8], owner: Option<usize>) -> Way {
        match self.guide.advise(now, kind, bytes, owner) {
            Advice::Wait => Way::Gone,
            Advice::Full => Way::Unguided,
            Advice::Go(owner, waiting) => {
                let way = self.give(owner, kind, OwnerLookup::Settled, bytes);
                if owner == self.number {
                    // They come after it, by way of itself.
                    self.guide.recall(waiting);
                } else {
                    for Waiting { kind, bytes } in waiting {
                        if self.give(owner, kind, OwnerLookup::Settled, &bytes) == Way::Lost {
                            self.guide.give_up(Waiting { kind, bytes });
                        }
                    }
                }
                way
            }
        }
    }

    fn give(&mut self, to: usize, kind: Kind, asked: OwnerLookup, bytes: &[u8]) -> Way {
        if to == self.number {
            Way::Here
        } else if self.exchange.give(to, kind, asked, bytes) {
            self.handed_over += 1;
            Way::Gone
        } else {
            Way::Lost
        }
    }

    /// Tells all others what an ARP frame says that came in by a link.
    pub(crate) fn tell_arp(&mut self, link: Link, frame: &[u8]) {
        self.exchange.tell_all(Kind::Arp(link), frame);
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
    pub(crate) fn take(&mut self, parcel: impl FnMut(usize, HandedPacket), most: usize) {
        self.exchange.take(parcel, most);
    }

    /// Gives a buffer back to whom it came from.
    pub(crate) fn give_back(&mut self, from: usize, buffer: Box<[u8]>) {
        self.exchange.give_back(from, buffer);
    }

    /// Wakes those whom something was handed over; returns how many packets that was.
    pub(crate) fn flush(&mut self) -> u64 {
        self.exchange.flush();
        std::mem::take(&mut self.handed_over)
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
