//! Several workers that form one gateway: who owns what, and how packets reach their owner.
//!
//! Each worker is a thread with an engine, a router and devices of its own. On the path of a packet
//! the workers share nothing but the lists of the owners of subscribers and external ports. Back
//! ends deliver a packet to its owner where they can; another worker that gets the packet hands it
//! over.

mod exchange;
mod guide;
mod partition;
mod port_lender;

use crate::alg::Algs;
use crate::link::Link;
use crate::pcp::RequestClass;
use crate::settings::Settings;
pub use exchange::Wake;
use exchange::{Exchange, Waker, Ways};
pub(crate) use exchange::{HandedPacket, Kind, OwnerLookup};
use guide::{Advice, Guide, Waiting};
use natgate_engine::{Engine, Side, Timestamp};
use natgate_io::{By, Exception, Steering};
use natgate_ipv6::HostKind;
use natgate_wire::arp::Mac;
use partition::{Host, PacketOwner};
pub(crate) use partition::{Partition, WHOLE_ADDRESS};
use port_lender::{Mailbox, PortLender, Trade};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Bytes that link header and tag add to the largest packet.
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

/// Membership of a worker in a team.
#[derive(Debug)]
pub struct Member {
    number: usize,
    partition: Arc<Partition>,
    exchange: Exchange,
    lender: PortLender,
    guide: Guide,
    /// Packets handed over since the last call of [`Member::flush`].
    handed_over: u64,
}

/// A packet from another worker, and the number of that worker.
pub(crate) type Parcel = (usize, HandedPacket);

/// Result of dispatching a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// This worker owns the packet.
    Here,
    /// Another worker has the packet now, or will find its owner; or the packet waits for its first
    /// fragment.
    Gone,
    /// There is no room to hand the packet over.
    Lost,
    /// There is no room to wait for the packet's first fragment.
    Unguided,
}

/// Creates the members of a team with these settings, one for each waker. A stream given as a waker
/// is the other end of the stream that the worker waits for.
pub fn team(settings: &Settings, wakers: Vec<impl Into<Box<dyn Wake>>>) -> Vec<Member> {
    let workers = wakers.len();
    let partition = Arc::new(Partition::of(settings, workers, None));
    let wakers: Vec<Arc<Waker>> = wakers.into_iter().map(Waker::new).collect();
    let exchanges = exchange::exchanges(&wakers, longest(settings));
    let member = |(number, (exchange, lender))| Member {
        number,
        partition: Arc::clone(&partition),
        exchange,
        lender,
        guide: Guide::new(settings.engine.timeouts.fragment),
        handed_over: 0,
    };
    exchanges.into_iter().zip(port_lender::port_lenders(&wakers)).enumerate().map(member).collect()
}

/// Bytes of memory that such a team takes beside its engines.
pub fn team_memory(settings: &Settings) -> u64 {
    exchange::memory(settings.workers.count.max(1), longest(settings)) as u64
}

/// Steering of devices inside and outside, so that packets reach their owner. If a device cannot
/// follow it fully, the workers hand packets over.
pub fn steering(settings: &Settings) -> [Steering; 2] {
    let outside = partition::stretches(&settings.engine, settings.workers.count);
    let [prefix_len, tunneled] =
        [HostKind::Nat64, HostKind::Dslite].map(|kind| settings.ipv6.divided_length(kind));
    let end = settings.ipv6.dslite.as_ref().filter(|_| tunneled != prefix_len);
    let exception =
        end.map(|dslite| Exception { destination: dslite.address.to_bits(), prefix_len: tunneled });
    [(By::Source, exception), (By::Destination(outside), None)].map(|(by, exception)| Steering {
        by,
        prefix_len,
        exception,
    })
}

/// Bytes of the longest frame that is handed over.
fn longest(settings: &Settings) -> usize {
    let insides = settings.realms.iter().map(|realm| &realm.inside);
    let sides = insides.chain([&settings.inside, &settings.outside]);
    sides.map(|side| usize::from(side.mtu)).max().unwrap_or_default() + LINK_HEADER
}

/// Data with which a worker admits one that joins.
#[derive(Debug)]
pub(crate) struct Newcomer {
    partition: Arc<Partition>,
    ways: Ways,
    mailbox: Mailbox,
}

/// Data that a worker needs to join a team.
#[derive(Debug)]
pub(crate) struct Invitation {
    partition: Arc<Partition>,
    wakers: Vec<Arc<Waker>>,
    mailboxes: Vec<Mailbox>,
}

