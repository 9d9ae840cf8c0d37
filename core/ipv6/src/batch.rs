//! A run of packets on its way through the translator. docs/design/families.md has the reasons.
//!
//! A run is the beginning of a batch: the packets, in order, that may be taken together. It goes
//! through four stages:
//!
//! 1. tell each packet's task, and fetch the place of its host in the index;
//! 2. fetch the hosts;
//! 3. number the senders and convert their packets, or translate packets that need no engine;
//! 4. give the converted packets to the engine together, and settle what it decided.
//!
//! [`Translator::take`] is the same for one packet.

use crate::convert::{DIFFERENCE, Overwritten, Plain6, Refusal};
use crate::hosts::Hosts;
use crate::translator::{Fate, Translator};
use alloc::vec::Vec;
use core::mem;
use core::net::Ipv4Addr;
use natgate_engine::{Direction, DropReason, Engine, Outcome, Packet, Side, Timestamp, Verdict};
use natgate_wire::{Ipv4, ipv6};

/// Next header of an IPv4 packet in a tunnel.
const IPV4_IN_IPV6: u8 = 4;
/// Offsets of the destination in the headers of IPv6 and of IPv4, and of the total length in the
/// latter, bytes.
const DESTINATION: usize = 24;
const RECEIVER: usize = 16;
const TOTAL_LEN: usize = 2;

/// What there is to do with a packet.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// The translator takes it without the engine.
    Translate,
    /// The engine takes it as it is.
    Pass,
    /// A plain packet to NAT64. The hash finds its host.
    Number { hash: u64 },
    /// A packet in a tunnel of DS-Lite.
    Leave,
}

impl Task {
    /// Bytes that the engine does not see of a packet; `None`: the engine sees no packet.
    fn unseen(self) -> Option<usize> {
        match self {
            Self::Translate => None,
            Self::Pass => Some(0),
            Self::Number { .. } => Some(DIFFERENCE as usize),
            Self::Leave => Some(ipv6::HEADER_LEN),
        }
    }
}

/// A packet for the engine.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// Place in the run.
    at: usize,
    /// Length as received, bytes.
    len: usize,
    /// The number of the sender, if it has one.
    sender: Option<u32>,
    /// True if the sender is a new host.
    is_new: bool,
    /// The destination, if the sender has a number.
    remote: Option<u32>,
    /// What NAT64 did.
    converted: Option<Conversion>,
}

/// The conversion of a plain packet to IPv4.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    /// Place of the prefix of the remote address.
    prefix: usize,
    overwritten: Overwritten,
}

/// The working space of a run, which is kept from run to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    tasks: Vec<Task>,
    items: Vec<Item>,
    verdicts: Vec<Verdict>,
    /// Bytes that the engine does not see of each packet.
    unseen: Option<usize>,
    /// True if a new host has got a number.
    has_new: bool,
}

impl Run {
    fn begin(&mut self) {
        self.tasks.clear();
        self.items.clear();
        self.unseen = None;
        self.has_new = false;
    }
}

/// What became of a packet in the third stage.
enum Step {
    /// The engine decides.
    Wait(Item),
    Done(Fate),
    /// The packet belongs to the next run.
    Next,
}

/// Time and side of a run.
type Moment = (Timestamp, Side);

