//! Copies of packets that match a filter, before and after translation, for observers outside the
//! data plane.
//!
//! The worker asks once a batch whether any capture runs. If one does, each packet is copied as it
//! came. After translation, when both forms of the packet are known, each [`Tap`] decides whether
//! the packet matches, and writes both forms into its ring. Packets of the gateway's own, and
//! fragments that waited for their first fragment, leave outside a batch and are matched alone. The
//! ring is bounded: a packet without room is counted, and the reader learns how many packets are
//! missing before which. A worker never waits, and neither allocates nor frees memory: the reader
//! of the capture ([`crate::capture::Capture`]) makes the taps and gets them back.

mod face;

pub use face::prefix;

use crate::limits::MOST_CAPTURES;
use arrayvec::ArrayVec;
use face::{End, Face, is_fragment, is_in};
use natgate_engine::{DropReason, Side, Timestamp, Verdict};
use natgate_io::BATCH;
use natgate_ipv6::Prefix6;
use rtrb::{Consumer, Producer};

/// Most bytes of a packet that are copied.
pub const SNAPLEN: usize = 9216;

/// Selection of the packets to capture. A field that is `None` admits every packet. Addresses are
/// those of [`prefix`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Internal address; that of a host behind a tunnel, or of the tunnel's end.
    pub subscriber: Option<Prefix6>,
    /// Remote address, and port.
    pub remote: Option<(Prefix6, Option<u16>)>,
    /// External address, and port.
    pub external: Option<(Prefix6, Option<u16>)>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// The port of any end, or the identifier of a query.
    pub port: Option<u16>,
}

/// Most ends of a packet before and after translation that are of one kind.
type Ends = ArrayVec<End, 4>;

impl Filter {
    /// True if a packet that came from a side matches. `after` is the packet after translation, if
    /// it was not dropped. Between families, and out of or into a tunnel, either form matches.
    fn matches(&self, from: Side, verdict: Verdict, before: &Face, after: Option<&Face>) -> bool {
        let (mut internal, mut remote, mut external) = (Ends::new(), Ends::new(), Ends::new());
        let changed = after.filter(|after| !before.is_alike(after));
        match from {
            Side::Inside => internal.extend(before.senders()),
            Side::Outside => {
                remote.push(before.source);
                external.push(before.destination);
                remote.extend(changed.map(|after| after.source));
            }
        }
        match (from, verdict) {
            (Side::Inside, Verdict::Forward(Side::Inside) | Verdict::HandOver) => {
                external.push(before.destination);
                external.extend(after.map(|after| after.source));
            }
            (Side::Inside, _) => {
                remote.push(before.destination);
                external.extend(after.map(|after| after.source));
                remote.extend(changed.map(|after| after.destination));
            }
            (Side::Outside, _) => {}
        }
        if verdict == Verdict::Forward(Side::Inside) {
            internal.extend(after.into_iter().flat_map(Face::receivers));
        }
        self.admits(&internal, &remote, &external, [Some(before), after])
            && self.protocol.is_none_or(|protocol| before.protocol == protocol)
    }

    /// True if a packet that leaves by a side matches. An ICMP error matches also if the packet
    /// that it quotes does: the receiver of the error has sent that packet.
    fn matches_leaving(&self, to: Side, face: &Face, about: Option<&Face>) -> bool {
        let (mut internal, mut remote, mut external) = (Ends::new(), Ends::new(), Ends::new());
        match (to, about) {
            (Side::Inside, None) => {
                internal.extend(face.receivers());
                remote.push(face.source);
            }
            (Side::Outside, None) => {
                external.push(face.source);
                remote.push(face.destination);
            }
            (Side::Inside, Some(about)) => {
                internal.extend(face.receivers().chain(about.senders()));
                remote.push(about.destination);
                // The quoted packet may have been for another subscriber.
                external.push(about.destination);
            }
            (Side::Outside, Some(about)) => {
                remote.extend([face.destination, about.source]);
                external.push(about.destination);
            }
        }
        let mut protocols = [Some(face), about].into_iter().flatten();
        self.admits(&internal, &remote, &external, [Some(face), about])
            && self.protocol.is_none_or(|protocol| protocols.any(|face| face.protocol == protocol))
    }

