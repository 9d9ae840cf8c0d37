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

use crate::convert::{DIFFERENCE, Plain6, Refusal};
use crate::hosts::Hosts;
use crate::nat64::Reached;
use crate::numbered::is_short;
use crate::realms::HostKind;
use crate::receivers::receiver;
use crate::softwire::may_ask;
use crate::translator::{Departure, Fate, Translator};
use alloc::vec::Vec;
use core::mem;
use core::net::Ipv4Addr;
use natgate_engine::{
    Direction, DropReason, Engine, Outcome, Packet, Side, Timestamp, Verdict, prefetch,
};
use natgate_wire::{Ipv4, ipv6};

/// Packets whose hosts are fetched together, while the packets before them are converted. More
/// would have to wait for one another.
pub(crate) const GROUP: usize = 8;
/// Packets between the one whose task is told and the one whose bytes are fetched.
const AHEAD: usize = 4;
/// Next header of an IPv4 packet in a tunnel.
const IPV4_IN_IPV6: u8 = 4;
/// Offsets of the addresses in the headers of IPv6 and of IPv4, and of the total length in the
/// latter, bytes.
const SOURCE: usize = 8;
const DESTINATION: usize = 24;
const SENDER: usize = 12;
const TOTAL_LEN: usize = 2;

/// What there is to do with a packet.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// The translator takes it without the engine.
    Translate,
    /// The engine takes it as it is.
    Pass,
    /// A plain packet to NAT64.
    Number(Numbering),
    /// A packet in a tunnel of DS-Lite. The hash finds the host.
    Leave { hash: u64 },
}

/// A plain packet to NAT64 that [`Translator::check`] has nothing against.
#[derive(Clone, Copy, Debug)]
struct Numbering {
    plain: Plain6,
    /// The hash finds the host.
    hash: u64,
    /// Place of the prefix of the destination, and the IPv4 address in it.
    prefix: usize,
    remote: u32,
}

impl Task {
    /// The kind of the packet's sender, if it is a host with a number.
    #[inline(always)]
    fn kind(&self) -> Option<HostKind> {
        match self {
            Self::Number(_) => Some(HostKind::Nat64),
            Self::Leave { .. } => Some(HostKind::Dslite),
            Self::Translate | Self::Pass => None,
        }
    }

    /// Bytes that the engine does not see of a packet; `None`: the engine sees no packet.
    fn unseen(self) -> Option<usize> {
        match self {
            Self::Translate => None,
            Self::Pass => Some(0),
            Self::Number(_) => Some(DIFFERENCE as usize),
            Self::Leave { .. } => Some(ipv6::HEADER_LEN),
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

impl Item {
    /// A packet at a place, with its length, that goes to the engine as it is.
    fn passed((at, len): (usize, usize)) -> Self {
        Self { at, len, sender: None, is_new: false, remote: None, converted: None }
    }
}

/// The conversion of a plain packet to IPv4.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    /// Place of the prefix of the remote address.
    prefix: usize,
    /// The transport checksum as received.
    checksum: u16,
}

/// The working space of a run, which is kept from run to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    tasks: Vec<Task>,
    items: Vec<Item>,
    verdicts: Vec<Verdict>,
    /// Kinds of the hosts that packets go to, and the hashes of their numbers.
    pub(crate) hashes: Vec<Option<(HostKind, u64)>>,
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
        let quick = self.take_first_quick(from, packets, fates);
        let (packets, fates) = (&mut packets[quick..], &mut fates[quick..]);
        if packets.is_empty() {
            return quick;
        }
        let mut run = mem::take(&mut self.run);
        run.begin();
        self.tell_tasks(from, packets, &mut run);
        let count = if run.tasks.is_empty() {
            fates[0] = self.take_next(engine, now, from, &mut packets[0]);
            1
        } else {
            let tasks = mem::take(&mut run.tasks);
            let count = self.convert_run(engine, (now, from), (packets, &tasks), fates, &mut run);
            run.tasks = tasks;
            if !run.items.is_empty() {
                self.finish_run(engine, (now, from), packets, fates, &mut run);
            }
            count
        };
        self.run = run;
        quick + count
    }

