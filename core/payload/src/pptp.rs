//! PPTP: the control connection (RFC 2637).
//!
//! Each end gives a call a number of 16 bits, its Call ID. A packet of the tunnel has the number of
//! its receiver alone. So hosts behind one external address would meet: each number of the host
//! inside becomes an external one, and the external one becomes its own in messages from outside.
//! Numbers of the remote host stay. No message changes its length.
//!
//! Either end may be the server (PNS) or the access concentrator (PAC): what a field is follows
//! from the type of its message. Only messages of the host inside make calls. Whatever the two ends
//! say in which order passes, as long as lengths and the Magic Cookie are right.

use crate::Side;
use crate::expectation::{CallStep, Expectation, Uses, Wanted};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use core::net::SocketAddr;
use core::ops::Range;
use natgate_wire::protocol::GRE;

/// Time that the first packet of a call's tunnel may take, seconds.
const LIFETIME: u16 = 300;

/// Length of the header with the type of a control message, bytes (RFC 2637 section 2).
const HEADER: usize = 12;

/// Longest message, bytes. The longest of the RFC, Incoming-Call-Request, has 220.
const LONGEST: usize = 1024;

/// Bytes of the header that each message has.
const MAGIC_COOKIE: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// Place of the first number of a message, which is the sender's or its peer's.
const FIRST: Range<usize> = 12..14;

/// Place of the peer's number in the two replies.
const SECOND: Range<usize> = 14..16;

/// Place of the result of the two replies.
const RESULT: usize = 16;

/// A type of control message that is about calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// Start-Control-Connection-Request: it releases all numbers (RFC 2637 section 3.2.1).
    Start,
    /// Outgoing-Call-Request, Incoming-Call-Request: the sender's new number.
    Request,
    /// Outgoing-Call-Reply, Incoming-Call-Reply: the sender's new number, and its peer's.
    Reply,
    /// Incoming-Call-Connected, WAN-Error-Notify, Set-Link-Info: the number of the sender's peer.
    News,
    /// Call-Clear-Request: the sender's number.
    Clear,
    /// Call-Disconnect-Notify: the sender's number.
    Disconnect,
}

impl Message {
    /// RFC 2637 section 1.4. `None`: the message says nothing of calls.
    fn of_type(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Start),
            7 | 9 => Some(Self::Request),
            8 | 10 => Some(Self::Reply),
            11 | 14 | 15 => Some(Self::News),
            12 => Some(Self::Clear),
            13 => Some(Self::Disconnect),
            _ => None,
        }
    }
}

/// A control connection. The translator's table has its calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pptp;

impl Protocol for Pptp {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        if context.is_between_families() {
            return Step::Leave(Reason::Families);
        }
        let Some(len) = message_len(bytes) else { return Step::Leave(Reason::NotProtocol) };
        match bytes.get(..len) {
            Some(message) if len >= HEADER => {
                take(message, context).map_or_else(|step| step, |()| Step::Pass(len))
            }
            _ => Step::More,
        }
    }
}

/// Length of the message that begins here; 0: not known yet. `None`: it is no message of PPTP.
fn message_len(bytes: &[u8]) -> Option<usize> {
    let is_possible = |at: usize, allowed: &[u8]| {
        let known = &bytes[at.min(bytes.len())..];
        known.iter().zip(allowed).all(|(one, other)| one == other)
    };
    // Control messages and management messages.
    let is_kind = is_possible(2, &[0, 1]) || is_possible(2, &[0, 2]);
    if !is_kind || !is_possible(4, &MAGIC_COOKIE) {
        return None;
    }
    let len = match *bytes {
        [high] if usize::from(high) << 8 <= LONGEST => return Some(0),
        [high, low, ..] => usize::from(u16::from_be_bytes([high, low])),
        _ => return None,
    };
    (HEADER..=LONGEST).contains(&len).then_some(len)
}

fn number(message: &[u8], place: Range<usize>) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(place)?.try_into().ok()?))
}

/// Takes a whole message. A message that is too short for its numbers passes as it is.
fn take(message: &[u8], context: &mut Context<'_>) -> Result<(), Step> {
    const CONTROL: u16 = 1;
    let kind = number(message, 8..10).and_then(Message::of_type);
    let is_control = number(message, 2..4) == Some(CONTROL);
    let (Some(kind), Some(first), true) = (kind, number(message, FIRST), is_control) else {
        return Ok(());
    };
    match context.from() {
        Side::Inside => take_own(kind, first, message, context),
        Side::Outside => take_others(kind, first, message, context),
    }
}

