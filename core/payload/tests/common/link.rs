//! A connection through the framework, with losses if a test wants them.

use super::host::{ACK, SYN};
use super::{Book, Host, Random};
use natgate_payload::{
    ControlPacket, Counters, Endpoints, Explanation, Fate, FlowState, Kind, Limits, NewFlow,
    Payloads, Place, Room, Side,
};
use std::collections::VecDeque;

/// Choices at the start of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) kind: Kind,
    pub(crate) endpoints: Endpoints,
    pub(crate) opener: Side,
    /// Numbers of both SYNs: the inside's, the outside's.
    pub(crate) starts: [u32; 2],
    pub(crate) mss: u16,
    pub(crate) has_stamps: bool,
}

impl Opening {
    pub(crate) fn new(kind: Kind, endpoints: Endpoints, opener: Side) -> Self {
        let starts = [0x1000, 0xffff_fff0];
        Self { kind, endpoints, opener, starts, mss: 1460, has_stamps: true }
    }
}

/// Two hosts, and the framework between them.
pub(crate) struct Link {
    pub(crate) payloads: Payloads,
    pub(crate) book: Book,
    pub(crate) hosts: [Host; 2],
    opening: Opening,
    pub(crate) now: u32,
    /// One packet in so many is lost, before and behind the framework; 0: none.
    pub(crate) loss: usize,
    pub(crate) random: Random,
    /// Lengths of the packets that hosts got.
    pub(crate) lengths: Vec<usize>,
    /// True if the explanation of each packet is compared with what comes of it.
    pub(crate) is_explained: bool,
}

impl Link {
    /// Opens a connection.
    pub(crate) fn open(opening: Opening) -> Self {
        let payloads = Payloads::new(Limits { flows: 8, buffers: 4 }, [1; 32]);
        let mut link = Self::prepare(opening, payloads);
        link.shake_hands();
        link
    }

    /// Two hosts that have sent nothing.
    pub(crate) fn prepare(opening: Opening, payloads: Payloads) -> Self {
        let Opening { endpoints, starts, .. } = opening;
        let mut hosts = [
            Host::new(endpoints.external, endpoints.remote, starts[0]),
            Host::new(endpoints.remote, endpoints.external, starts[1]),
        ];
        for host in &mut hosts {
            (host.mss, host.has_stamps) = (opening.mss, opening.has_stamps);
        }
        let (book, random) = (Book::default(), Random(0));
        Self {
            payloads,
            book,
            hosts,
            opening,
            now: 100,
            loss: 0,
            random,
            lengths: vec![],
            is_explained: true,
        }
    }

    pub(crate) fn shake_hands(&mut self) {
        let opener = self.opening.opener;
        let syn = self.hosts[opener as usize].syn(SYN);
        self.carry(opener, syn);
        let syn = self.hosts[opener.other() as usize].syn(SYN | ACK);
        self.carry(opener.other(), syn);
        let ack = self.hosts[opener as usize].acknowledgment();
        self.carry(opener, ack);
    }

    /// Gives a packet of a host to the framework, and carries all that follows from it.
    pub(crate) fn carry(&mut self, from: Side, packet: Vec<u8>) {
        let mut queue = VecDeque::from([(from, packet)]);
        let mut count = 0;
        while let Some((from, packet)) = queue.pop_front() {
            count += 1;
            assert!(count < 1000, "packets without an end");
            if self.is_lost() {
                continue;
            }
            for (to, packet) in self.process(from, &packet) {
                if self.is_lost() {
                    continue;
                }
                self.lengths.push(packet.len());
                let answer = self.hosts[to as usize].receive(&packet);
                queue.extend(answer.map(|answer| (to, answer)));
            }
        }
    }

    /// What leaves the framework for one packet.
    pub(crate) fn process(&mut self, from: Side, packet: &[u8]) -> Vec<(Side, Vec<u8>)> {
        let mut buffer = [0; 2048];
        buffer[..packet.len()].copy_from_slice(packet);
        let mut room = Room::new(&mut buffer, packet.len());
        let Opening { kind, endpoints, .. } = self.opening;
        let control = ControlPacket { kind, from, endpoints, new_flow: NewFlow::Read };
        let told = self.explain(control, packet);
        let before = (self.book.made.len(), *self.payloads.counters(kind));
        let fate = self.payloads.process(self.now, control, &mut room, &mut self.book);
        if self.is_explained {
            self.compare(&told, before);
        }
        let mut out = vec![];
        if fate == Fate::Pass {
            out.push((from.other(), room.bytes().to_vec()));
        }
        let mut own = [0; Payloads::BUFFER];
        while let Some((to, len)) = self.payloads.poll_transmit(&mut own) {
            out.push((to, own[..len].to_vec()));
        }
        out
    }