impl Invitation {
    /// Creates the member that joins a team with these settings, and the data for each of the
    /// others. `waker` ends the newcomer's sleep. The newcomer gets subscribers when it begins.
    pub(crate) fn accept(
        self,
        settings: &Settings,
        waker: UnixStream,
    ) -> (Member, Vec<Newcomer>, Beginning) {
        let Self { partition, wakers, mailboxes } = self;
        let own = Waker::new(waker);
        let number = wakers.len();
        let partition = Partition::of(settings, number + 1, Some(&partition));
        let partition = Arc::new(partition);
        let (exchange, ways) = exchange::join(&wakers, &own, longest(settings));
        let (lender, mailbox) = port_lender::join(mailboxes, &own);
        let newcomer =
            |ways| Newcomer { partition: Arc::clone(&partition), ways, mailbox: mailbox.clone() };
        let others = ways.into_iter().map(newcomer).collect();
        let guide = Guide::new(settings.engine.timeouts.fragment);
        let beginning = Beginning(Arc::clone(&partition));
        (Member { number, partition, exchange, lender, guide, handed_over: 0 }, others, beginning)
    }
}

/// Permission for a worker that has joined to take its share.
#[derive(Debug)]
pub(crate) struct Beginning(Arc<Partition>);

impl Beginning {
    /// Gives the worker its buckets: their subscribers that no other worker knows yet.
    pub(crate) fn begin(self) {
        self.0.welcome();
    }
}

impl Member {
    /// Makes the engine of a worker that was alone so far one of several.
    pub(crate) fn no_longer_alone(&mut self, engine: &mut Engine) {
        self.lender.look_after(engine.config());
        engine.divide_from_now((0, 1));
    }

    /// Data with which another worker can join.
    pub(crate) fn invite(&self) -> Invitation {
        let mailboxes = self.lender.mailboxes();
        let wakers = mailboxes.iter().map(|(_, waker)| Arc::clone(waker)).collect();
        Invitation { partition: Arc::clone(&self.partition), wakers, mailboxes }
    }

    /// Admits a newcomer.
    pub(crate) fn welcome(&mut self, newcomer: Newcomer, engine: &mut Engine) {
        let Newcomer { partition, ways, mailbox } = newcomer;
        self.exchange.welcome(ways);
        self.lender.welcome(mailbox);
        self.partition = partition;
        self.lender.look_after(engine.config());
        engine.set_engines((self.number as u16, self.workers() as u16));
    }

    /// Gives up former buckets of which this worker has no subscribers left.
    pub(crate) fn tidy(&self, engine: &Engine) {
        self.partition.forget(self.number, |bucket| engine.hosts_of(bucket) == 0);
    }

