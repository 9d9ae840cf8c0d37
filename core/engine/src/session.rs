//! A session: one remote endpoint of a mapping and its idle timer. A TCP session also has the state
//! of the connection (RFC 6146 section 3.5.2.2 as RFC 7857 section 2 amends it), and the sequence
//! numbers that tell a genuine RST from a forged one.
//!
//! The durations of timers are not known here. The effect of a packet is an [`Idle`], which says
//! the timer to start, if any.

use crate::endpoint::AddressPort;
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};

/// The timer that a packet restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// No timer: the deadline stays.
    Keep,
    /// The opening timeout.
    Opening,
    /// The established timeout. Protocols other than TCP have timeouts of their own.
    Established,
    /// The closing timeout.
    Closing,
}

/// Way of a packet: `Out` from the mapping's internal endpoint, `In` to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// State of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// No session.
    #[default]
    None,
    /// A protocol without connections.
    Open,
    /// The inside has sent a SYN, the outside has not.
    OpeningOut,
    /// The outside has sent a SYN, the inside has not.
    OpeningIn,
    /// Both sides have sent a SYN.
    Established,
    /// The inside has sent a FIN.
    FinOut,
    /// The outside has sent a FIN.
    FinIn,
    /// Both sides have sent a FIN.
    Closed,
    /// A RST came, or nothing for the established timeout: the session is about to go.
    Transitory,
}

impl State {
    /// True if both sides have ended the connection, a RST came, or the session has been silent for
    /// too long.
    pub(crate) const fn is_ending(self) -> bool {
        matches!(self, Self::Closed | Self::Transitory)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::OpeningOut => "opening-out",
            Self::OpeningIn => "opening-in",
            Self::Established => "established",
            Self::FinOut => "fin-out",
            Self::FinIn => "fin-in",
            Self::Closed => "closed",
            Self::Transitory => "transitory",
        }
    }
}

/// Fields of a TCP header that matter to a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) window: u16,
    /// The window scale option. It is read from SYNs only.
    pub(crate) scale: Option<u8>,
}

impl Segment {
    /// True for a SYN that opens a connection: without ACK, RST and FIN.
    pub(crate) fn opens(self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Added to the state of a session that an unanswered subscriber began, until a packet from outside
/// answers it. With this bit, that packet takes the complete way, which notes the answer.
const UNANSWERED: u8 = 8;

const _: () = assert!(
    State::Open as u8 | UNANSWERED > State::Transitory as u8
        && State::OpeningOut as u8 | UNANSWERED > State::Transitory as u8
        && State::Established as u8 | UNANSWERED > State::Transitory as u8
);

/// Set while the inside's window is from a SYN, so it is not scaled. The bit above is the
/// outside's.
const UNSCALED: u8 = 0x40;

/// Value of a scale field before a SYN with the option has been seen.
const SCALE_UNKNOWN: u8 = 15;
const NO_SCALES: u8 = SCALE_UNKNOWN << 4 | SCALE_UNKNOWN;

/// A session. It takes half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Session {
    /// Bits 0 to 47: the remote endpoint ([`AddressPort::word`]). Bits 48 to 55: window scale
    /// shifts; low half inside, high half outside; 15: no option seen. Bits 56 to 63: four bits of
    /// [`State`], with [`UNANSWERED`] or without; then the next sequence number that inside expects
    /// is known; that outside expects; the window of inside is from a SYN, so it is not scaled; of
    /// outside.
    key: u64,
    /// Tick at which the session ends unless it is refreshed.
    pub(crate) expires: u32,
    pub(crate) packets_out: u32,
    pub(crate) packets_in: u32,
    /// The next sequence numbers that inside and outside expect, if known.
    expects: [u32; 2],
    /// The latest window fields of inside and outside.
    window: [u16; 2],
}

/// Places of the parts of [`Session::key`].
const SCALES: u32 = 48;
const STATE_KNOWN: u32 = 56;
const REMOTE: u64 = (1 << SCALES) - 1;

const _: () = assert!(size_of::<Session>() == 32);

/// Attributes of a session for another engine, without endpoint, deadline and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) expects: [u32; 2],
    pub(crate) window: [u16; 2],
    pub(crate) scales: u8,
    /// State as a number: 1 to 8.
    pub(crate) state: u8,
    /// The four bits besides the state.
    pub(crate) known: u8,
}

