//! Explanation of a packet: the edits that a protocol would make in it, the flows that it would
//! expect, and the reasons why not. Nothing changes.
//!
//! The payload is read as the next bytes of its flow, behind the bytes that wait, by a copy of the
//! protocol's state.

use crate::Side;
use crate::expectation::{Endpoints, Ports};
use crate::kind::Kind;
use crate::message::{Budget, Context, Opened, Protocol, Step};
use crate::payloads::{ControlPacket, NewFlow, Payloads};
use crate::protocols::Alg;
use crate::reason::Reason;
use crate::stream::edits::{Amount, Edits};
use crate::stream::segment::{Segment, datagram_is_valid};
use alloc::vec::Vec;
use core::cmp::Ordering;
use natgate_wire::tcp::flags::{ACK, SYN};
use natgate_wire::{Ipv4, Udp, protocol, udp};

/// The flow of an explained packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// The flow is read.
    Known,
    /// The packet would begin the flow.
    Begins,
    /// The flow is not known, so the packet would pass unread. The explanation is as if its
    /// connection had been read from the start.
    Unknown,
    /// The flow is not known, and a rule leaves the protocol out. The packet would pass unread.
    LeftOut,
    /// The flow is no ALG's any more, for this reason. The packet would pass unread.
    Left(Reason),
    /// The packet is of a call of PPTP, and not of a control flow.
    Call,
}

/// Place of a segment in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its first byte has come before.
    Repeated,
    /// Its first byte is the next one.
    Next,
    /// Bytes before it are missing: it would wait for them.
    Early,
}

impl From<Ordering> for Place {
    /// The place of a byte with this order to the next one.
    fn from(order: Ordering) -> Self {
        match order {
            Ordering::Less => Self::Repeated,
            Ordering::Equal => Self::Next,
            Ordering::Greater => Self::Early,
        }
    }
}

/// Bytes of a payload, and their replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that came.
    pub old: Vec<u8>,
    /// The bytes that would leave.
    pub new: Vec<u8>,
}

/// What a packet of a control flow would bring about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The protocol.
    pub kind: Kind,
    /// The flow.
    pub flow: FlowState,
    /// Place of the data of a segment in a known flow; `None`: there is no such data.
    pub place: Option<Place>,
    /// Edits, in order.
    pub edits: Vec<Edit>,
    /// Expectations, in order.
    pub opened: Vec<Opened>,
    /// What would not be done, in order.
    pub refused: Vec<Reason>,
    /// Bytes of an incomplete message that would wait for the rest.
    pub waiting: usize,
}

/// Most expectations and reasons of one explanation.
const MOST: usize = 64;

impl Explanation {
    /// An explanation without edits of a packet of a call.
    pub fn of_call(kind: Kind) -> Self {
        Self { flow: FlowState::Call, ..Self::new(kind) }
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            flow: FlowState::Unknown,
            place: None,
            edits: Vec::new(),
            opened: Vec::with_capacity(MOST),
            refused: Vec::with_capacity(MOST),
            waiting: 0,
        }
    }
}

/// Data of a packet, and its segment if it is one.
struct Content<'p> {
    segment: Option<Segment>,
    data: &'p [u8],
}

impl<'p> Content<'p> {
    /// Reads an IPv4 packet. `None`: the packet is neither of TCP nor of UDP. The error is the
    /// reason why its payload is not read.
    fn read(packet: &'p [u8]) -> Option<Result<Self, Reason>> {
        let header = Ipv4::new_checked(packet).ok()?;
        if header.is_fragment() {
            return Some(Err(Reason::Fragment));
        }
        let (start, number) = (header.header_len(), header.protocol());
        let packet = &packet[..usize::from(header.total_len())];
        match number {
            protocol::TCP => {
                let Some(segment) = Segment::parse(packet) else {
                    return Some(Err(Reason::BadChecksum));
                };
                let data = packet.get(segment.data..).unwrap_or_default();
                Some(Ok(Self { segment: Some(segment), data }))
            }
            protocol::UDP => {
                Udp::new_checked(&packet[start..])?;
                let data = packet.get(start + udp::HEADER_LEN..)?;
                let is_valid = datagram_is_valid(packet, start);
                Some(if is_valid {
                    Ok(Self { segment: None, data })
                } else {
                    Err(Reason::BadChecksum)
                })
            }
            _ => None,
        }
    }

    fn number(&self) -> u8 {
        if self.segment.is_some() { protocol::TCP } else { protocol::UDP }
    }

    /// True if the packet may begin a flow.
    fn begins(&self) -> bool {
        self.segment.as_ref().is_none_or(|one| one.has(SYN) && !one.has(ACK))
    }
}

