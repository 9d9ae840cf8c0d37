//! Packets of the soak test: new sessions, packets both ways, closed connections, packets to unused
//! endpoints, and noise.

use super::POOL;
use super::shadow::Shadow;
use crate::frame::{self, End, Frame, LEN};
use crate::random::{Random, Shuffle};
use natgate_engine::Side;
use natgate_wire::protocol::{TCP, UDP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};

/// Highest number of subscribers.
const SUBSCRIBERS: u64 = 65_536;
const INSIDE: u32 = 0x0a00_0001;
const OUTSIDE: u32 = 0xc612_0001;

/// All possible sessions, numbered: even numbers are UDP, odd ones TCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Universe {
    sessions: u64,
    subscribers: u64,
}

impl Universe {
    pub(super) fn new(sessions: u64) -> Self {
        let sessions = sessions.next_multiple_of(64);
        Self { sessions, subscribers: SUBSCRIBERS.min(sessions.div_ceil(64)) }
    }

    pub(super) fn sessions(self) -> u64 {
        self.sessions
    }

    pub(super) fn subscribers(self) -> u64 {
        self.subscribers
    }

    pub(super) fn protocol(number: u64) -> u8 {
        if number.is_multiple_of(2) { UDP } else { TCP }
    }

    pub(super) fn internal(self, number: u64) -> End {
        let half = number / 2;
        let port = 1024 + half / self.subscribers;
        (INSIDE + (half % self.subscribers) as u32, port as u16)
    }

    /// Number of the session with this internal endpoint.
    pub(super) fn number(self, protocol: u8, (address, port): End) -> Option<u64> {
        let subscriber = u64::from(address.checked_sub(INSIDE)?);
        let half = u64::from(port.checked_sub(1024)?) * self.subscribers + subscriber;
        let number = half * 2 + u64::from(protocol == TCP);
        (subscriber < self.subscribers && number < self.sessions).then_some(number)
    }

    /// Number of the subscriber with this address.
    pub(super) fn subscriber(self, address: u32) -> Option<usize> {
        let subscriber = u64::from(address.checked_sub(INSIDE)?);
        (subscriber < self.subscribers).then_some(subscriber as usize)
    }

    fn remote(number: u64, other: u64) -> End {
        (OUTSIDE + ((number + other) % 60_013) as u32, 443)
    }
}

/// Kind of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// First packets of sessions, from this place of an order on.
    Create(u64),
    /// Outbound packets of random sessions, present or not.
    Outbound,
    /// Packets to the external endpoints of random sessions.
    Inbound,
    /// Packets to random external endpoints.
    Stray,
    /// First packets of sessions, with random bytes.
    Noise,
}

impl Kind {
    pub(super) fn from(self) -> Side {
        match self {
            Self::Create(_) | Self::Outbound | Self::Noise => Side::Inside,
            Self::Inbound | Self::Stray => Side::Outside,
        }
    }
}

/// A packet before and after its translation.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) kind: Kind,
    pub(super) protocol: u8,
    /// Session of the packet, if it has one.
    pub(super) number: Option<u64>,
    /// True if its session or mapping existed before.
    pub(super) was_live: bool,
    pub(super) frame: &'a Frame,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    protocol: u8,
    number: Option<u64>,
    was_live: bool,
}

/// Generator of packets.
pub(super) struct Traffic {
    universe: Universe,
    random: Random,
    kind: Kind,
    frames: Vec<Frame>,
    notes: Vec<Note>,
}