    /// True if the ends match the filter, and one of them has the wanted port.
    fn admits(
        &self,
        internal: &[End],
        remote: &[End],
        external: &[End],
        faces: [Option<&Face>; 2],
    ) -> bool {
        is_in(internal, self.subscriber.map(|prefix| (prefix, None)))
            && is_in(remote, self.remote)
            && is_in(external, self.external)
            && self.port.is_none_or(|port| {
                let mut faces = faces.into_iter().flatten();
                faces.any(|face| [face.source.1, face.destination.1].contains(&Some(port)))
            })
    }
}

/// Time and origin of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    pub(crate) from: Side,
    /// True for hairpin packets from another worker, which has translated the sender's endpoint and
    /// has captured the packets as they came.
    pub(crate) turned: bool,
}

/// Stage at which a packet is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The packet came in.
    Came,
    /// The packet leaves, translated.
    Left,
    /// The packet leaves; natgate has made it.
    Made,
    /// The packet leaves, translated: a fragment that waited for the first of its datagram.
    Released,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Came, Self::Left, Self::Made, Self::Released];

    /// True if the packet leaves.
    pub fn leaves(self) -> bool {
        self != Self::Came
    }
}

/// Header before a packet's bytes in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Bytes in the ring, and length of the packet, bytes.
    pub(crate) copied: u32,
    pub(crate) len: u32,
    pub(crate) time: u64,
    /// Packets that have found no room in this ring so far.
    pub(crate) missed: u64,
    pub(crate) side: u8,
    /// Number of the [`Way`].
    pub(crate) way: u8,
    pub(crate) verdict: u8,
    pub(crate) reason: u8,
}

impl Head {
    const LEN: usize = 28;

    fn write(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.copied.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.time.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.missed.to_le_bytes());
        bytes[24..].copy_from_slice(&[self.side, self.way, self.verdict, self.reason]);
        bytes
    }

    fn read(bytes: &[u8; Self::LEN]) -> Self {
        let long = |at: usize| {
            let mut all = [0; 8];
            all.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(all)
        };
        let first = long(0);
        let [side, way, verdict, reason] = [bytes[24], bytes[25], bytes[26], bytes[27]];
        Self {
            copied: first as u32,
            len: (first >> 32) as u32,
            time: long(8),
            missed: long(16),
            side,
            way,
            verdict,
            reason,
        }
    }
}

fn code_of(verdict: Verdict) -> (u8, u8) {
    match verdict {
        Verdict::Forward(Side::Inside) => (0, 0),
        Verdict::Forward(Side::Outside) => (1, 0),
        Verdict::Reply(Side::Inside) => (2, 0),
        Verdict::Reply(Side::Outside) => (3, 0),
        Verdict::HandOver => (4, 0),
        Verdict::Held => (5, 0),
        Verdict::Drop(reason) => (6, reason as u8),
    }
}

pub(crate) fn verdict_of(code: u8, reason: u8) -> Verdict {
    match code {
        0 => Verdict::Forward(Side::Inside),
        1 => Verdict::Forward(Side::Outside),
        2 => Verdict::Reply(Side::Inside),
        3 => Verdict::Reply(Side::Outside),
        4 => Verdict::HandOver,
        5 => Verdict::Held,
        _ => Verdict::Drop(DropReason::ALL[usize::from(reason) % DropReason::ALL.len()]),
    }
}

/// A worker's end of one capture.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) number: u64,
    pub(crate) filter: Filter,
    pub(crate) ring: Producer<u8>,
    pub(crate) missed: u64,
    /// Room for a batch as it came.
    pub(crate) scratch: Vec<u8>,
}

impl Tap {
    fn put(&mut self, head: Head, bytes: &[u8]) {
        let copied = bytes.len().min(SNAPLEN);
        let head = Head { copied: copied as u32, missed: self.missed, ..head }.write();
        let Ok(mut chunk) = self.ring.write_chunk(Head::LEN + copied) else {
            self.missed += 1;
            return;
        };
        let (first, second) = chunk.as_mut_slices();
        let places = first.iter_mut().chain(second);
        places.zip(head.iter().chain(&bytes[..copied])).for_each(|(place, byte)| *place = *byte);
        chunk.commit_all();
    }
}

/// Captures of one worker.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    taps: ArrayVec<Box<Tap>, MOST_CAPTURES>,
    /// For each packet of the batch: offset in the first tap's scratch, bytes copied, and length.
    places: ArrayVec<(usize, usize, usize), BATCH>,
}