    // ---- stage 1 ----

    /// Tells the tasks of the packets of a run; of none, if the first packet must be alone.
    fn tell_tasks(&self, from: Side, packets: &[Packet<'_>], run: &mut Run) {
        for (at, packet) in packets.iter().take(Engine::MAX_BATCH).enumerate() {
            if let Some(packet) = packets.get(at + AHEAD) {
                prefetch(packet.bytes(), DESTINATION);
            }
            let Some(task) = self.task(from, packet) else { return };
            if let Some(unseen) = task.unseen() {
                // The engine counts bytes for all packets together. So hosts of NAT64 and hosts
                // behind tunnels have runs of their own.
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
        if self.may_amend(from, &header) {
            return None;
        }
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
        if let Some(nat64) = &self.nat64 {
            if let Some((prefix, remote)) = nat64.find(destination) {
                let plain = Plain6::read(bytes)?;
                // Softwires come before NAT64.
                let is_nat64s = match &self.softwires {
                    Some(softwires) => softwires.leaves_to_nat64(destination),
                    None => true,
                };
                let is_sure = is_nat64s && self.own_folded.has_nothing_against(&plain);
                return is_sure.then(|| {
                    let hash = nat64.hosts.approach(plain.source);
                    Task::Number(Numbering { plain, hash, prefix, remote: remote.to_bits() })
                });
            }
            // A packet from one of the prefixes turns round: it does not leave its tunnel.
            let source = bytes.get(SOURCE..).and_then(|bytes| bytes.first_chunk());
            if source.is_some_and(|octets| nat64.claims(u128::from_be_bytes(*octets))) {
                return None;
            }
        }
        if self.is_aftr(destination) {
            // The caller takes requests for mappings.
            let is_plain = is_tunneled_whole(bytes) && !may_ask(bytes);
            let hosts = self.tunneled_hosts().filter(|_| is_plain)?;
            let (tunnel, inner) = tunneled_sender(bytes)?;
            return Some(Task::Leave { hash: hosts.approach_behind(tunnel, inner) });
        }
        Some(Task::Translate)
    }

    // ---- stage 2 ----

    /// Fetches the hosts of a group of packets.
    #[inline]
    fn fetch_hosts(&self, tasks: &[Task], group: usize) {
        // Packets of a run that have hosts are of one kind.
        let mut hosts = None;
        for task in tasks.iter().skip(group * GROUP).take(GROUP) {
            let (Task::Number(Numbering { hash, .. }) | Task::Leave { hash }) = task else {
                continue;
            };
            hosts = hosts.or_else(|| self.hosts(task.kind()?));
            if let Some(hosts) = hosts {
                hosts.fetch(*hash);
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
        (packets, tasks): (&mut [Packet<'_>], &[Task]),
        fates: &mut [Fate],
        run: &mut Run,
    ) -> usize {
        let is_quick = self.has_quick_way();
        self.fetch_hosts(tasks, 0);
        for (at, task) in tasks.iter().enumerate() {
            if at.is_multiple_of(GROUP) {
                self.fetch_hosts(tasks, at / GROUP + 1);
            }
            let packet = &mut packets[at];
            let place = (at, packet.len());
            // Items and fates are written where they stay: to copy one takes long.
            let refused = match task {
                Task::Translate => {
                    // The first packet could not go the quick way.
                    if is_quick && at > 0 && self.take_quick(from, packet, &mut fates[at]) {
                        continue;
                    }
                    fates[at] = self.take_next(engine, now, from, packet);
                    if self.has_own() {
                        return at + 1;
                    }
                    continue;
                }
                Task::Pass => {
                    run.items.push(Item::passed(place));
                    continue;
                }
                Task::Number(numbering) => self.number(now, packet, (at, numbering), run),
                // Errors about the packets of a run go into the tunnels that they came from.
                Task::Leave { .. } if !run.items.is_empty() && self.moves_tunnel(now, packet) => {
                    return at;
                }
                Task::Leave { hash } => self.leave_tunnel(now, packet, (place, *hash), run),
            };
            let Err((refusal, len)) = refused else { continue };
            let Some(kind) = task.kind() else { continue };
            if run.has_new && is_short(refusal.reason) {
                self.put_off(kind);
                return at;
            }
            fates[at] = self.refuse_sender(now, kind, (packet, len), refusal);
            if self.has_own() {
                return at + 1;
            }
        }
        tasks.len()
    }

    /// Gives a plain packet the number of its host and IPv4 headers. The error has the length that
    /// a refused packet is counted with.
    #[inline]
    fn number(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        (at, numbering): (usize, &Numbering),
        run: &mut Run,
    ) -> Result<(), (Refusal, usize)> {
        let Numbering { plain, hash, prefix, remote } = numbering;
        packet.truncate(plain.len());
        let (source, len) = (plain.source, packet.len());
        let refuse = |reason: DropReason| (Refusal::silent(reason), len);
        let Some(nat64) = &mut self.nat64 else { return Err(refuse(DropReason::NoRoute)) };
        //= rfc6146#section-3.5-loop
        //= rfc6146#section-5.4-loop
        if nat64.claims(source) {
            return Err(refuse(DropReason::SpoofedSource));
        }
        if !nat64.is_subscriber(source) {
            return Err(refuse(DropReason::NotSubscriber));
        }
        if plain.hop_limit <= 1 {
            crate::forward::check_hop(packet.bytes()).map_err(|refusal| (refusal, len))?;
        }
        if !nat64.may_stand(*prefix, *remote) {
            return Err(refuse(DropReason::NotGlobal));
        }
        if !nat64.may_note(source, Reached { remote: *remote, prefix: *prefix }) {
            return Err(refuse(DropReason::SessionTableFull));
        }
        let number = nat64.hosts.intern_approached(source, *hash, now.0).map_err(refuse)?;
        let is_new = nat64.hosts.is_new();
        run.has_new |= is_new;
        run.items.push(Item {
            at,
            len,
            sender: Some(number),
            is_new,
            remote: Some(*remote),
            converted: Some(Conversion {
                prefix: *prefix,
                checksum: plain.checksum(packet.bytes()),
            }),
        });
        nat64.convert_plain(packet, plain, (number, *remote));
        packet.set_realm(nat64.realm);
        Ok(())
    }

    /// Takes a packet out of its tunnel, and gives it the number of its host. The error has the
    /// length that a refused packet is counted with.
    fn leave_tunnel(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        ((at, received), hash): ((usize, usize), u64),
        run: &mut Run,
    ) -> Result<(), (Refusal, usize)> {
        if let Some((number, len)) = self.leave_tunnel_quickly(now, packet, hash) {
            let remote = receiver(packet.bytes());
            let sender = Some(number);
            run.items.push(Item { at, len, sender, is_new: false, remote, converted: None });
            return Ok(());
        }
        self.check(packet).map_err(|refusal| (refusal, received))?;
        let len = packet.len();
        let sender = self.number_tunneled(now, packet);
        let sender = sender.map_err(|reason| (Refusal::silent(reason), len))?;
        let is_new = sender.is_some() && self.tunneled_hosts().is_some_and(Hosts::is_new);
        run.has_new |= is_new;
        let sender = sender.map(Ipv4Addr::to_bits);
        let remote = receiver(packet.bytes());
        run.items.push(Item { at, len, sender, is_new, remote, converted: None });
        Ok(())
    }

    /// Gives the host that was refused last another chance in the next run: new hosts of this one
    /// take the room. The engine may refuse them, and then there is room.
    #[cold]
    fn put_off(&mut self, kind: HostKind) {
        if let Some(hosts) = self.hosts_mut(kind) {
            hosts.take_refusal_back();
        }
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
        let Run { tasks, items, verdicts, hashes, unseen, has_new } = run;
        verdicts.clear();
        verdicts.resize(items.len(), Verdict::Held);
        let before = engine.counters().packets;
        process(engine, (now, from), packets, items, verdicts);
        let unseen = unseen.unwrap_or_default();
        self.add_bytes(&before, engine, unseen);
        let mut is_refused = false;
        // Few packets turn round.
        hashes.clear();
        if verdicts.contains(&Verdict::Forward(Side::Inside)) {
            let both = items.iter().zip(&*verdicts);
            let both = both.map(|(item, verdict)| (&packets[item.at], *verdict));
            self.approach_receivers(both, hashes);
        }
        for (place, (item, verdict)) in items.iter().zip(&*verdicts).enumerate() {
            self.fetch_receivers(place, hashes);
            let packet = &mut packets[item.at];
            // The engine cuts off bytes behind a packet.
            let len = item.len.min(packet.len() + unseen);
            is_refused |= matches!(verdict, Verdict::Drop(_));
            if let (Some(converted), Task::Number(numbering)) = (&item.converted, &tasks[item.at]) {
                self.settle_conversion(packet, *verdict, item, (converted, &numbering.plain));
            }
            if *verdict != Verdict::Forward(Side::Outside) {
                fates[item.at] = self.departure(from, packet, *verdict, len);
                continue;
            }
            // Most packets. The fate is written where it stays.
            let counted = (Direction::forwarded(from, Side::Outside), Outcome::Forwarded, len);
            let (side, realm) = (Side::Outside, packet.realm());
            fates[item.at] =
                Fate::Send(Departure { side, realm, answers: false, cut: None, counted });
        }
        if *has_new && is_refused {
            // A hairpinned packet that the receiver's half refuses has made a mapping.
            let (way, dropped) = (Direction::Hairpin as usize, Outcome::Dropped as usize);
            let are_mapped = engine.counters().packets[way][dropped] != before[way][dropped];
            let kind = items.iter().find_map(|item| tasks[item.at].kind());
            self.turn_away(kind, (items, verdicts), are_mapped);
        }
    }

    /// Notes the prefix of a packet to NAT64, or the packet itself if the engine has refused it.
    #[inline]
    fn settle_conversion(
        &mut self,
        packet: &mut Packet<'_>,
        verdict: Verdict,
        item: &Item,
        (converted, plain): (&Conversion, &Plain6),
    ) {
        let Some(nat64) = &mut self.nat64 else { return };
        if let (Some(sender), Some(remote)) = (item.sender, item.remote) {
            let reached = Reached { remote, prefix: converted.prefix };
            nat64.note_prefix(sender, reached, verdict);
        }
        if let Verdict::Drop(_) = verdict {
            let head = packet.bytes().first_chunk().copied();
            plain.restore(packet, converted.checksum);
            nat64.quotes.add(packet.bytes(), head);
        }
    }

    /// Notes the new hosts, of the kind that the run has, of which the engine has refused all
    /// packets. `are_mapped`: refused packets to external addresses have made mappings, as far as
    /// is known.
    #[cold]
    fn turn_away(
        &mut self,
        kind: Option<HostKind>,
        (items, verdicts): (&[Item], &[Verdict]),
        are_mapped: bool,
    ) {
        let is_refused = |(item, verdict): (&Item, &Verdict)| {
            let is_mapped = are_mapped && item.remote.is_some_and(|it| self.is_engines(it));
            matches!(verdict, Verdict::Drop(_)) && !is_mapped
        };
        let both = items.iter().zip(verdicts);
        let refused: Vec<bool> = both.map(is_refused).collect();
        let Some(hosts) = kind.and_then(|kind| self.hosts_mut(kind)) else { return };
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

/// The tunnel's end and the inner source of a packet in a tunnel.
#[inline]
fn tunneled_sender(bytes: &[u8]) -> Option<(u128, u32)> {
    let tunnel = bytes.get(SOURCE..)?.first_chunk()?;
    let inner = bytes.get(ipv6::HEADER_LEN + SENDER..)?.first_chunk()?;
    Some((u128::from_be_bytes(*tunnel), u32::from_be_bytes(*inner)))
}