impl Default for Session {
    fn default() -> Self {
        Self::NONE
    }
}

impl Session {
    /// Remote endpoint.
    #[inline(always)]
    pub(crate) fn remote(&self) -> AddressPort {
        AddressPort::from_word(self.key)
    }

    /// Sets the remote endpoint.
    #[inline(always)]
    pub(crate) fn set_remote(&mut self, remote: AddressPort) {
        self.key = self.key & !REMOTE | remote.word();
    }

    #[inline(always)]
    const fn scales(&self) -> u8 {
        (self.key >> SCALES) as u8
    }

    #[inline(always)]
    fn set_scales(&mut self, scales: u8) {
        self.key = self.key & !(0xff << SCALES) | u64::from(scales) << SCALES;
    }

    #[inline(always)]
    const fn state_known(&self) -> u8 {
        (self.key >> STATE_KNOWN) as u8
    }

    #[inline(always)]
    fn set_state_known(&mut self, state_known: u8) {
        self.key = self.key & !(0xff << STATE_KNOWN) | u64::from(state_known) << STATE_KNOWN;
    }

    /// No session.
    pub(crate) const NONE: Self = Self {
        key: (NO_SCALES as u64) << SCALES,
        expires: 0,
        packets_out: 0,
        packets_in: 0,
        expects: [0; 2],
        window: [0; 2],
    };

    pub(crate) fn new(remote: AddressPort) -> Self {
        let mut session = Self::NONE;
        session.set_remote(remote);
        session
    }

    /// The session of a protocol without connections that a packet from inside begins.
    #[inline(always)]
    pub(crate) fn open(remote: AddressPort, expires: u32) -> Self {
        let state = (State::Open as u64) << STATE_KNOWN;
        let key = Self::NONE.key | state | remote.word();
        Self { key, expires, packets_out: 1, ..Self::NONE }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts {
            expects: self.expects,
            window: self.window,
            scales: self.scales(),
            state: self.state() as u8,
            known: self.state_known() >> 4,
        }
    }

    /// Sets the attributes from another engine's session. `None`: the state is none or does not
    /// exist.
    pub(crate) fn set_parts(&mut self, parts: Parts) -> Option<()> {
        let Parts { expects, window, scales, state, known } = parts;
        if state == State::None as u8 || state > State::Transitory as u8 || known > 0xf {
            return None;
        }
        (self.expects, self.window) = (expects, window);
        self.set_scales(scales);
        self.set_state_known(known << 4 | state);
        Some(())
    }

    pub(crate) fn state(&self) -> State {
        const OPEN: u8 = State::Open as u8 | UNANSWERED;
        const OPENING: u8 = State::OpeningOut as u8 | UNANSWERED;
        const ESTABLISHED: u8 = State::Established as u8 | UNANSWERED;
        match self.state_known() & 0xf {
            0 => State::None,
            1 | OPEN => State::Open,
            2 | OPENING => State::OpeningOut,
            3 => State::OpeningIn,
            4 | ESTABLISHED => State::Established,
            5 => State::FinOut,
            6 => State::FinIn,
            7 => State::Closed,
            _ => State::Transitory,
        }
    }

    /// A word that is 0 if the session is in this state and has the remote endpoint with this word.
    /// An unanswered session is in no state for a packet from outside; for a packet from inside it
    /// makes no difference whether a session is answered.
    #[inline(always)]
    pub(crate) fn differs(&self, way: Way, remote: u64, state: State) -> u64 {
        let states = match way {
            Way::Out => 0xf & !UNANSWERED,
            Way::In => 0xf,
        };
        let expected = remote | u64::from(state as u8) << STATE_KNOWN;
        (self.key ^ expected) & (REMOTE | u64::from(states) << STATE_KNOWN)
    }

    /// True if [`Session::mark_unanswered`] marked the session and no packet has answered it.
    #[inline(always)]
    pub(crate) fn is_unanswered(&self) -> bool {
        self.state_known() & 0xf > State::Transitory as u8
    }