    /// Lets the framework take a packet, and forgets what leaves.
    pub(crate) fn pass(&mut self, from: Side, packet: &[u8]) {
        let mut buffer = [0; 2048];
        buffer[..packet.len()].copy_from_slice(packet);
        let mut room = Room::new(&mut buffer, packet.len());
        let Opening { kind, endpoints, .. } = self.opening;
        let control = ControlPacket { kind, from, endpoints, new_flow: NewFlow::Read };
        self.explain(control, packet);
        self.payloads.process(self.now, control, &mut room, &mut self.book);
        let mut own = [0; Payloads::BUFFER];
        while self.payloads.poll_transmit(&mut own).is_some() {}
    }

    /// The explanation of a packet, with the ports that the framework will ask.
    fn explain(&self, control: ControlPacket, packet: &[u8]) -> Explanation {
        let mut book = self.book.clone();
        let client = self.opening.opener;
        let told = self.payloads.explain(self.now, (control, client), packet, &mut book);
        told.expect("a packet of the protocol")
    }

    /// What came of a packet is what its explanation says. The last byte that was missing brings
    /// later bytes with it, which the explanation does not have.
    fn compare(&self, told: &Explanation, (made, counters): (usize, Counters)) {
        let is_read = matches!(told.flow, FlowState::Known | FlowState::Begins);
        if !is_read || !matches!(told.place, None | Some(Place::Next)) {
            return;
        }
        let opened: Vec<_> = told.opened.iter().map(|opened| opened.expectation).collect();
        let events = &self.book.made[made..];
        assert!(events.starts_with(&opened), "{events:?}, but {told:?}");
        let now = self.payloads.counters(told.kind);
        assert!(now.expectations - counters.expectations >= opened.len() as u64, "{told:?}");
        for reason in &told.refused {
            let at = *reason as usize;
            assert!(now.refused[at] > counters.refused[at], "{told:?}");
        }
    }

    fn is_lost(&mut self) -> bool {
        self.loss > 0 && self.random.below(self.loss) == 0
    }

    /// A host writes bytes. Returns where they begin in its stream.
    pub(crate) fn write(&mut self, from: Side, bytes: &[u8]) -> usize {
        let host = &mut self.hosts[from as usize];
        host.written.extend(bytes);
        host.written.len() - bytes.len()
    }

    /// A host sends a range of its stream.
    pub(crate) fn send(&mut self, from: Side, start: usize, end: usize) {
        let packet = self.hosts[from as usize].segment(start, end, false);
        self.carry(from, packet);
    }

    /// A host repeats what is not acknowledged, until all is.
    pub(crate) fn repeat_until_acknowledged(&mut self, from: Side) {
        for _ in 0..200 {
            let host = &mut self.hosts[from as usize];
            let (start, end) = (host.acknowledged, host.written.len());
            if start >= end {
                return;
            }
            let packet = host.segment(start, end.min(start + 1400), false);
            self.carry(from, packet);
        }
        panic!("the bytes of {from:?} do not get through");
    }

    /// A host says a whole message in one segment.
    pub(crate) fn say(&mut self, from: Side, text: &str) {
        let start = self.write(from, text.as_bytes());
        self.send(from, start, start + text.len());
        self.repeat_until_acknowledged(from);
    }

    /// A host ends its stream.
    pub(crate) fn end(&mut self, from: Side) {
        let len = self.hosts[from as usize].written.len();
        let start = self.hosts[from as usize].acknowledged.min(len);
        let packet = self.hosts[from as usize].segment(start, len, true);
        self.carry(from, packet);
    }

    /// The bytes that a side has received, as text.
    pub(crate) fn heard(&self, side: Side) -> String {
        String::from_utf8_lossy(&self.hosts[side as usize].received).into_owned()
    }
}