impl Traffic {
    pub(super) fn new(universe: Universe, seed: u64) -> Self {
        let random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { universe, random, kind: Kind::Noise, frames: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn universe(&self) -> Universe {
        self.universe
    }

    /// Chooses the kind of the next batch.
    pub(super) fn kind(&mut self) -> Kind {
        match self.random.below(20) {
            0 => Kind::Noise,
            1..4 => Kind::Stray,
            4..10 => Kind::Inbound,
            _ => Kind::Outbound,
        }
    }

    /// A time near `time`, sometimes after seconds without packets.
    pub(super) fn jitter(&mut self, time: u64) -> u64 {
        match self.random.below(1000) {
            0 => time + self.random.below(20_000_000_000),
            _ => time + self.random.below(1_000_000),
        }
    }

    /// Writes a batch.
    pub(super) fn write(&mut self, kind: Kind, shadow: &Shadow, count: usize) {
        self.kind = kind;
        self.frames.resize(count, Frame([0; 64]));
        self.notes.clear();
        for place in 0..count {
            let note = match kind {
                Kind::Create(first) => {
                    let order = Shuffle::new(self.universe.sessions);
                    let number = order.at(first + place as u64);
                    self.outbound(place, number, shadow)
                }
                Kind::Outbound => {
                    let number = self.random.below(self.universe.sessions);
                    self.outbound(place, number, shadow)
                }
                Kind::Inbound => self.inbound(place, shadow),
                Kind::Stray => self.stray(place, shadow),
                Kind::Noise => self.noise(place),
            };
            self.notes.push(note);
        }
    }

    /// Number of the remote endpoint: mostly a session's usual one, sometimes another.
    fn other(&mut self) -> u64 {
        match self.random.below(64) {
            0 => self.random.below(1000),
            _ => 0,
        }
    }

    fn outbound(&mut self, place: usize, number: u64, shadow: &Shadow) -> Note {
        let remote = Universe::remote(number, self.other());
        let was_live = shadow.external(number).is_some();
        let flags = match (was_live, self.random.below(16)) {
            (false, _) => SYN,
            (true, 0) => FIN | ACK,
            (true, 1) => RST,
            _ => ACK,
        };
        self.packet(place, number, self.universe.internal(number), remote, flags, was_live)
    }

    fn inbound(&mut self, place: usize, shadow: &Shadow) -> Note {
        let number = self.random.below(self.universe.sessions);
        let Some(external) = shadow.external(number) else { return self.stray(place, shadow) };
        let remote = Universe::remote(number, self.other());
        let flags = match self.random.below(16) {
            0 => FIN | ACK,
            1 => SYN,
            2..6 => SYN | ACK,
            _ => ACK,
        };
        self.packet(place, number, remote, external, flags, true)
    }

    fn stray(&mut self, place: usize, shadow: &Shadow) -> Note {
        let address = POOL + self.random.below(u64::from(shadow.addresses())) as u32;
        let external = (address, self.random.below(1 << 16) as u16);
        let number = self.random.below(2);
        let protocol = Universe::protocol(number);
        let was_live = shadow.is_taken(protocol, external);
        let note = self.packet(place, number, Universe::remote(0, 7), external, ACK, was_live);
        Note { number: None, ..note }
    }

    fn noise(&mut self, place: usize) -> Note {
        let number = self.random.below(self.universe.sessions);
        let (internal, remote) = (self.universe.internal(number), Universe::remote(number, 0));
        self.packet(place, number, internal, remote, SYN, false);
        // A wrong byte in the IP header is always detected. The bytes behind the ports may be
        // anything.
        if self.random.below(4) == 0 {
            let at = self.random.below(20) as usize;
            self.frames[place].0[at] = self.random.next() as u8;
        }
        for _ in 0..self.random.below(8) {
            let at = 24 + self.random.below(LEN as u64 - 24) as usize;
            self.frames[place].0[at] = self.random.next() as u8;
        }
        Note { protocol: 0, number: None, was_live: false }
    }

    fn packet(
        &mut self,
        place: usize,
        number: u64,
        source: End,
        destination: End,
        flags: u8,
        was_live: bool,
    ) -> Note {
        let protocol = Universe::protocol(number);
        let frame = &mut self.frames[place];
        match protocol {
            UDP => frame::udp(frame, source, destination),
            _ => frame::tcp(frame, source, destination, flags),
        }
        Note { protocol, number: Some(number), was_live }
    }

    /// Bytes of the batch.
    pub(super) fn buffers(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.frames.iter_mut().map(|frame| &mut frame.0[..LEN])
    }

    /// Packets of the batch.
    pub(super) fn sent(&self) -> impl Iterator<Item = Sent<'_>> {
        let kind = self.kind;
        self.notes.iter().zip(&self.frames).map(move |(note, frame)| {
            let Note { protocol, number, was_live } = *note;
            Sent { kind, protocol, number, was_live, frame }
        })
    }
}