/// A message of the host inside.
fn take_own(
    kind: Message,
    first: u16,
    message: &[u8],
    context: &mut Context<'_>,
) -> Result<(), Step> {
    let external = match kind {
        Message::Start => context.call(CallStep::Restart),
        Message::Request => open(first, context),
        Message::Reply if is_success(message) => {
            let external = open(first, context);
            if let (Some(_), Some(peer)) = (external, number(message, SECOND)) {
                context.call(CallStep::Peer { internal: first, peer });
            }
            external
        }
        // A call that failed has no number, or one that nobody uses.
        Message::Reply | Message::Disconnect => context.call(CallStep::End(first)),
        Message::Clear => context.call(CallStep::Clear(first)),
        Message::News => None,
    };
    replace(FIRST, first, external, context)
}

/// A message of the remote host.
fn take_others(
    kind: Message,
    first: u16,
    message: &[u8],
    context: &mut Context<'_>,
) -> Result<(), Step> {
    match kind {
        Message::Start => {
            context.call(CallStep::Restart);
            Ok(())
        }
        Message::Request => Ok(()),
        Message::Reply => {
            let Some(external) = number(message, SECOND) else { return Ok(()) };
            let internal = context.call(CallStep::Internal(external));
            if let Some(internal) = internal {
                if is_success(message) {
                    context.call(CallStep::Peer { internal, peer: first });
                } else {
                    context.call(CallStep::End(internal));
                }
            }
            replace(SECOND, external, internal, context)
        }
        Message::News => {
            let internal = context.call(CallStep::Internal(first));
            replace(FIRST, first, internal, context)
        }
        Message::Clear => {
            if let Some(internal) = context.call(CallStep::OfPeer(first)) {
                context.call(CallStep::Clear(internal));
            }
            Ok(())
        }
        Message::Disconnect => {
            if let Some(internal) = context.call(CallStep::OfPeer(first)) {
                context.call(CallStep::End(internal));
                return Ok(());
            }
            // Some concentrators name the number of the other end.
            let internal = context.call(CallStep::Internal(first));
            if let Some(internal) = internal {
                context.call(CallStep::End(internal));
            }
            replace(FIRST, first, internal, context)
        }
    }
}

/// True if a reply says that the call is established, or has no room for a result.
fn is_success(message: &[u8]) -> bool {
    const CONNECTED: u8 = 1;
    message.get(RESULT).is_none_or(|result| *result <= CONNECTED)
}

/// The external number for a number of the host inside, as an expectation of the tunnel.
fn open(internal: u16, context: &mut Context<'_>) -> Option<u16> {
    let flow = *context.flow();
    let made = context.expect_exactly(Expectation {
        protocol: GRE,
        remote: Some(*flow.remote.ip()),
        remote_port: 0,
        internal: SocketAddr::new(flow.internal.ip(), internal),
        wanted: Wanted::CallId,
        lifetime: LIFETIME,
        uses: Uses::Once,
    });
    made.map(|external| external.port())
}

fn replace(
    place: Range<usize>,
    old: u16,
    new: Option<u16>,
    context: &mut Context<'_>,
) -> Result<(), Step> {
    match new {
        Some(new) if new != old => context.replace(place, &new.to_be_bytes()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_proves_the_protocol_from_its_first_byte_on() {
        let whole = [0, 16, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, 12, 0, 0, 0, 7, 0, 0];
        assert_eq!(message_len(&whole[..1]), Some(0));
        for len in 2..=whole.len() {
            assert_eq!(message_len(&whole[..len]), Some(16));
        }
        for (at, value) in [(0, 5), (1, 11), (2, 1), (3, 3), (4, 0x2b), (7, 0x4c)] {
            let mut bad = whole;
            bad[at] = value;
            for len in 0..=whole.len() {
                let is_seen = len > at.max(1) || (len == 1 && at == 0);
                assert_eq!(message_len(&bad[..len]).is_none() && len > 0, is_seen, "{at}, {len}");
            }
        }
        for text in ["GET / HTTP/1.1\r\n", "\u{16}\u{3}\u{1}", "SSH-2.0"] {
            assert!((1..=text.len()).all(|len| message_len(&text.as_bytes()[..len]).is_none()));
        }
    }
}
