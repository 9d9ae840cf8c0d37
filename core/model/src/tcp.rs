//! States of a TCP connection: the table of section 9.3 and the window of 9.4 of the specification
//! (RFC 6146 section 3.5.2.2, RFC 7857 section 2, RFC 5961 section 3). DCCP uses the same table
//! without the window (9.10).

use crate::bytes::ip;
use natgate_engine::Side;
use natgate_wire::protocol::{DCCP, TCP};
use natgate_wire::{Dccp, Tcp, dccp, tcp::flags};

/// A row of the table in 9.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    OpeningOut,
    OpeningIn,
    Established,
    FinOut,
    FinIn,
    Closed,
    Transitory,
}

impl State {
    /// The state's name in the specification.
    pub(crate) fn name(self) -> &'static str {
        match self {
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

/// The last column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    Unchanged,
    Opening,
    Established,
    Closing,
}

/// One end of the connection, as its segments describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Half {
    /// The next sequence number that the end expects.
    expected: Option<u32>,
    /// The end's latest window, as in the header, and true if a SYN announced it: such a window is
    /// never scaled.
    window: Option<(u16, bool)>,
    /// The scale option of the end's SYN.
    scale: Option<u8>,
}

impl Half {
    /// Notes that the end expects nothing below `number`. Sequence numbers wrap.
    fn expects(&mut self, number: u32) {
        match self.expected {
            Some(known) if (number.wrapping_sub(known) as i32) <= 0 => {}
            _ => self.expected = Some(number),
        }
    }
}

/// The connection of a TCP or DCCP session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Connection {
    /// `None` until the first segment.
    pub(crate) state: Option<State>,
    internal: Half,
    remote: Half,
}

impl Connection {
    /// Takes a segment from a side: changes the state, and returns the timer. A segment that may
    /// not `revive` does not change a transitory connection.
    pub(crate) fn step(&mut self, from: Side, segment: Segment, revive: bool) -> Timer {
        let (mut next, timer) = self.next(from, segment);
        if matches!(self.state, None | Some(State::Transitory))
            && next == State::Established
            && !revive
        {
            next = State::Transitory;
        }
        let afresh = matches!(self.state, None | Some(State::Closed | State::Transitory));
        let teaches = match self.state {
            _ if segment.rst() => false,
            None | Some(State::OpeningOut | State::OpeningIn) => true,
            Some(State::Closed) => segment.syn() || !segment.has_syn(),
            // 9.8: a SYN at another time may come from anyone, whatever else it carries.
            _ => !segment.has_syn(),
        };
        if afresh && segment.syn() {
            *self = Self::default(); // 9.9, last sentence
        }
        if let Some(numbers) = segment.numbers.filter(|_| teaches) {
            self.learn(from, segment, numbers);
        }
        self.state = Some(next);
        timer
    }

    /// The next state and the timer, by the table of 9.3.
    fn next(&self, from: Side, segment: Segment) -> (State, Timer) {
        let out = from == Side::Inside;
        let opening = if out { State::OpeningOut } else { State::OpeningIn };
        let fin = if out { State::FinOut } else { State::FinIn };
        let finishes = segment.fin() && self.fin_plausible(from, segment);
        let Some(state) = self.state else {
            return match segment.syn() {
                true => (opening, Timer::Opening),
                false => (State::Established, Timer::Established),
            };
        };
        match state {
            State::OpeningOut if !out && segment.any_syn() => {
                (State::Established, Timer::Established)
            }
            State::OpeningOut if out && segment.syn() => (state, Timer::Opening),
            State::OpeningIn if out && segment.any_syn() => {
                (State::Established, Timer::Established)
            }
            State::OpeningOut | State::OpeningIn => (state, Timer::Unchanged),
            State::Established | State::FinOut | State::FinIn if segment.rst() => {
                match self.rst_valid(from, segment) {
                    true => (State::Transitory, Timer::Closing),
                    false => (state, Timer::Unchanged),
                }
            }
            State::Established if finishes => (fin, Timer::Established),
            State::FinOut | State::FinIn if finishes && state != fin => {
                (State::Closed, Timer::Closing)
            }
            State::Established | State::FinOut | State::FinIn => (state, Timer::Established),
            State::Closed if segment.syn() => (opening, Timer::Opening),
            State::Closed => (state, Timer::Unchanged),
            State::Transitory if segment.syn() => (state, Timer::Opening),
            State::Transitory if segment.rst() => (state, Timer::Unchanged),
            State::Transitory => (State::Established, Timer::Established),
        }
    }

