//! Input and output of the engine: packets in place, one verdict for each packet, counters.

use crate::DropReason;

/// A side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The subscribers' side.
    Inside,
    /// The Internet's side.
    Outside,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }
}

/// An IP packet in a buffer: a frame without its link header. The engine may shorten the packet at
/// its end. A translation to IPv6 uses the headroom.
pub use natgate_wire::Frame as Packet;

/// Path of a packet through the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// From inside to outside.
    Outbound,
    /// From outside to inside.
    Inbound,
    /// From inside to inside, by external endpoints.
    Hairpin,
    /// To the gateway itself.
    Local,
}

impl Direction {
    /// Every direction.
    pub const ALL: [Self; 4] = [Self::Outbound, Self::Inbound, Self::Hairpin, Self::Local];

    /// Path of a packet that came in on `from` and is forwarded by `to`.
    pub const fn forwarded(from: Side, to: Side) -> Self {
        match (from, to) {
            (Side::Inside, Side::Outside) => Self::Outbound,
            (Side::Outside, _) => Self::Inbound,
            (Side::Inside, Side::Inside) => Self::Hairpin,
        }
    }

    /// The direction's name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
            Self::Hairpin => "hairpin",
            Self::Local => "local",
        }
    }
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the packet by this side. It is translated in place, or bypasses translation.
    Forward(Side),
    /// The packet was a request to the gateway itself and is now the reply. Send it back by this
    /// side.
    Reply(Side),
    /// Forget the packet.
    Drop(DropReason),
    /// The packet is hairpinned, and another engine may have its destination. Give the packet to
    /// [`Engine::process_turned`](crate::Engine::process_turned) of the engine that has it: the
    /// divider of the work knows which. Only the sender's endpoint has been translated.
    HandOver,
    /// Forget the packet: it is a fragment before the first of its datagram, and the engine keeps a
    /// copy. The copy comes out of `poll_transmit` later, or is dropped and counted then. After
    /// [`Engine::guard_newcomers`](crate::Engine::guard_newcomers), the packet may also be one that
    /// the engine has left alone.
    Held,
}

/// Result of an input packet, as counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Sent on.
    Forwarded,
    /// Answered by the gateway itself.
    Replied,
    /// Dropped.
    Dropped,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Forwarded, Self::Replied, Self::Dropped];

    /// The outcome's name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Replied => "replied",
            Self::Dropped => "dropped",
        }
    }
}

/// Packets and bytes by direction and outcome, drops by reason. Every input packet is counted once.
/// A held packet is counted when its fate is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets, `[Direction][Outcome]`.
    pub packets: [[u64; 3]; 4],
    /// IP bytes as received, `[Direction][Outcome]`.
    pub bytes: [[u64; 3]; 4],
    /// Dropped packets, `[DropReason]`.
    pub drops: [u64; DropReason::ALL.len()],
    /// Forwarded packets of protocols that are translated by address alone.
    pub portless: u64,
    /// Packets that the engine made itself and handed out.
    pub generated: u64,
    /// ICMP errors that were due but not made, because of the rate limit, a full queue, or a side
    /// without errors.
    pub errors_suppressed: u64,
    /// Events that were lost because they were not polled in time.
    pub events_lost: u64,
    /// Timestamps that went back and were clamped.
    pub clock_backwards: u64,
    /// Unanswered subscribers that gave way to others.
    pub subscribers_reclaimed: u64,
    /// Mappings of unanswered subscribers that gave way.
    pub mappings_reclaimed: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            packets: [[0; 3]; 4],
            bytes: [[0; 3]; 4],
            drops: [0; DropReason::ALL.len()],
            portless: 0,
            generated: 0,
            errors_suppressed: 0,
            events_lost: 0,
            clock_backwards: 0,
            subscribers_reclaimed: 0,
            mappings_reclaimed: 0,
        }
    }
}

impl Counters {
    /// Counts `packets` forwarded packets with `bytes` bytes together.
    pub fn count_forwarded(&mut self, direction: Direction, packets: u64, bytes: u64) {
        self.packets[direction as usize][Outcome::Forwarded as usize] += packets;
        self.bytes[direction as usize][Outcome::Forwarded as usize] += bytes;
    }

    /// Adds the counters of another engine.
    pub fn add(&mut self, other: &Self) {
        let own = self.packets.iter_mut().chain(&mut self.bytes).flatten().chain(&mut self.drops);
        let others = other.packets.iter().chain(&other.bytes).flatten().chain(&other.drops);
        own.zip(others).for_each(|(own, other)| *own += other);
        self.portless += other.portless;
        self.generated += other.generated;
        self.errors_suppressed += other.errors_suppressed;
        self.events_lost += other.events_lost;
        self.clock_backwards += other.clock_backwards;
        self.subscribers_reclaimed += other.subscribers_reclaimed;
        self.mappings_reclaimed += other.mappings_reclaimed;
    }

    /// Counts one packet of `len` bytes.
    pub fn count(&mut self, direction: Direction, verdict: Outcome, len: usize) {
        self.packets[direction as usize][verdict as usize] += 1;
        self.bytes[direction as usize][verdict as usize] += len as u64;
    }

    /// Corrects the counters for a packet of `len` bytes to the gateway itself that was counted as
    /// not understood.
    pub fn recount_local(&mut self, other: Option<DropReason>, len: usize) {
        let local = Direction::Local as usize;
        self.packets[local][Outcome::Dropped as usize] -= 1;
        self.bytes[local][Outcome::Dropped as usize] -= len as u64;
        self.drops[DropReason::LocalUnsupported as usize] -= 1;
        match other {
            Some(reason) => self.count_drop(Direction::Local, reason, len),
            None => self.count(Direction::Local, Outcome::Replied, len),
        }
    }

    /// Counts one dropped packet of `len` bytes.
    pub fn count_drop(&mut self, direction: Direction, reason: DropReason, len: usize) {
        self.count(direction, Outcome::Dropped, len);
        self.drops[reason as usize] += 1;
    }
}

/// The direction of a packet when only its incoming side is known.
pub(crate) fn direction_from(side: Side) -> Direction {
    match side {
        Side::Inside => Direction::Outbound,
        Side::Outside => Direction::Inbound,
    }
}