    /// Number of this worker among the workers.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.partition.workers()
    }

    /// True if this worker owns an internal host.
    pub(crate) fn has(&self, realm: u16, host: Ipv4Addr) -> bool {
        self.partition.of_host(realm, host.to_bits()) == self.number
    }

    /// The partition in force.
    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Puts a new partition in force.
    pub(crate) fn set_partition(&mut self, partition: Arc<Partition>, engine: &mut Engine) {
        self.partition = partition;
        self.lender.look_after(engine.config());
        // A worker gives words up before it enters their next owner in the partition.
        self.settle_only(engine);
    }

    /// Gives the engine the ports that this worker owns.
    pub(crate) fn settle(&self, engine: &mut Engine) {
        for (address, words) in self.partition.owned(self.number) {
            engine.own(address, words);
        }
    }

    /// Gives an engine the ports that this worker owns, and takes all others from it.
    pub(crate) fn settle_only(&self, engine: &mut Engine) {
        for (address, words) in self.partition.all_owned(self.number) {
            engine.own_only(address, &words);
        }
    }

    /// Prepares an engine for this worker's part.
    pub(crate) fn divide(&mut self, engine: &mut Engine) {
        self.lender.look_after(engine.config());
        let partition = &self.partition;
        let place = (self.number as u16, self.workers() as u16);
        engine.divide(place, |realm, host| partition.of_host(realm, host.to_bits()) == self.number);
        self.settle(engine);
    }

    /// Owner of a packet that came in by a link, if the packet is of the commonest kind. It needs
    /// no [`Member::dispatch`]: [`Member::hand_over`] is enough.
    #[inline(always)]
    pub(crate) fn owner_of(&self, link: Link, bytes: &[u8]) -> Option<usize> {
        self.partition.owner_of_whole(link.side, link.realm, bytes)
    }

    /// Hands a packet over to its owner, if that is not this worker.
    #[inline]
    pub(crate) fn hand_over(&mut self, owner: usize, kind: Kind, bytes: &[u8]) -> Way {
        self.give(owner, kind, OwnerLookup::Settled, bytes)
    }

    /// Dispatches a packet to its owner.
    pub(crate) fn dispatch(
        &mut self,
        now: Timestamp,
        (engine, algs): (&mut Engine, Option<&Algs>),
        kind: Kind,
        bytes: &[u8],
    ) -> Way {
        let link = kind.link();
        match self.partition.owner_of_packet(link.side, link.realm, bytes) {
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
            PacketOwner::Portless => self.ask_next(now, (engine, algs), (kind, 0), bytes),
            PacketOwner::Host(host) => {
                let (_, before) = self.partition.now_and_before(host);
                self.find_host(engine, kind, bytes, host, before)
            }
        }
    }

    /// Dispatches an IPv6 packet that came in by a link to its owner.
    pub(crate) fn dispatch_ipv6(&mut self, kind: Kind, bytes: &[u8]) -> Way {
        let owner = self.partition.owner_of_ipv6(kind.link().side, bytes);
        self.give(owner, kind, OwnerLookup::Settled, bytes)
    }

    /// Dispatches a request for a mapping to the owner of its host.
    pub(crate) fn dispatch_request(
        &mut self,
        engine: &Engine,
        (realm, host): (u16, Ipv4Addr),
        class: RequestClass,
        bytes: &[u8],
    ) -> Way {
        let host = (realm, host.to_bits());
        let kind = Kind::Request { realm, host: host.1, class };
        match self.partition.owner_of_host(host) {
            PacketOwner::Of(owner) => self.give(owner, kind, OwnerLookup::Settled, bytes),
            _ => {
                let (_, before) = self.partition.now_and_before(host);
                self.find_host(engine, kind, bytes, host, before)
            }
        }
    }

    /// Dispatches a packet that another worker has handed over; `asked` is the state of the search.
    pub(crate) fn dispatch_again(
        &mut self,
        now: Timestamp,
        (engine, algs): (&mut Engine, Option<&Algs>),
        (kind, asked): (Kind, OwnerLookup),
        bytes: &[u8],
    ) -> Way {
        let link = kind.link();
        let owner_now = || match kind {
            Kind::Request { realm, host, .. } => self.partition.owner_of_host((realm, host)),
            _ => self.partition.owner_of_packet(link.side, link.realm, bytes),
        };
        match asked {
            OwnerLookup::Settled => Way::Here,
            OwnerLookup::Portless(asked) => {
                self.ask_next(now, (engine, algs), (kind, asked), bytes)
            }
            OwnerLookup::Found(owner) => self.guide(now, kind, bytes, Some(owner.into())),
            OwnerLookup::Former(left) => match owner_now() {
                PacketOwner::Host(host) => self.find_host(engine, kind, bytes, host, left),
                PacketOwner::Of(owner) => self.give(owner, kind, OwnerLookup::Settled, bytes),
                PacketOwner::Fragment(_) | PacketOwner::Portless => Way::Here,
            },
            OwnerLookup::Guide => {
                let owner = match owner_now() {
                    PacketOwner::Of(owner) => Some(owner),
                    // The fragments of the datagram go to the present owner of the bucket.
                    PacketOwner::Host(host) => Some(self.partition.now_and_before(host).0),
                    PacketOwner::Fragment(_) | PacketOwner::Portless => None,
                };
                self.guide(now, kind, bytes, owner)
            }
        }
    }

    /// Keeps a packet of an internal host that has mappings here. Otherwise hands it to the next
    /// worker that may have some, and at last to the present owner.
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

    /// Keeps a packet of a protocol without ports if a mapping or a call here expects it, or if no
    /// worker is left to ask. All workers are asked for a call first: a mapping must not take the
    /// packets of another worker's call.
    fn ask_next(
        &mut self,
        now: Timestamp,
        (engine, algs): (&mut Engine, Option<&Algs>),
        (kind, asked): (Kind, u8),
        bytes: &[u8],
    ) -> Way {
        let (workers, asked) = (self.workers(), usize::from(asked));
        let call = algs.and_then(|algs| algs.stage.search_call(bytes));
        // The first worker may be asked twice, before and behind the one that is likely to know.
        let about_call = if call.is_some() { workers + 1 } else { 0 };
        if asked + 1 >= about_call + workers
            || call.is_some_and(|call| call.is_here)
            || asked >= about_call && engine.expects(bytes)
        {
            return self.keep(now, kind, bytes);
        }
        let likely = call.and_then(|call| call.likely).filter(|worker| *worker < workers);
        let next = likely.filter(|worker| asked == 0 && *worker != self.number);
        let next = next.unwrap_or((self.number + 1) % workers);
        self.give(next, kind, OwnerLookup::Portless(asked as u8 + 1), bytes)
    }

    /// Keeps a packet of a protocol without ports. A first fragment comes here once more by way of
    /// its guide, so that later ones follow it.
    fn keep(&mut self, now: Timestamp, kind: Kind, bytes: &[u8]) -> Way {
        match self.partition.guide_of(bytes) {
            None => Way::Here,
            Some(guide) if guide == self.number => self.guide(now, kind, bytes, Some(guide)),
            Some(guide) => self.give(guide, kind, OwnerLookup::Found(self.number as u8), bytes),
        }
    }

    fn guide(&mut self, now: Timestamp, kind: Kind, bytes: &[u8], owner: Option<usize>) -> Way {
        match self.guide.advise(now, kind, bytes, owner) {
            Advice::Wait => Way::Gone,
            Advice::Full => Way::Unguided,
            Advice::Go(owner, waiting) => {
                let way = self.give(owner, kind, OwnerLookup::Settled, bytes);
                if owner == self.number {
                    // These fragments follow the first one by way of this worker itself.
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

    #[inline]
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

    /// Tells all other workers the content of an ARP frame that came in by a link.
    pub(crate) fn tell_arp(&mut self, link: Link, frame: &[u8]) {
        self.exchange.tell_all(Kind::Arp(link), frame);
    }

    /// Tells all other workers an IPv6 packet that concerns them all: a message of Neighbor
    /// Discovery, or the report that a packet is too big for a path.
    pub(crate) fn tell_ipv6(&mut self, link: Link, source: Mac, packet: &[u8]) {
        self.exchange.tell_all(Kind::Told(link, source), packet);
    }

    /// Returns a fragment that waited here and whose first fragment has come here since.
    pub(crate) fn recalled(&mut self) -> Option<(Kind, Vec<u8>)> {
        self.guide.recalled().map(|Waiting { kind, bytes }| (kind, bytes))
    }

    /// Returns a fragment that waited in vain, and whether its owner had no room for it.
    pub(crate) fn given_up(&mut self, now: Timestamp) -> Option<(Kind, usize, bool)> {
        self.guide.given_up(now)
    }

    /// Takes at most `most` packets that others have handed over.
    pub(crate) fn take(&mut self, parcel: impl FnMut(usize, HandedPacket), most: usize) {
        self.exchange.take(parcel, most);
    }

    /// Returns the buffers of packets to their senders.
    pub(crate) fn give_back(&mut self, parcels: impl Iterator<Item = Parcel>) {
        for (from, HandedPacket { buffer, .. }) in parcels {
            self.exchange.give_back(from, buffer);
        }
    }

    /// Wakes the receivers of handed packets; returns the number of packets.
    pub(crate) fn flush(&mut self) -> u64 {
        self.exchange.flush();
        std::mem::take(&mut self.handed_over)
    }

    /// Trades ports with other workers; returns the numbers of ports borrowed and lent.
    pub(crate) fn trade(&mut self, now: Timestamp, engine: &mut Engine) -> (u64, u64) {
        let Trade { borrowed, lent } = self.lender.turn(now, engine, &self.partition);
        (borrowed, lent)
    }

    /// Words of ports that other workers have given to this one, and that are on their way.
    #[cfg(test)]
    pub(crate) fn gifts(&self) -> Vec<(Ipv4Addr, std::ops::Range<usize>)> {
        self.lender.gifts()
    }

    /// Time of the next work without a packet.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.guide.next_deadline()
    }

    /// Announces that the worker is about to sleep. Returns `false` if it must not: something has
    /// come.
    pub(crate) fn falls_asleep(&self) -> bool {
        self.exchange.falls_asleep()
    }

    /// Announces that the worker is awake.
    pub(crate) fn wakes_up(&self) {
        self.exchange.wakes_up();
    }
}
