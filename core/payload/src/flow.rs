//! One control flow: its endpoints, its protocol, and for TCP its two directions.
//!
//! A flow that is idle needs nothing else. Whatever packets come, the flow either passes bytes that
//! its protocol has read, or has left the protocol and passes everything.

mod saved;

use crate::Side;
use crate::expectation::{Endpoints, PackedEndpoints, Ports};
use crate::message::{Budget, Context, Opened, Protocol, Step};
use crate::outbox::{BUFFER, Outbox};
use crate::protocols::Alg;
use crate::reason::Reason;
use crate::room::Room;
use crate::stream::direction::{Cause, Data, Direction, Read, Reader, Scratch, Taken};
use crate::stream::edits::Edits;
use crate::stream::segment::{self, Segment};
use crate::stream::work::Pool;
use alloc::vec::Vec;
use core::cmp::Ordering;
use natgate_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};

/// Lifetimes without packets, seconds: longer than those of the engine's sessions.
const OPENING: u32 = 250;
/// Lifetime of a flow that began outside, before the host inside has sent a packet. Anybody can
/// forge such a beginning.
const UNANSWERED: u32 = 30;
const ESTABLISHED: u32 = 7_700;
/// No flow lasts longer without packets, seconds.
pub(crate) const LONGEST: u32 = ESTABLISHED;
const CLOSING: u32 = 250;

/// A control flow.
#[derive(Debug)]
pub(crate) struct Flow {
    endpoints: PackedEndpoints,
    pub(crate) alg: Alg,
    /// Directions of TCP, from inside and from outside.
    directions: Directions,
    budget: Budget,
    /// Time of its end without packets, seconds.
    pub(crate) expires: u32,
    /// What the clock of the flow is ahead, seconds: the flow began at another node.
    pub(crate) shift: u32,
    pub(crate) protocol: u8,
    opener: Side,
    /// The reason why the flow is no ALG's any more.
    left: Option<Reason>,
    is_closed: bool,
    /// True after a packet from inside.
    is_answered: bool,
}

const _: () = assert!(size_of::<Flow>() <= 256);

/// Memory of the framework that all flows share.
pub(crate) struct Tools<'t> {
    pub(crate) now: u32,
    pub(crate) pool: &'t mut Pool,
    pub(crate) scratch: &'t mut Scratch,
    pub(crate) out: &'t mut Vec<u8>,
    pub(crate) outbox: &'t mut Outbox,
    pub(crate) ports: &'t mut dyn Ports,
    pub(crate) opened: &'t mut Vec<Opened>,
    pub(crate) refused: &'t mut Vec<Reason>,
}

/// What to do with a packet of a control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Send the packet on. It may be another one now.
    Pass,
    /// Forget the packet: all it had is held, or comes again.
    Held,
}

/// The protocol of a flow with its surroundings, as a direction reads by it.
struct Conversation<'c> {
    alg: &'c mut Alg,
    left: &'c mut Option<Reason>,
    endpoints: Endpoints,
    budget: &'c mut Budget,
    from: Side,
    opener: Side,
    is_datagram: bool,
    now: u32,
    ports: &'c mut dyn Ports,
    opened: &'c mut Vec<Opened>,
    refused: &'c mut Vec<Reason>,
}

type Directions = [Direction; 2];

/// Memory for the bytes and edits of a direction.
struct Memory<'m> {
    pool: &'m mut Pool,
    scratch: &'m mut Scratch,
}

impl Conversation<'_> {
    fn count(&mut self, reason: Reason) {
        if self.refused.len() < self.refused.capacity() {
            self.refused.push(reason);
        }
    }

    fn step(&mut self, bytes: &[u8], draft: &mut Edits) -> Step {
        let mut context = Context {
            flow: &self.endpoints,
            from: self.from,
            opener: self.opener,
            is_datagram: self.is_datagram,
            now: self.now,
            budget: &mut *self.budget,
            draft,
            ports: &mut *self.ports,
            opened: &mut *self.opened,
            refused: &mut *self.refused,
        };
        self.alg.read(bytes, &mut context)
    }
}

impl Reader for Conversation<'_> {
    fn read(&mut self, bytes: &[u8], draft: &mut Edits) -> Read {
        match self.step(bytes, draft) {
            Step::Pass(count) => Read::Pass(count),
            Step::More => Read::More,
            Step::Leave(reason) => {
                self.count(reason);
                *self.left = Some(reason);
                Read::Leave
            }
        }
    }

    fn leave(&mut self, cause: Cause) {
        if self.left.is_none() {
            let reason = match cause {
                Cause::Truncated => Reason::Truncated,
                Cause::NoBuffer => Reason::NoBuffer,
                Cause::TooLong => Reason::TooLong,
            };
            self.count(reason);
            *self.left = Some(reason);
        }
    }

    fn has_left(&self) -> bool {
        self.left.is_some()
    }
}

