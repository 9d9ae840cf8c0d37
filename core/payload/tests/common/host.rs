//! A host with as much of TCP as the tests need: it sends ranges of its stream as it is told,
//! takes what comes in order, keeps what comes early, and acknowledges.

use natgate_wire::{Ipv4, checksum, protocol};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// One end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) own: SocketAddrV4,
    pub(crate) other: SocketAddrV4,
    /// Number of the SYN.
    pub(crate) start: u32,
    /// Number of the other host's SYN.
    pub(crate) other_start: u32,
    /// All bytes that the application wrote.
    pub(crate) written: Vec<u8>,
    /// Bytes that the other host has acknowledged.
    pub(crate) acknowledged: usize,
    /// Bytes that the application can read.
    pub(crate) received: Vec<u8>,
    pub(crate) has_received_end: bool,
    early: BTreeMap<usize, Vec<u8>>,
    pub(crate) mss: u16,
    pub(crate) has_stamps: bool,
    pub(crate) clock: u32,
    pub(crate) other_stamp: u32,
    /// Last SACK block, as a range of the written bytes.
    pub(crate) sacked: Option<(usize, usize)>,
    /// True if old acknowledgments may come, which TCP ignores (RFC 9293 section 3.10.7.4).
    pub(crate) takes_old: bool,
}

impl Host {
    pub(crate) fn new(own: SocketAddrV4, other: SocketAddrV4, start: u32) -> Self {
        Self {
            own,
            other,
            start,
            other_start: 0,
            written: vec![],
            acknowledged: 0,
            received: vec![],
            has_received_end: false,
            early: BTreeMap::new(),
            mss: 1460,
            has_stamps: true,
            clock: 1000,
            other_stamp: 0,
            sacked: None,
            takes_old: false,
        }
    }