impl Translator {
    /// Takes the first packets of a batch that came in on a side, as [`Translator::take`] takes
    /// each, and returns how many: at least one, if there are any. `fates` gets the fate of each.
    /// Send these packets, poll engine and translator for events and packets, and call
    /// [`Translator::sweep`]; then take the rest.
    ///
    /// # Panics
    /// When there are more packets than fates.
    pub fn take_some(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        from: Side,
        packets: &mut [Packet<'_>],
        fates: &mut [Fate],
    ) -> usize {
        assert!(packets.len() <= fates.len(), "each packet has a fate");
        self.forget_last();
        if packets.is_empty() {
            return 0;
        }
        let mut run = mem::take(&mut self.run);
        run.begin();
        self.tell_tasks(from, packets, &mut run);
        let count = if run.tasks.is_empty() {
            fates[0] = self.take_next(engine, now, from, &mut packets[0]);
            1
        } else {
            self.fetch_hosts(&run);
            let count = self.convert_run(engine, (now, from), packets, fates, &mut run);
            if !run.items.is_empty() {
                self.finish_run(engine, (now, from), packets, fates, &mut run);
            }
            count
        };
        self.run = run;
        count
    }

    // ---- stage 1 ----

    /// Tells the tasks of the packets of a run; of none, if the first packet must be alone.
    fn tell_tasks(&self, from: Side, packets: &[Packet<'_>], run: &mut Run) {
        for packet in packets.iter().take(Engine::MAX_BATCH) {
            let Some(task) = self.task(from, packet) else { return };
            if let Some(unseen) = task.unseen() {
                // The engine counts bytes for all packets together.
                if run.unseen.is_some_and(|others| others != unseen) {
                    return;
                }
                run.unseen = Some(unseen);
            }
            run.tasks.push(task);
        }
    }

    /// The task of a packet; `None`: the packet must be alone.
    #[inline]
    fn task(&self, from: Side, packet: &Packet<'_>) -> Option<Task> {
        let bytes = packet.bytes();
        if bytes.first().is_some_and(|first| first >> 4 == 6) {
            return match from {
                Side::Inside => self.task_ipv6(bytes),
                Side::Outside => Some(Task::Translate),
            };
        }
        let Ok(header) = Ipv4::new_checked(bytes) else { return Some(Task::Pass) };
        let ends = (header.source(), header.destination());
        Some(match self.claims_ipv4(from, packet.realm(), ends) {
            true => Task::Translate,
            false => Task::Pass,
        })
    }

    /// The task of an IPv6 packet from inside.
    #[inline]
    fn task_ipv6(&self, bytes: &[u8]) -> Option<Task> {
        let destination = bytes.get(DESTINATION..).and_then(|bytes| bytes.first_chunk());
        let Some(destination) = destination.map(|octets| u128::from_be_bytes(*octets)) else {
            return Some(Task::Translate);
        };
        if let Some(nat64) = &self.nat64
            && nat64.claims(destination)
        {
            let plain = Plain6::read(bytes)?;
            let is_own = self.own_addresses().contains(&Some(destination));
            // Softwires come before NAT64.
            let is_sure = self.softwires.is_none() && !is_own;
            return is_sure.then(|| Task::Number { hash: nat64.hosts.approach(plain.source) });
        }
        if self.is_aftr(destination) {
            return is_tunneled_whole(bytes).then_some(Task::Leave);
        }
        Some(Task::Translate)
    }

    // ---- stage 2 ----

    fn fetch_hosts(&self, run: &Run) {
        let Some(nat64) = &self.nat64 else { return };
        for task in &run.tasks {
            if let Task::Number { hash } = task {
                nat64.hosts.fetch(*hash);
            }
        }
    }

    // ---- stage 3 ----

    /// Does the tasks of a run, and notes the packets for the engine. Returns the number of packets
    /// that belong to the run.
    fn convert_run(
        &mut self,
        engine: &mut Engine,
        (now, from): Moment,
        packets: &mut [Packet<'_>],
        fates: &mut [Fate],
        run: &mut Run,
    ) -> usize {
        for at in 0..run.tasks.len() {
            let packet = &mut packets[at];
            let step = match run.tasks[at] {
                Task::Translate => Step::Done(self.take_next(engine, now, from, packet)),
                Task::Pass => {
                    let len = packet.len();
                    Step::Wait(Item {
                        at,
                        len,
                        sender: None,
                        is_new: false,
                        remote: None,
                        converted: None,
                    })
                }
                Task::Number { hash } => self.number(now, packet, (at, hash), run.has_new),
                Task::Leave => self.leave_tunnel(now, packet, at, run.has_new),
            };
            match step {
                Step::Wait(item) => {
                    run.has_new |= item.is_new;
                    run.items.push(item);
                }
                Step::Done(fate) => {
                    fates[at] = fate;
                    if self.has_own() {
                        return at + 1;
                    }
                }
                Step::Next => return at,
            }
        }
        run.tasks.len()
    }

    /// Gives a plain packet the number of its host and IPv4 headers. `has_new`: a new host has got
    /// a number in this run.
    #[inline]
    fn number(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        (at, hash): (usize, u64),
        has_new: bool,
    ) -> Step {
        let mut len = packet.len();
        let numbered = self.check(packet).and_then(|ends| {
            len = packet.len();
            self.convert_plain(now, packet, (ends.0, hash))
        });
        match numbered {
            Ok((is_new, (number, remote), converted)) => {
                packet.set_realm(self.realm);
                let (sender, remote, converted) = (Some(number), Some(remote), Some(converted));
                Step::Wait(Item { at, len, sender, is_new, remote, converted })
            }
            Err(Refusal { reason, .. }) if has_new && is_short(reason) => self.put_off(),
            Err(refusal) => Step::Done(self.refuse(now, Side::Inside, packet, len, refusal)),
        }
    }

    /// Converts a plain packet from inside to IPv4. Returns true if its sender is new, and the
    /// packet's ends.
    #[inline]
    fn convert_plain(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        (source, hash): (u128, u64),
    ) -> Result<(bool, (u32, u32), Conversion), Refusal> {
        let Some(nat64) = &mut self.nat64 else { return Err(DropReason::NoRoute.into()) };
        let Some(plain) = Plain6::read(packet.bytes()) else {
            return Err(DropReason::BadLength.into());
        };
        //= rfc6146#section-3.5-loop
        //= rfc6146#section-5.4-loop
        if nat64.claims(source) {
            return Err(DropReason::SpoofedSource.into());
        }
        if !nat64.is_subscriber(source) {
            return Err(DropReason::NotSubscriber.into());
        }
        crate::forward::check_hop(packet.bytes())?;
        let (prefix, remote) = nat64.extract(plain.destination)?;
        let number = nat64.hosts.intern_approached(source, hash, now.0)?;
        let overwritten = plain.overwritten(packet.bytes());
        nat64.convert_plain(packet, &plain, (number, remote));
        Ok((nat64.hosts.is_new(), (number, remote), Conversion { prefix, overwritten }))
    }

    /// Takes a packet out of its tunnel, and gives it the number of its host.
    fn leave_tunnel(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        at: usize,
        has_new: bool,
    ) -> Step {
        let received = packet.len();
        if let Err(refusal) = self.check(packet) {
            return Step::Done(self.refuse(now, Side::Inside, packet, received, refusal));
        }
        let len = packet.len();
        match self.number_tunneled(now, packet) {
            Ok(sender) => {
                packet.set_realm(self.realm);
                let is_new = sender.is_some() && self.hosts().is_some_and(Hosts::is_new);
                let sender = sender.map(Ipv4Addr::to_bits);
                let remote = receiver(packet.bytes());
                Step::Wait(Item { at, len, sender, is_new, remote, converted: None })
            }
            Err(reason) if has_new && is_short(reason) => self.put_off(),
            Err(reason) => {
                self.count_drop(Direction::Outbound, reason, len);
                Step::Done(Fate::Nothing)
            }
        }
    }

    /// Leaves a packet to the next run, because new hosts of this one take the room. The engine may
    /// refuse them, and then there is room.
    #[cold]
    fn put_off(&mut self) -> Step {
        if let Some(hosts) = self.hosts_mut() {
            hosts.take_refusal_back();
        }
        Step::Next
    }

    // ---- stage 4 ----

    /// Has the engine take the packets that were noted, and settles what it has decided.
    fn finish_run(
        &mut self,
        engine: &mut Engine,
        (now, from): Moment,
        packets: &mut [Packet<'_>],
        fates: &mut [Fate],
        run: &mut Run,
    ) {
        let Run { items, verdicts, unseen, has_new, .. } = run;
        verdicts.clear();
        verdicts.resize(items.len(), Verdict::Held);
        let before = engine.counters().packets;
        process(engine, (now, from), packets, items, verdicts);
        let unseen = unseen.unwrap_or_default();
        self.add_bytes(&before, engine, unseen);
        self.fetch_receivers(packets, items, verdicts);
        let mut is_refused = false;
        for (item, verdict) in items.iter().zip(&*verdicts) {
            let packet = &mut packets[item.at];
            // The engine cuts off bytes behind a packet.
            let len = item.len.min(packet.len() + unseen);
            is_refused |= matches!(verdict, Verdict::Drop(_));
            if let Some(converted) = &item.converted {
                self.settle_conversion(packet, *verdict, item, converted);
            }
            fates[item.at] = self.departure(from, packet, *verdict, len);
        }
        if *has_new && is_refused {
            // A hairpinned packet that the receiver's half refuses has made a mapping.
            let (way, dropped) = (Direction::Hairpin as usize, Outcome::Dropped as usize);
            let are_mapped = engine.counters().packets[way][dropped] != before[way][dropped];
            self.turn_away(items, verdicts, are_mapped);
        }
    }

    /// Notes the prefix of a packet to NAT64, and the packet itself if the engine has refused it.
    #[inline]
    fn settle_conversion(
        &mut self,
        packet: &mut Packet<'_>,
        verdict: Verdict,
        item: &Item,
        converted: &Conversion,
    ) {
        let Some(nat64) = &mut self.nat64 else { return };
        if let (Some(sender), Some(remote)) = (item.sender, item.remote) {
            nat64.note_prefix((sender, remote), converted.prefix);
        }
        if let Verdict::Drop(_) = verdict {
            let head = packet.bytes().first_chunk().copied();
            converted.overwritten.restore(packet);
            nat64.quotes.add(packet.bytes(), head);
        }
    }

    /// Fetches the hosts that get packets of the engine's.
    fn fetch_receivers(&self, packets: &[Packet<'_>], items: &[Item], verdicts: &[Verdict]) {
        let Some(realm) = self.realm() else { return };
        let both = items.iter().zip(verdicts);
        let packets = both.filter_map(|(item, verdict)| {
            let packet = &packets[item.at];
            let is_to_host = *verdict == Verdict::Forward(Side::Inside) && packet.realm() == realm;
            is_to_host.then(|| packet.bytes())
        });
        self.expect(packets);
    }

    /// Starts to fetch the hosts that packets of the engine's go to.
    /// [`Translator::convert_to_host`] needs them.
    #[inline]
    pub fn expect<'p>(&self, packets: impl Iterator<Item = &'p [u8]> + Clone) {
        let Some(hosts) = self.hosts() else { return };
        let receivers = packets.filter_map(receiver);
        receivers.clone().for_each(|number| hosts.approach_number(number));
        receivers.for_each(|number| hosts.fetch_number(number));
    }

    /// Notes the new hosts of which the engine has refused all packets. `are_mapped`: refused
    /// packets to external addresses have made mappings, as far as is known.
    #[cold]
    fn turn_away(&mut self, items: &[Item], verdicts: &[Verdict], are_mapped: bool) {
        let is_refused = |(item, verdict): (&Item, &Verdict)| {
            let is_mapped = are_mapped && item.remote.is_some_and(|it| self.is_engines(it));
            matches!(verdict, Verdict::Drop(_)) && !is_mapped
        };
        let both = items.iter().zip(verdicts);
        let refused: Vec<bool> = both.map(is_refused).collect();
        let Some(hosts) = self.hosts_mut() else { return };
        for new in items.iter().filter(|item| item.is_new) {
            let mut own = items.iter().zip(&refused).filter(|(item, _)| item.sender == new.sender);
            if let (true, Some(number)) = (own.all(|(_, refused)| *refused), new.sender) {
                hosts.turn_away(number);
            }
        }
    }
}

/// Has the engine take packets of a run together.
fn process(
    engine: &mut Engine,
    (now, from): Moment,
    packets: &mut [Packet<'_>],
    items: &[Item],
    verdicts: &mut [Verdict],
) {
    let (Some(first), Some(last)) = (items.first(), items.last()) else { return };
    if last.at - first.at + 1 == items.len() {
        return engine.process(now, from, &mut packets[first.at..=last.at], verdicts);
    }
    // Packets that need no engine stand between.
    let mut all: Vec<Packet<'_>> =
        items.iter().map(|item| mem::take(&mut packets[item.at])).collect();
    engine.process(now, from, &mut all, verdicts);
    for (item, packet) in items.iter().zip(all) {
        packets[item.at] = packet;
    }
}

/// True if an IPv6 packet has an IPv4 packet behind its fixed header, and nothing else.
fn is_tunneled_whole(bytes: &[u8]) -> bool {
    let inner = bytes.get(ipv6::HEADER_LEN + TOTAL_LEN..).and_then(|bytes| bytes.first_chunk());
    let outer: Option<&[u8; 2]> = bytes.get(4..).and_then(|bytes| bytes.first_chunk());
    bytes.get(ipv6::NEXT_HEADER) == Some(&IPV4_IN_IPV6) && inner.is_some() && inner == outer
}

/// True if a host gets no number for want of room.
fn is_short(reason: DropReason) -> bool {
    matches!(reason, DropReason::MappingTableFull | DropReason::PortQuota)
}

/// The destination of an IPv4 packet.
#[inline]
fn receiver(packet: &[u8]) -> Option<u32> {
    let destination = packet.get(RECEIVER..)?.first_chunk();
    destination.map(|octets| u32::from_be_bytes(*octets))
}