impl Flow {
    pub(crate) fn new(
        endpoints: Endpoints,
        protocol: u8,
        opener: Side,
        alg: Alg,
        now: u32,
    ) -> Self {
        Self {
            endpoints: endpoints.into(),
            alg,
            directions: [Direction::new(); 2],
            budget: Budget::new(now),
            expires: now + if opener == Side::Inside { OPENING } else { UNANSWERED },
            shift: 0,
            protocol,
            opener,
            left: None,
            is_closed: false,
            is_answered: false,
        }
    }

    pub(crate) fn endpoints(&self) -> Endpoints {
        self.endpoints.into()
    }

    /// The side that sent the first packet.
    pub(crate) fn opener(&self) -> Side {
        self.opener
    }

    /// True if the host inside has begun or answered the flow.
    pub(crate) fn has_host(&self) -> bool {
        let is_answered = self.is_answered || self.directions[Side::Inside as usize].is_started;
        is_answered || self.opener == Side::Inside
    }

    /// True if a direction has another length outside than inside, or bytes that only the framework
    /// still has: their sender does not repeat them, and their receiver lacks them.
    pub(crate) fn is_changed(&self, pool: &Pool) -> bool {
        self.directions.iter().any(|one| one.sum(pool) != 0 || one.owes())
    }

    /// True if a segment must not pass unread: the protocol reads the connection, or has changed
    /// it.
    pub(crate) fn needs_all_segments(&self, pool: &Pool) -> bool {
        let has_begun = self.directions.iter().all(|direction| direction.is_started);
        has_begun && (self.left.is_none() || self.is_changed(pool))
    }

    /// Resets of the connection for both hosts, as packets outside, if it [has
    /// changed](Flow::is_changed).
    pub(crate) fn resets(&self, pool: &Pool) -> Option<[(Side, [u8; 40]); 2]> {
        let is_changed = self.is_changed(pool);
        let Endpoints { external, remote, .. } = self.endpoints();
        let [inside, outside] = self.directions.each_ref().map(|one| one.next_forward(pool));
        is_changed.then(|| {
            let to_inside = segment::reset(remote, external, outside);
            [(Side::Inside, to_inside), (Side::Outside, segment::reset(external, remote, inside))]
        })
    }