    /// A packet with the given number, flags, options and data.
    fn packet(&mut self, sequence: u32, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
        let mut options = options.to_vec();
        if self.has_stamps {
            self.clock += 1;
            options.extend([1, 1, 8, 10]);
            options.extend(self.clock.to_be_bytes());
            options.extend(self.other_stamp.to_be_bytes());
        }
        while !options.len().is_multiple_of(4) {
            options.push(1);
        }
        let ack = self.other_start.wrapping_add(self.next_received());
        let mut tcp = vec![];
        tcp.extend(self.own.port().to_be_bytes());
        tcp.extend(self.other.port().to_be_bytes());
        tcp.extend(sequence.to_be_bytes());
        tcp.extend((if flags & ACK == 0 { 0 } else { ack }).to_be_bytes());
        tcp.extend([((20 + options.len()) / 4 * 16) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(&options);
        tcp.extend(data);
        wrap(self.own, self.other, protocol::TCP, tcp, 16)
    }

    fn next_received(&self) -> u32 {
        1 + self.received.len() as u32 + u32::from(self.has_received_end)
    }

    pub(crate) fn syn(&mut self, flags: u8) -> Vec<u8> {
        let [high, low] = self.mss.to_be_bytes();
        let start = self.start;
        self.packet(start, flags, &[2, 4, high, low], &[])
    }

    /// Bytes of the stream from `from` to `to`; with FIN if `is_last`.
    pub(crate) fn segment(&mut self, from: usize, to: usize, is_last: bool) -> Vec<u8> {
        let sequence = self.start.wrapping_add(1 + from as u32);
        let data = self.written[from..to].to_vec();
        self.packet(sequence, ACK | 8 | u8::from(is_last), &[], &data)
    }

    /// An acknowledgment of all that came in order, with SACK blocks of what came early.
    pub(crate) fn acknowledgment(&mut self) -> Vec<u8> {
        let sequence = self.start.wrapping_add(1 + self.written.len() as u32);
        let mut options = vec![];
        if let Some((at, bytes)) = self.early.iter().next() {
            options.extend([1, 1, 5, 10]);
            let left = self.other_start.wrapping_add(1 + *at as u32);
            options.extend(left.to_be_bytes());
            options.extend(left.wrapping_add(bytes.len() as u32).to_be_bytes());
        }
        self.packet(sequence, ACK, &options, &[])
    }

    pub(crate) fn reset(&mut self) -> Vec<u8> {
        let sequence = self.start.wrapping_add(1 + self.written.len() as u32);
        self.packet(sequence, RST | ACK, &[], &[])
    }

    /// Takes a packet. The answer: a packet to send, if the segment had data or an end.
    pub(crate) fn receive(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let ip = Ipv4::new_checked(packet).expect("a whole packet");
        assert!(ip.checksum_valid() && usize::from(ip.total_len()) == packet.len());
        let tcp = ip.payload();
        assert!(transport_is_valid(packet), "the checksum of TCP is wrong");
        let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let (sequence, ack, flags) = (number(4), number(8), tcp[13]);
        let header = usize::from(tcp[12] >> 4) * 4;
        assert!(tcp.len() - header <= usize::from(self.mss), "a segment exceeds the MSS");
        self.read_options(&tcp[20..header]);
        if flags & SYN != 0 {
            self.other_start = sequence;
            return None;
        }
        let count = ack.wrapping_sub(self.start).wrapping_sub(1);
        if (count as usize) <= self.written.len() + 1 {
            let is_old = (count as usize) < self.acknowledged;
            assert!(self.takes_old || !is_old, "an acknowledgment that goes back");
            self.acknowledged = self.acknowledged.max(count as usize);
        }
        let data = &tcp[header..];
        if flags & RST != 0 || (data.is_empty() && flags & FIN == 0) {
            return None;
        }
        let at = sequence.wrapping_sub(self.other_start).wrapping_sub(1).cast_signed();
        let skipped = usize::try_from(self.received.len() as i32 - at).unwrap_or(0);
        if at as i64 > self.received.len() as i64 {
            self.early.insert(at as usize, data.to_vec());
        } else if skipped <= data.len() {
            self.received.extend(&data[skipped..]);
            self.has_received_end |= flags & FIN != 0;
        }
        while let Some((at, bytes)) = self.early.pop_first() {
            if at > self.received.len() {
                self.early.insert(at, bytes);
                break;
            }
            let skipped = self.received.len() - at;
            self.received.extend(bytes.get(skipped..).unwrap_or_default());
        }
        Some(self.acknowledgment())
    }

    fn read_options(&mut self, options: &[u8]) {
        let mut at = 0;
        let mut has_stamps = false;
        while at < options.len() && options[at] != 0 {
            match options[at] {
                1 => at += 1,
                kind => {
                    if kind == 5 {
                        let number = |at: usize| {
                            let number = options[at..at + 4].try_into().unwrap();
                            let offset = u32::from_be_bytes(number).wrapping_sub(self.start);
                            offset.wrapping_sub(1) as usize
                        };
                        self.sacked = Some((number(at + 2), number(at + 6)));
                    }
                    if kind == 8 {
                        has_stamps = true;
                        let stamp = options[at + 2..at + 6].try_into().unwrap();
                        self.other_stamp = u32::from_be_bytes(stamp);
                        let echo = u32::from_be_bytes(options[at + 6..at + 10].try_into().unwrap());
                        assert!(echo <= self.clock, "an echo of a timestamp that was not sent");
                    }
                    at += usize::from(options[at + 1]);
                }
            }
        }
        assert_eq!(has_stamps, self.has_stamps, "RFC 7323: each segment has timestamps, or none");
    }
}

/// An IPv4 packet with a transport header whose checksum is at `sum_at`.
pub(crate) fn wrap(
    from: SocketAddrV4,
    to: SocketAddrV4,
    number: u8,
    transport: Vec<u8>,
    sum_at: usize,
) -> Vec<u8> {
    let len = 20 + transport.len();
    let mut bytes = vec![0; len];
    let mut ip = Ipv4::init(&mut bytes[..], 20);
    ip.set_total_len(len as u16);
    ip.set_ttl(64);
    ip.set_protocol(number);
    ip.set_source(from.ip().to_bits());
    ip.set_destination(to.ip().to_bits());
    ip.payload_mut().copy_from_slice(&transport);
    ip.fill_checksum();
    let sum = checksum::pseudo_header(
        from.ip().to_bits(),
        to.ip().to_bits(),
        number,
        transport.len() as u16,
    );
    let sum = !checksum::fold(checksum::sum(&transport, sum));
    bytes[20 + sum_at..22 + sum_at].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A UDP datagram.
pub(crate) fn datagram(from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Vec<u8> {
    let mut udp = vec![];
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend((8 + data.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(data);
    wrap(from, to, protocol::UDP, udp, 6)
}

/// True if the checksum of TCP or UDP is right.
pub(crate) fn transport_is_valid(packet: &[u8]) -> bool {
    let ip = Ipv4::new_checked(packet).expect("a whole packet");
    let transport = ip.payload();
    let sum = checksum::pseudo_header(
        ip.source(),
        ip.destination(),
        ip.protocol(),
        transport.len() as u16,
    );
    checksum::fold(checksum::sum(transport, sum)) == 0xffff
}