/// A copy of a flow's state, with which a protocol reads.
struct Copied<'f> {
    alg: Alg,
    budget: Budget,
    opener: Side,
    /// Bytes of the packet's direction that wait.
    waiting: &'f [u8],
}

impl Payloads {
    /// Explains a packet. It is as it is outside, or not translated yet. `client` is the side of
    /// the client of a flow that is not known. `None`: the payload is not of the framework.
    pub fn explain(
        &self,
        now: u32,
        (packet, client): (ControlPacket, Side),
        bytes: &[u8],
        ports: &mut dyn Ports,
    ) -> Option<Explanation> {
        let mut told = Explanation::new(packet.kind);
        let content = match Content::read(bytes)? {
            Ok(content) => content,
            Err(reason) => {
                told.refused.push(reason);
                return Some(told);
            }
        };
        let Some(copied) = self.copy(now, (packet, client), &content, &mut told) else {
            return (told.flow == FlowState::LeftOut).then_some(told);
        };
        let is_read = !matches!(told.flow, FlowState::Left(_)) && !content.data.is_empty();
        if is_read {
            let is_datagram = content.segment.is_none();
            let text = [copied.waiting, content.data].concat();
            let known = self.known(content.number(), &packet);
            let now = now.wrapping_add(known.map_or(0, |flow| flow.shift));
            let mut reader =
                Reader { copied, now, from: packet.from, endpoints: &packet.endpoints, ports };
            reader.read(&text, is_datagram, &mut told);
        }
        Some(told)
    }

    /// The state of a packet's flow. `None`: no protocol reads it.
    fn copy(
        &self,
        now: u32,
        (packet, client): (ControlPacket, Side),
        content: &Content<'_>,
        told: &mut Explanation,
    ) -> Option<Copied<'_>> {
        let ControlPacket { kind, from, new_flow, .. } = packet;
        let begins = content.begins();
        let known = self.known(content.number(), &packet);
        if let Some(flow) = known.filter(|flow| !(begins && flow.is_closed())) {
            told.flow = flow.left().map_or(FlowState::Known, FlowState::Left);
            let segment = content.segment.as_ref().filter(|one| !one.has(SYN));
            let segment = segment.filter(|_| !content.data.is_empty());
            told.place =
                segment.map(|segment| flow.order(from, segment.sequence, self.pool()).into());
            let (alg, budget, opener) = flow.state();
            return Some(Copied { alg, budget, opener, waiting: flow.waiting(from, self.pool()) });
        }
        let (alg, opener) = match (new_flow, begins) {
            (NewFlow::Off, _) => return None,
            (NewFlow::LeftOut, _) => {
                told.flow = FlowState::LeftOut;
                told.refused.extend(begins.then_some(Reason::Rule));
                return None;
            }
            (NewFlow::Read, true) => (Alg::new(kind), from),
            (NewFlow::Read, false) => (Alg::begun(kind), client),
        };
        if begins {
            told.flow = FlowState::Begins;
        }
        let reason = if begins { Reason::NoFlow } else { Reason::NoStart };
        told.refused.extend((!begins || self.is_full_for(from)).then_some(reason));
        Some(Copied { alg, budget: Budget::new(now), opener, waiting: &[] })
    }
}

/// A protocol that reads a payload with copied state.
struct Reader<'r> {
    copied: Copied<'r>,
    now: u32,
    from: Side,
    endpoints: &'r Endpoints,
    ports: &'r mut dyn Ports,
}

impl Reader<'_> {
    /// Reads message by message.
    fn read(&mut self, text: &[u8], is_datagram: bool, told: &mut Explanation) {
        let (mut draft, mut at) = (Edits::new(Amount::SMALL), 0);
        while at < text.len() {
            draft.clear();
            match self.step(&text[at..], is_datagram, &mut draft, told) {
                Step::Pass(count) => {
                    told.edits.extend(draft.each().map(|(range, new)| Edit {
                        old: text[at..].get(range).unwrap_or_default().to_vec(),
                        new: new.to_vec(),
                    }));
                    at += if is_datagram { text.len() } else { count.max(1) };
                }
                Step::More if is_datagram => return told.refused.push(Reason::Truncated),
                Step::More => {
                    told.waiting = text.len() - at;
                    return;
                }
                Step::Leave(reason) => return told.refused.push(reason),
            }
        }
    }

    fn step(
        &mut self,
        bytes: &[u8],
        is_datagram: bool,
        draft: &mut Edits,
        told: &mut Explanation,
    ) -> Step {
        let Copied { alg, budget, opener, .. } = &mut self.copied;
        let mut context = Context {
            flow: self.endpoints,
            from: self.from,
            opener: *opener,
            is_datagram,
            now: self.now,
            budget,
            draft,
            ports: &mut *self.ports,
            opened: &mut told.opened,
            refused: &mut told.refused,
        };
        alg.read(bytes, &mut context)
    }
}