impl Captures {
    /// True if any capture runs.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        !self.taps.is_empty()
    }

    /// Starts a capture; returns the tap if there is no room for it.
    pub(crate) fn begin(&mut self, tap: Box<Tap>) -> Option<Box<Tap>> {
        self.taps.try_push(tap).err().map(|full| full.element())
    }

    pub(crate) fn end(&mut self, number: u64) -> Option<Box<Tap>> {
        let place = self.taps.iter().position(|tap| tap.number == number)?;
        Some(self.taps.remove(place))
    }

    /// Copies a batch as it came.
    #[cold]
    pub(crate) fn before<'p>(&mut self, packets: impl Iterator<Item = (&'p [u8], u16)>) {
        self.places.clear();
        let Some(first) = self.taps.first_mut() else { return };
        let mut end = 0;
        for (bytes, _) in packets {
            let copied = bytes.len().min(SNAPLEN);
            first.scratch[end..end + copied].copy_from_slice(&bytes[..copied]);
            self.places.push((end, copied, bytes.len()));
            end += copied;
        }
    }

    /// Writes the batch's matching packets, now that their verdicts are known.
    #[cold]
    pub(crate) fn after<'p>(
        &mut self,
        moment: Moment,
        fated: impl Iterator<Item = (&'p [u8], Verdict)>,
    ) {
        let Some(first) = self.taps.first_mut() else { return };
        let scratch = std::mem::take(&mut first.scratch);
        for ((start, copied, len), (bytes, verdict)) in self.places.drain(..).zip(fated) {
            let before = &scratch[start..start + copied];
            for tap in &mut self.taps {
                tap.watch(moment, (before, len), bytes, verdict);
            }
        }
        if let Some(first) = self.taps.first_mut() {
            first.scratch = scratch;
        }
    }

    /// Writes a matching packet that leaves outside a batch: one of the gateway's own, or a
    /// fragment that waited.
    #[cold]
    pub(crate) fn leaving(&mut self, now: Timestamp, side: Side, bytes: &[u8]) {
        let Some(face) = Face::of(bytes) else { return };
        let about = Face::quoted(bytes);
        // Natgate makes no fragments: its own packets are short.
        let way = if is_fragment(bytes) { Way::Released } else { Way::Made };
        let (verdict, reason) = code_of(Verdict::Forward(side));
        let (len, time) = (bytes.len() as u32, now.0);
        let (side_code, way) = (side as u8, way as u8);
        let head = Head { copied: 0, len, time, missed: 0, side: side_code, way, verdict, reason };
        for tap in &mut self.taps {
            if tap.filter.matches_leaving(side, &face, about.as_ref()) {
                tap.put(head, bytes);
            }
        }
    }
}

impl Tap {
    fn watch(
        &mut self,
        moment: Moment,
        (before, len): (&[u8], usize),
        after: &[u8],
        verdict: Verdict,
    ) {
        let Moment { now, from, turned } = moment;
        let leaves = match verdict {
            Verdict::Forward(side) | Verdict::Reply(side) => Some(side),
            Verdict::HandOver | Verdict::Held | Verdict::Drop(_) => None,
        };
        let is_changed = leaves.is_some() || verdict == Verdict::HandOver;
        let faces = (Face::of(before), is_changed.then(|| Face::of(after)).flatten());
        let matches = match &faces {
            (Some(face), after) => self.filter.matches(from, verdict, face, after.as_ref()),
            // A packet that cannot be read has no ends.
            (None, _) => self.filter == Filter::default(),
        };
        if !matches {
            return;
        }
        let (verdict, reason) = code_of(verdict);
        let head = Head {
            copied: 0,
            len: len as u32,
            time: now.0,
            missed: 0,
            side: from as u8,
            way: Way::Came as u8,
            verdict,
            reason,
        };
        // The worker that received the packet first has captured its original form, unless the
        // packet ends here.
        if !turned || leaves.is_none() {
            self.put(head, before);
        }
        if let Some(side) = leaves {
            let len = after.len() as u32;
            self.put(Head { len, side: side as u8, way: Way::Left as u8, ..head }, after);
        }
    }
}