    /// Marks a session that the inside has begun as unanswered. A session in another state does not
    /// change.
    pub(crate) fn mark_unanswered(&mut self) {
        if matches!(self.state(), State::Open | State::OpeningOut | State::Established) {
            self.set_state_known(self.state_known() | UNANSWERED);
        }
    }

    /// Sets the state. An unanswered session then counts as answered.
    pub(crate) fn set_state(&mut self, state: State) {
        self.set_state_known(self.state_known() & 0xf0 | state as u8);
    }

    /// Counts a forwarded packet.
    #[inline(always)]
    pub(crate) fn count(&mut self, way: Way) {
        let counter = match way {
            Way::Out => &mut self.packets_out,
            Way::In => &mut self.packets_in,
        };
        *counter = counter.saturating_add(1);
    }

    /// Takes a TCP segment into account: changes the state, and returns the timer to start.
    pub(crate) fn take_segment(&mut self, way: Way, segment: Segment) -> Idle {
        let (state, idle) = self.next_state(way, segment, Self::reset_is_valid);
        let opens = match self.state() {
            State::None | State::Closed if segment.opens() => {
                self.forget();
                true
            }
            // The SYN may be forged or not. The known sequence numbers may be wrong now.
            State::Transitory if segment.opens() => {
                self.forget();
                false
            }
            State::None | State::Open | State::OpeningOut | State::OpeningIn => true,
            _ => false,
        };
        self.set_state(state);
        if opens {
            self.learn_opening(way, segment);
        } else {
            self.learn(way, segment);
        }
        idle
    }

    /// Takes a DCCP packet into account, given as the flags of an equivalent TCP segment. Sequence
    /// numbers are not followed, so every packet that ends a connection is believed. The session
    /// goes after the closing timeout, unless the connection turns out to be alive.
    pub(crate) fn take_dccp(&mut self, way: Way, packet: Segment) -> Idle {
        let (state, idle) = self.next_state(way, packet, |_, _, _| true);
        self.set_state(state);
        idle
    }

    fn next_state(
        &self,
        way: Way,
        segment: Segment,
        reset_is_valid: impl FnOnce(&Self, Way, Segment) -> bool,
    ) -> (State, Idle) {
        let state = self.state();
        let opening = match way {
            Way::Out => State::OpeningOut,
            Way::In => State::OpeningIn,
        };
        let reset = segment.has(RST);
        //= rfc5382#REQ-2
        //= rfc7857#section-2
        match state {
            State::None | State::Open if segment.opens() => (opening, Idle::Opening),
            State::None | State::Open => (State::Established, Idle::Established),
            //= rfc6146#section-3.5.2-v4-init
            //= rfc6146#section-3.5.2-v6-init
            State::OpeningOut | State::OpeningIn => {
                self.next_state_opening(state, opening, segment)
            }
            State::Closed if !segment.opens() => (state, Idle::Keep),
            //= rfc7857#section-7.1
            State::Transitory if reset => (state, Idle::Keep),
            State::Closed if segment.opens() => (opening, Idle::Opening),
            // The SYN may be forged and the connection alive. Any other packet revives the session.
            State::Transitory if segment.opens() => (state, Idle::Opening),
            State::Closed | State::Transitory => (State::Established, Idle::Established),
            //= rfc7857#section-2.2
            //= rfc7857#section-2.2-wait
            State::Established | State::FinOut | State::FinIn if reset => {
                if reset_is_valid(self, way, segment) {
                    (State::Transitory, Idle::Closing)
                } else {
                    (state, Idle::Keep)
                }
            }
            State::Established | State::FinOut | State::FinIn
                if segment.has(FIN) && self.fin_is_plausible(way, segment) =>
            {
                match (state, way) {
                    (State::Established, Way::Out) => (State::FinOut, Idle::Established),
                    (State::Established, Way::In) => (State::FinIn, Idle::Established),
                    (State::FinOut, Way::In) | (State::FinIn, Way::Out) => {
                        (State::Closed, Idle::Closing)
                    }
                    _ => (state, Idle::Established),
                }
            }
            State::Established | State::FinOut | State::FinIn => (state, Idle::Established),
        }
    }