    /// 9.4: true if a RST from a side is in its receiver's window.
    fn rst_valid(&self, from: Side, segment: Segment) -> bool {
        let (sender, receiver) = self.halves(from);
        let Some(Numbers { sequence, .. }) = segment.numbers else { return true }; // 9.10
        let Some(expected) = receiver.expected else { return false };
        let (window, in_syn) = receiver.window.unwrap_or((0, false));
        let shift = match (receiver.scale, sender.scale) {
            (Some(shift), Some(_)) if !in_syn => shift,
            _ => 0,
        };
        sequence.wrapping_sub(expected) < (u32::from(window) << shift).max(1)
    }

    /// 9.7: true if a FIN from a side is near its receiver's sequence number, or if that is not
    /// known.
    fn fin_plausible(&self, from: Side, segment: Segment) -> bool {
        let (sender, receiver) = self.halves(from);
        let (Some(numbers), Some(expected)) = (segment.numbers, receiver.expected) else {
            return true;
        };
        let shift = match (receiver.scale, sender.scale) {
            (Some(shift), Some(_)) => shift,
            _ => 14,
        };
        let window = i64::from(u16::MAX) << shift;
        let distance = i64::from(numbers.sequence.wrapping_sub(expected) as i32);
        -window <= distance && distance < window
    }

    /// Both ends: the sender of a segment, and its receiver.
    fn halves(&self, from: Side) -> (Half, Half) {
        match from {
            Side::Inside => (self.internal, self.remote),
            Side::Outside => (self.remote, self.internal),
        }
    }

    /// 9.5: notes what a segment from a side tells about both ends.
    fn learn(&mut self, from: Side, segment: Segment, numbers: Numbers) {
        let (sender, receiver) = match from {
            Side::Inside => (&mut self.internal, &mut self.remote),
            Side::Outside => (&mut self.remote, &mut self.internal),
        };
        if segment.any_syn() {
            receiver.expects(numbers.sequence.wrapping_add(1));
            sender.scale = numbers.scale;
        }
        if segment.ack() {
            sender.expects(numbers.acknowledgment);
        }
        if segment.ack() || segment.any_syn() {
            sender.window = Some((numbers.window, segment.any_syn()));
        }
    }
}

/// The fields of a TCP segment or a DCCP packet that decide about the session's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    flags: u8,
    /// `None`: the packet is of DCCP, whose sequence numbers are not followed (9.10).
    pub(crate) numbers: Option<Numbers>,
}

/// Sequence numbers and window of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
}

impl Segment {
    /// A first packet without known sequence numbers (16.17).
    #[cfg(feature = "chapters")]
    pub(crate) fn opening() -> Self {
        Self { flags: flags::SYN, numbers: None }
    }

    /// The segment of a TCP packet, or the equivalent of a DCCP packet.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let ip = ip(bytes);
        match ip.protocol() {
            TCP => Tcp::new_checked(ip.payload()).map(|tcp| Self::of_tcp(&tcp)),
            DCCP => Dccp::new_checked(ip.payload()).map(|dccp| Self::of_dccp(dccp.kind())),
            _ => None,
        }
    }

    fn of_tcp(tcp: &Tcp<&[u8]>) -> Self {
        let numbers = Numbers {
            sequence: tcp.sequence(),
            acknowledgment: tcp.acknowledgment(),
            window: tcp.window(),
            scale: tcp.window_scale(),
        };
        Self { flags: tcp.flags(), numbers: Some(numbers) }
    }

    /// 9.10.
    fn of_dccp(kind: u8) -> Self {
        use dccp::kind::{CLOSE, CLOSE_REQUEST, LISTEN, REQUEST, RESET, RESPONSE};
        let flags = match kind {
            REQUEST | LISTEN => flags::SYN,
            RESPONSE => flags::SYN | flags::ACK,
            CLOSE_REQUEST | CLOSE | RESET => flags::RST,
            _ => flags::ACK,
        };
        Self { flags, numbers: None }
    }

    /// True if RST is set, whatever else is set.
    pub(crate) fn rst(self) -> bool {
        self.flags & flags::RST != 0
    }

    /// True if FIN is set. FIN together with RST counts as RST (9.3).
    pub(crate) fn fin(self) -> bool {
        self.flags & flags::FIN != 0 && !self.rst()
    }

    /// True if ACK is set.
    pub(crate) fn ack(self) -> bool {
        self.flags & flags::ACK != 0
    }

    /// True if SYN is set, whatever else is set.
    pub(crate) fn has_syn(self) -> bool {
        self.flags & flags::SYN != 0
    }

    /// True for SYN without RST and FIN, with or without ACK.
    pub(crate) fn any_syn(self) -> bool {
        self.has_syn() && self.flags & (flags::RST | flags::FIN) == 0
    }

    /// True for SYN without ACK, RST and FIN.
    pub(crate) fn syn(self) -> bool {
        self.any_syn() && !self.ack()
    }
}