/// Takes one packet out of a ring and appends its bytes. A ring holds whole packets only.
pub(crate) fn take(ring: &mut Consumer<u8>, bytes: &mut Vec<u8>) -> Option<Head> {
    let mut head = [0; Head::LEN];
    let chunk = ring.read_chunk(Head::LEN).ok()?;
    let (first, second) = chunk.as_slices();
    head.iter_mut().zip(first.iter().chain(second)).for_each(|(place, byte)| *place = *byte);
    chunk.commit_all();
    let head = Head::read(&head);
    let chunk = ring.read_chunk(head.copied as usize).ok()?;
    let (first, second) = chunk.as_slices();
    bytes.extend_from_slice(first);
    bytes.extend_from_slice(second);
    chunk.commit_all();
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_wire::{Ipv4, Ipv6, protocol};
    use rtrb::RingBuffer;
    use std::net::IpAddr;

    fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> Vec<u8> {
        let mut bytes = vec![0; 28];
        let mut ip = Ipv4::init(&mut bytes[..], 20);
        ip.set_total_len(28);
        ip.set_ttl(64);
        ip.set_protocol(protocol::UDP);
        ip.set_source(u32::from_be_bytes(source.0));
        ip.set_destination(u32::from_be_bytes(destination.0));
        ip.fill_checksum();
        bytes[20..22].copy_from_slice(&source.1.to_be_bytes());
        bytes[22..24].copy_from_slice(&destination.1.to_be_bytes());
        bytes[25] = 8;
        bytes
    }

    fn prefix(address: [u8; 4], len: u8) -> Prefix6 {
        super::prefix(IpAddr::from(address), len)
    }

    fn prefix6(text: &str, len: u8) -> Prefix6 {
        super::prefix(text.parse().unwrap(), len)
    }

    /// A packet of IPv6 with a payload.
    fn six(source: &str, destination: &str, next: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0; 40], payload].concat();
        let address = |text: &str| text.parse().map(std::net::Ipv6Addr::to_bits).unwrap();
        let mut ip = Ipv6::init(&mut bytes[..]);
        ip.set_payload_len(payload.len() as u16);
        ip.set_next_header(next);
        ip.set_source(address(source));
        ip.set_destination(address(destination));
        bytes
    }

    #[test]
    fn hosts_of_ipv6_and_behind_tunnels_match_by_either_form() {
        const B4: &str = "2001:db8:b4::1";
        const AFTR: &str = "2001:db8:ffff::1";
        let subscriber =
            |text, len| Filter { subscriber: Some(prefix6(text, len)), ..Filter::default() };
        let remote = |text, port| Filter {
            remote: Some((prefix6(text, 128), Some(port))),
            ..Filter::default()
        };
        let remote4 =
            Filter { remote: Some((prefix(REMOTE.0, 32), Some(53))), ..Filter::default() };
        let external =
            Filter { external: Some((prefix(EXTERNAL.0, 32), None)), ..Filter::default() };
        let flow = Filter { protocol: Some(17), port: Some(4000), ..Filter::default() };
        let inner = Filter { subscriber: Some(prefix(HOST.0, 32)), ..Filter::default() };
        let ports =
            |from: u16, to: u16| [from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat();
        let (host, server) = ("2001:db8:1::5", "64:ff9b::192.0.2.1");
        let nat64 = [
            six(host, server, 17, &ports(4000, 53)),
            udp(EXTERNAL, REMOTE),
            udp(REMOTE, EXTERNAL),
            six(server, host, 17, &ports(53, 4000)),
        ];
        let tunnel = [
            six(B4, AFTR, 4, &udp(HOST, REMOTE)),
            udp(EXTERNAL, REMOTE),
            udp(REMOTE, EXTERNAL),
            six(AFTR, B4, 4, &udp(REMOTE, HOST)),
        ];
        let of_nat64 =
            [subscriber("2001:db8:1::", 64), remote(server, 53), remote4, external, flow];
        let of_tunnel = [subscriber(B4, 128), inner, remote4, external, flow];
        let others = [subscriber("2001:db8:2::", 64), remote(host, 53), subscriber(AFTR, 128)];
        for (packets, filters) in [(nat64, of_nat64), (tunnel, of_tunnel)] {
            let faces = packets.map(|packet| Face::of(&packet).unwrap());
            let ways = [
                (Side::Inside, Side::Outside, &faces[..2]),
                (Side::Outside, Side::Inside, &faces[2..]),
            ];
            for (from, to, both) in ways {
                let by = |filter: Filter| {
                    filter.matches(from, Verdict::Forward(to), &both[0], Some(&both[1]))
                };
                filters.iter().for_each(|one| assert!(by(*one), "{one:?} {from:?}"));
                others.iter().for_each(|one| assert!(!by(*one), "{one:?} {from:?}"));
            }
        }
    }

    const HOST: ([u8; 4], u16) = ([10, 0, 0, 5], 4000);
    const REMOTE: ([u8; 4], u16) = ([192, 0, 2, 1], 53);
    const EXTERNAL: ([u8; 4], u16) = ([203, 0, 113, 1], 2000);

    fn matches(filter: Filter, from: Side, verdict: Verdict) -> bool {
        let (before, after) = match from {
            Side::Inside => (udp(HOST, REMOTE), udp(EXTERNAL, REMOTE)),
            Side::Outside => (udp(REMOTE, EXTERNAL), udp(REMOTE, HOST)),
        };
        let after = Face::of(&after).filter(|_| !matches!(verdict, Verdict::Drop(_)));
        filter.matches(from, verdict, &Face::of(&before).unwrap(), after.as_ref())
    }

    #[test]
    fn a_flow_matches_both_ways_by_any_of_its_ends() {
        let filters = [
            Filter::default(),
            Filter { subscriber: Some(prefix([10, 0, 0, 0], 8)), ..Filter::default() },
            Filter { remote: Some((prefix(REMOTE.0, 32), Some(53))), ..Filter::default() },
            Filter { external: Some((prefix(EXTERNAL.0, 32), Some(2000))), ..Filter::default() },
            Filter { protocol: Some(17), port: Some(4000), ..Filter::default() },
        ];
        let others = [
            Filter { subscriber: Some(prefix([192, 0, 2, 0], 24)), ..Filter::default() },
            Filter { remote: Some((prefix(REMOTE.0, 32), Some(54))), ..Filter::default() },
            Filter { external: Some((prefix(HOST.0, 32), None)), ..Filter::default() },
            Filter { protocol: Some(6), ..Filter::default() },
            Filter { port: Some(4001), ..Filter::default() },
        ];
        for (from, to) in [(Side::Inside, Side::Outside), (Side::Outside, Side::Inside)] {
            for filter in filters {
                assert!(matches(filter, from, Verdict::Forward(to)), "{filter:?} {from:?}");
            }
            for filter in others {
                assert!(!matches(filter, from, Verdict::Forward(to)), "{filter:?} {from:?}");
            }
        }
        // No subscriber is known for a refused packet from outside.
        let dropped = Verdict::Drop(DropReason::NoMapping);
        assert!(matches(filters[3], Side::Outside, dropped));
        assert!(!matches(filters[1], Side::Outside, dropped));
    }

    /// An ICMP error that quotes a packet.
    fn error(source: [u8; 4], destination: [u8; 4], about: &[u8]) -> Vec<u8> {
        let mut bytes = udp((source, 0), (destination, 0));
        bytes.truncate(20);
        bytes[9] = protocol::ICMP;
        bytes.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend(about);
        bytes
    }

    #[test]
    fn an_error_of_the_gateways_own_matches_as_the_packet_that_it_is_about() {
        let by = |filter: Filter, side, packet: &[u8]| {
            let face = Face::of(packet).unwrap();
            filter.matches_leaving(side, &face, Face::quoted(packet).as_ref())
        };
        let subscriber = Filter { subscriber: Some(prefix(HOST.0, 32)), ..Filter::default() };
        let remote = Filter { remote: Some((prefix(REMOTE.0, 32), Some(53))), ..Filter::default() };
        let external =
            Filter { external: Some((prefix(EXTERNAL.0, 32), Some(2000))), ..Filter::default() };
        let flow = Filter { protocol: Some(17), port: Some(53), ..Filter::default() };
        let icmp = Filter { protocol: Some(1), ..Filter::default() };
        let other = Filter { port: Some(54), ..Filter::default() };
        let inside = error([10, 0, 0, 1], HOST.0, &udp(HOST, REMOTE));
        let outside = error([192, 0, 2, 254], REMOTE.0, &udp(REMOTE, EXTERNAL));
        let cases = [
            (subscriber, [true, false]),
            (remote, [true, true]),
            (external, [false, true]),
            (flow, [true, true]),
            (icmp, [true, true]),
            (other, [false, false]),
        ];
        for (filter, expected) in cases {
            let found = [by(filter, Side::Inside, &inside), by(filter, Side::Outside, &outside)];
            assert_eq!(found, expected, "{filter:?}");
        }
        // A fragment that waited shows addresses, but no ports.
        let mut fragment = udp(REMOTE, HOST);
        fragment[6..8].copy_from_slice(&3_u16.to_be_bytes());
        assert!(is_fragment(&fragment) && by(subscriber, Side::Inside, &fragment));
        assert!(!by(remote, Side::Inside, &fragment) && Face::quoted(&fragment).is_none());
        // A quotation that is cut short causes no panic.
        for end in 0..inside.len() {
            let _ = Face::of(&inside[..end]).zip(Face::quoted(&inside[..end]));
        }
    }

    #[test]
    fn what_leaves_by_itself_is_told_as_what_it_is() {
        let (ring, mut consumer) = RingBuffer::new(1 << 12);
        let scratch = vec![0; BATCH * SNAPLEN];
        let tap = Tap { number: 1, filter: Filter::default(), ring, missed: 0, scratch };
        let mut captures = Captures::default();
        assert!(captures.begin(Box::new(tap)).is_none());
        let own = error([10, 0, 0, 1], HOST.0, &udp(HOST, REMOTE));
        let mut fragment = udp(EXTERNAL, REMOTE);
        fragment[6..8].copy_from_slice(&3_u16.to_be_bytes());
        captures.leaving(Timestamp(5), Side::Inside, &own);
        captures.leaving(Timestamp(6), Side::Outside, &fragment);
        captures.leaving(Timestamp(7), Side::Outside, b"no packet");
        let mut bytes = Vec::new();
        let heads: Vec<Head> = std::iter::from_fn(|| take(&mut consumer, &mut bytes)).collect();
        let told: Vec<_> = heads.iter().map(|head| (head.time, head.side, head.way)).collect();
        assert_eq!(told, [(5, 0, Way::Made as u8), (6, 1, Way::Released as u8)]);
        assert_eq!(bytes, [own, fragment].concat());
    }

    #[test]
    fn a_full_ring_counts_what_is_missing_and_says_where() {
        let (ring, mut consumer) = RingBuffer::new(3 * (Head::LEN + 28));
        let scratch = vec![0; BATCH * SNAPLEN];
        let tap = Tap { number: 7, filter: Filter::default(), ring, missed: 0, scratch };
        let mut captures = Captures::default();
        assert!(captures.begin(Box::new(tap)).is_none());
        let (before, after) = (udp(HOST, REMOTE), udp(EXTERNAL, REMOTE));
        let verdict = Verdict::Forward(Side::Outside);
        let moment = Moment { now: Timestamp(5), from: Side::Inside, turned: false };
        let mut pass = |count: usize| {
            captures.before(std::iter::repeat_n((&before[..], 0), count));
            captures.after(moment, std::iter::repeat_n((&after[..], verdict), count));
        };
        // Three packets make six copies; three copies fit.
        pass(3);
        let mut bytes = Vec::new();
        let mut heads: Vec<Head> = std::iter::from_fn(|| take(&mut consumer, &mut bytes)).collect();
        pass(1);
        heads.extend(std::iter::from_fn(|| take(&mut consumer, &mut bytes)));
        let told: Vec<_> = heads.iter().map(|head| (head.side, head.way, head.missed)).collect();
        assert_eq!(told, [(0, 0, 0), (1, 1, 0), (0, 0, 0), (0, 0, 3), (1, 1, 3)]);
        let all = [&before[..], &after, &before, &before, &after].concat();
        assert_eq!(bytes, all);
        assert!(captures.end(8).is_none() && captures.end(7).is_some() && !captures.is_on());
    }

    #[test]
    fn verdicts_come_back_as_they_were() {
        let sides = [Side::Inside, Side::Outside];
        let lives =
            sides.into_iter().flat_map(|side| [Verdict::Forward(side), Verdict::Reply(side)]);
        let drops = DropReason::ALL.iter().map(|reason| Verdict::Drop(*reason));
        for verdict in lives.chain(drops).chain([Verdict::Held, Verdict::HandOver]) {
            let (code, reason) = code_of(verdict);
            assert_eq!(verdict_of(code, reason), verdict);
        }
    }
}