    /// The next state from an opening state, which waits for the other side's SYN.
    fn next_state_opening(&self, state: State, opening: State, segment: Segment) -> (State, Idle) {
        let other_side = state != opening;
        //= rfc5382#REQ-2a
        //= rfc6146#section-3.5.2.2-simultaneous
        if other_side && segment.has(SYN) && !segment.has(RST | FIN) {
            (State::Established, Idle::Established)
        } else if state == State::OpeningOut && !other_side && segment.opens() {
            (state, Idle::Opening)
        } else {
            (state, Idle::Keep)
        }
    }

    fn forget(&mut self) {
        self.set_state_known(self.state_known() & 0x0f);
        self.expects = [0; 2];
        self.window = [0; 2];
        self.set_scales(NO_SCALES);
    }

    fn is_known(&self, end: usize) -> bool {
        self.state_known() & 0x10 << end != 0
    }

    /// Notes the sequence number that a segment's sender expects, and its window. A SYN of an open
    /// connection is ignored, because anyone could send it.
    #[inline(always)]
    pub(crate) fn learn(&mut self, way: Way, segment: Segment) {
        if segment.has(ACK) && !segment.has(SYN | RST) {
            let sender = way as usize;
            self.expect(sender, segment.acknowledgment);
            self.window[sender] = segment.window;
            self.set_state_known(self.state_known() & !(UNSCALED << sender));
        }
    }

    /// [`Session::learn`] while the connection opens: a SYN also tells the sequence number that the
    /// receiver expects.
    fn learn_opening(&mut self, way: Way, segment: Segment) {
        let syn = segment.has(SYN) && !segment.has(FIN);
        if segment.has(RST) || !syn && !segment.has(ACK) {
            return;
        }
        let (sender, receiver) = (way as usize, 1 - way as usize);
        if syn {
            let scale = segment.scale.unwrap_or(SCALE_UNKNOWN);
            let shift = sender as u32 * 4;
            self.set_scales(self.scales() & !(0xf << shift) | scale << shift);
            self.expect(receiver, segment.sequence.wrapping_add(1));
        }
        if segment.has(ACK) {
            self.expect(sender, segment.acknowledgment);
        }
        self.window[sender] = segment.window;
        let unscaled = UNSCALED << sender;
        let known = self.state_known() & !unscaled;
        self.set_state_known(known | if syn { unscaled } else { 0 });
    }

    #[inline(always)]
    fn expect(&mut self, end: usize, next: u32) {
        let advances = (next.wrapping_sub(self.expects[end]) as i32) > 0;
        if !self.is_known(end) || advances {
            self.expects[end] = next;
            self.set_state_known(self.state_known() | 0x10 << end);
        }
    }

    /// True if a FIN is no further than the largest window from the sequence number that its
    /// receiver expects, in either direction: the segment may repeat received data. If a scale is
    /// not known, the largest possible scale counts, so that a connection that closes properly does
    /// not stay.
    fn fin_is_plausible(&self, way: Way, segment: Segment) -> bool {
        const LARGEST_SCALE: u8 = 14;
        let receiver = 1 - way as usize;
        let (inside, outside) = (self.scales() & 0xf, self.scales() >> 4);
        let scale = match (inside, outside) {
            (SCALE_UNKNOWN, _) | (_, SCALE_UNKNOWN) => LARGEST_SCALE,
            _ if receiver == Way::Out as usize => inside,
            _ => outside,
        };
        let window = i64::from(u16::MAX) << scale;
        let ahead = i64::from(segment.sequence.wrapping_sub(self.expects[receiver]) as i32);
        !self.is_known(receiver) || (-window..window).contains(&ahead)
    }

    /// True if a RST is within its receiver's window (RFC 5961 section 3).
    fn reset_is_valid(&self, way: Way, segment: Segment) -> bool {
        let receiver = 1 - way as usize;
        let (inside, outside) = (self.scales() & 0xf, self.scales() >> 4);
        let scale = match (inside, outside) {
            _ if self.state_known() & UNSCALED << receiver != 0 => 0,
            (SCALE_UNKNOWN, _) | (_, SCALE_UNKNOWN) => 0,
            _ if receiver == Way::Out as usize => inside,
            _ => outside,
        };
        let window = (u32::from(self.window[receiver]) << scale).max(1);
        self.is_known(receiver) && segment.sequence.wrapping_sub(self.expects[receiver]) < window
    }
}