    /// Gives all borrowed memory back.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        self.directions.iter_mut().for_each(|direction| direction.close(pool));
    }

    /// True if a SYN may begin the flow anew.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The reason why the flow is no ALG's any more.
    pub(crate) fn left(&self) -> Option<Reason> {
        self.left
    }

    /// State of the protocol, budget, and the side of the client.
    pub(crate) fn state(&self) -> (Alg, Budget, Side) {
        (self.alg, self.budget, self.opener)
    }

    /// Bytes of a direction that wait for the end of their message.
    pub(crate) fn waiting<'p>(&self, from: Side, pool: &'p Pool) -> &'p [u8] {
        self.directions[from as usize].waiting(pool)
    }

    /// Order of a number to that of the next byte of a direction.
    pub(crate) fn order(&self, from: Side, at: u32, pool: &Pool) -> Ordering {
        self.directions[from as usize].order(at, pool)
    }

    /// The protocol with its surroundings, and the memory that it does not use itself.
    fn conversation<'c>(
        &'c mut self,
        from: Side,
        tools: &'c mut Tools<'_>,
    ) -> (Conversation<'c>, &'c mut Directions, Memory<'c>) {
        let conversation = Conversation {
            alg: &mut self.alg,
            left: &mut self.left,
            endpoints: self.endpoints.into(),
            budget: &mut self.budget,
            from,
            opener: self.opener,
            is_datagram: self.protocol == natgate_wire::protocol::UDP,
            now: tools.now,
            ports: &mut *tools.ports,
            opened: &mut *tools.opened,
            refused: &mut *tools.refused,
        };
        let memory = Memory { pool: &mut *tools.pool, scratch: &mut *tools.scratch };
        (conversation, &mut self.directions, memory)
    }

    /// Takes a datagram whose data begins at `data`.
    pub(crate) fn take_datagram(
        &mut self,
        from: Side,
        (transport, data): (usize, usize),
        room: &mut Room<'_>,
        tools: &mut Tools<'_>,
    ) {
        self.is_answered |= from == Side::Inside;
        self.expires = tools.now + if self.is_answered { self.alg.patience() } else { UNANSWERED };
        // Hosts keep their mappings alive with empty datagrams.
        if self.left.is_some() || data == room.bytes().len() {
            return;
        }
        let mut out = core::mem::take(tools.out);
        out.clear();
        let bytes = &room.bytes()[data..];
        let (mut conversation, _, memory) = self.conversation(from, tools);
        let draft = memory.scratch.draft();
        let read = conversation.read(bytes, draft);
        if read == Read::More {
            conversation.leave(Cause::Truncated);
        }
        // Anybody outside can forge a datagram; only the host inside proves what its flow is.
        *conversation.left = conversation.left.filter(|_| from == Side::Inside);
        let is_edited = matches!(read, Read::Pass(_)) && !draft.is_empty();
        draft.write(0, bytes, &mut out);
        *tools.out = out;
        if !is_edited {
            return;
        }
        if data + tools.out.len() > room.capacity() {
            tools.refused.push(Reason::NoRoom);
            return;
        }
        room.set_len(data + tools.out.len());
        room.bytes_mut()[data..].copy_from_slice(tools.out);
        let length = (room.bytes().len() - transport) as u16;
        room.bytes_mut()[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
        segment::finish(room.bytes_mut(), transport);
    }

    /// Takes a segment.
    pub(crate) fn take_segment(
        &mut self,
        from: Side,
        segment: &Segment,
        room: &mut Room<'_>,
        tools: &mut Tools<'_>,
    ) -> Fate {
        let own = from as usize;
        if segment.has(SYN) {
            self.take_syn(from, segment, room.bytes(), tools);
            return Fate::Pass;
        }
        if !self.directions.iter().all(|direction| direction.is_started) {
            return Fate::Pass;
        }
        if !segment.has(RST) {
            self.expires = tools.now + if self.is_closed { CLOSING } else { ESTABLISHED };
            let direction = &mut self.directions[own];
            // The numbers of a forged segment are a guess.
            if direction.is_near(segment.sequence, tools.pool) {
                direction.window = segment.window;
                direction.stamp = segment.stamp(room.bytes()).unwrap_or(direction.stamp);
            }
        }
        let (acknowledgment, is_news) = self.acknowledge(from, segment, room, tools.pool);
        if segment.has(RST) || (segment.data == room.bytes().len() && !segment.has(FIN)) {
            self.pass_empty(from, segment, acknowledgment, room, tools);
            return Fate::Pass;
        }
        self.pass_data(from, segment, (acknowledgment, is_news), room, tools)
    }

    fn take_syn(&mut self, from: Side, segment: &Segment, packet: &[u8], tools: &mut Tools<'_>) {
        let opener = &self.directions[self.opener as usize];
        // A forged answer does not know the opener's number.
        let is_right = match (from == self.opener, segment.has(ACK)) {
            (false, true) if self.left.is_none() => {
                opener.is_started && opener.is_next(segment.acknowledgment, tools.pool)
            }
            (is_opener, is_answer) => is_opener != is_answer,
        };
        let direction = &mut self.directions[from as usize];
        if direction.is_started || !is_right {
            return;
        }
        direction.start(segment.sequence, segment.mss);
        let reason = if segment.is_signed {
            Reason::Signed
        } else if segment.data < packet.len() {
            Reason::Odd
        } else {
            return;
        };
        if self.left.is_none() {
            tools.refused.push(reason);
            self.left = Some(reason);
        }
    }

    /// Maps the acknowledgment of a segment. Returns it, and true if it is news for its receiver.
    fn acknowledge(
        &mut self,
        from: Side,
        segment: &Segment,
        room: &mut Room<'_>,
        pool: &mut Pool,
    ) -> (u32, bool) {
        if !segment.has(ACK) {
            return (segment.acknowledgment, false);
        }
        let other = &mut self.directions[from.other() as usize];
        let mapped = other.acknowledge(segment.acknowledgment, pool);
        segment.map_sack(room.bytes_mut(), |left, right| {
            let first = other.back(left, pool);
            let is_exact = other.forward(first, pool) == left;
            (first.wrapping_add(u32::from(!is_exact)), other.back(right, pool))
        });
        mapped
    }

    /// Passes a segment without data.
    fn pass_empty(
        &mut self,
        from: Side,
        segment: &Segment,
        acknowledgment: u32,
        room: &mut Room<'_>,
        tools: &mut Tools<'_>,
    ) {
        let direction = &self.directions[from as usize];
        if segment.has(RST) && direction.is_next(segment.sequence, tools.pool) {
            (self.is_closed, self.expires) = (true, tools.now + CLOSING);
        }
        let sequence = direction.forward_empty(segment.sequence, tools.pool);
        let len = room.bytes().len();
        let data = segment.data.min(len);
        tools.out.clear();
        tools.out.extend_from_slice(&room.bytes()[data..]);
        segment.write(room, (sequence, acknowledgment), segment.flags, tools.out);
    }

    /// Passes a segment with data, or its end.
    fn pass_data(
        &mut self,
        from: Side,
        segment: &Segment,
        (acknowledgment, is_news): (u32, bool),
        room: &mut Room<'_>,
        tools: &mut Tools<'_>,
    ) -> Fate {
        tools.out.clear();
        let mut out = core::mem::take(tools.out);
        let bytes = &room.bytes()[segment.data..];
        let data = Data { sequence: segment.sequence, bytes, is_last: segment.has(FIN) };
        let (mut conversation, directions, memory) = self.conversation(from, tools);
        let memory = (memory.pool, memory.scratch);
        let taken = directions[from as usize].take(data, &mut conversation, memory, &mut out);
        let came = bytes.len();
        self.is_closed |= self.directions.iter().all(|direction| direction.is_ended);
        if let Some(number) = taken.acknowledge {
            self.answer(from, segment, number, room, tools);
        }
        if taken.is_dropped {
            tools.refused.push(Reason::Dropped);
        }
        let fate = if out.is_empty() && !taken.is_last {
            self.pass_nothing(from, segment, (acknowledgment, is_news), room, tools)
        } else {
            self.send(from, segment, (acknowledgment, taken), (&out, came), room, tools);
            Fate::Pass
        };
        *tools.out = out;
        fate
    }

    /// Sends a segment without its data, if its acknowledgment is news.
    fn pass_nothing(
        &self,
        from: Side,
        segment: &Segment,
        (acknowledgment, is_news): (u32, bool),
        room: &mut Room<'_>,
        tools: &mut Tools<'_>,
    ) -> Fate {
        if !is_news {
            return Fate::Held;
        }
        let sequence = self.directions[from as usize].next_forward(tools.pool);
        segment.write(room, (sequence, acknowledgment), segment.flags & !(FIN | PSH), &[]);
        Fate::Pass
    }

    /// Sends bytes with a segment, and what does not fit into it in packets of the framework's own.
    fn send(
        &self,
        from: Side,
        segment: &Segment,
        (acknowledgment, taken): (u32, Taken),
        (out, came): (&[u8], usize),
        room: &mut Room<'_>,
        tools: &mut Tools<'_>,
    ) {
        //= rfc6384#section-5-sequence
        let mss = usize::from(self.directions[from.other() as usize].mss);
        let limit = mss.saturating_sub(segment.options_len()).max(came).max(64);
        let first = limit.min(room.capacity() - segment.data).min(out.len());
        const URGENT: u8 = 0x20;
        //= rfc6384#section-5-urgent
        // The urgent pointer counts from the segment's start: it fits only to unchanged data.
        let kept = if segment.is_urgent && out.len() == came { 0 } else { URGENT };
        let flags = |is_end: bool| {
            let without = if is_end { 0 } else { FIN | PSH };
            let last = if is_end && taken.is_last { FIN } else { 0 };
            (segment.flags & !(FIN | without | kept)) | last
        };
        let numbers = (taken.sequence, acknowledgment);
        segment.write(room, numbers, flags(first == out.len()), &out[..first]);
        let mut at = first;
        while at < out.len() {
            let len = limit.min(BUFFER - segment.data).min(out.len() - at);
            let numbers = (taken.sequence.wrapping_add(at as u32), acknowledgment);
            let is_end = at + len == out.len();
            let is_queued =
                tools.outbox.push(from.other(), &room.bytes()[..segment.data], |room| {
                    segment::set_atomic(room.bytes_mut());
                    segment.write(room, numbers, flags(is_end), &out[at..at + len]);
                });
            if !is_queued {
                tools.refused.push(Reason::Dropped);
                return;
            }
            at += len;
        }
    }

    /// Acknowledges bytes to their sender.
    fn answer(
        &self,
        from: Side,
        segment: &Segment,
        number: u32,
        room: &Room<'_>,
        tools: &mut Tools<'_>,
    ) {
        let other = &self.directions[from.other() as usize];
        let numbers = (other.next_forward(tools.pool), number);
        let (window, stamp) = (other.window, other.stamp);
        // Without a buffer, the sender repeats its bytes, and gets another answer.
        let _ = tools.outbox.push(from, &room.bytes()[..segment.data], |room| {
            segment.answer(room, numbers, window, stamp);
        });
    }
}
