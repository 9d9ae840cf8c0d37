//! 19.3.1: what the gateway does not know of a packet to itself.

use super::headers::{Six, address};
use super::words::word;
use super::{Families, message};
use natgate_engine::{Side, Timestamp};
use natgate_ipv6::convert::ErrorMessage;
use natgate_ipv6::requester_of;

/// A refusal: silent, or with an error.
pub(crate) type Complaint = Option<ErrorMessage>;

fn problem(code: u8, at: usize) -> Complaint {
    Some(ErrorMessage { word: at as u32, ..message(4, code) })
}

/// Checks the extension headers of a packet.
pub(crate) fn check_headers(bytes: &[u8]) -> Result<(), Complaint> {
    let (mut name, mut at, mut count, mut is_atomic) = (6, 40, 0, false);
    while [0, 43, 44, 60].contains(&bytes[name]) {
        let kind = bytes[name];
        count += 1;
        if count > 9 || at + 1 >= bytes.len() {
            return Err(None);
        }
        let len = if kind == 44 { 8 } else { 8 * (1 + usize::from(bytes[at + 1])) };
        if at + len > bytes.len() {
            return Err(None);
        }
        match kind {
            44 if is_atomic => return Err(None),
            44 if word(bytes, at + 2) & 0xfff9 != 0 => return Ok(()),
            44 => is_atomic = true,
            0 if at > 40 => return Err(problem(1, name)),
            43 if bytes[at + 3] > 0 => return Err(problem(0, at + 2)),
            0 | 60 => check_options(&bytes[..at + len], at + 2)?,
            _ => {}
        }
        (name, at) = (at, at + len);
    }
    Ok(())
}

fn check_options(bytes: &[u8], at: usize) -> Result<(), Complaint> {
    if at >= bytes.len() {
        return if at == bytes.len() { Ok(()) } else { Err(None) };
    }
    let next = match bytes[at] {
        0 => at + 1,
        64..128 => return Err(None),
        128.. => return Err(problem(2, at)),
        _ => at + 2 + usize::from(*bytes.get(at + 1).ok_or(None)?),
    };
    check_options(bytes, next)
}

/// The error about the protocol of a packet whose headers are right.
pub(crate) fn unknown_protocol(bytes: &[u8]) -> Complaint {
    let Ok(six) = Six::read(bytes, false) else { return None };
    let is_known = [6, 17, 58, 59].contains(&six.transport.protocol);
    if is_known || six.is_fragment() {
        return None;
    }
    let mut name = 6;
    let mut at = 40;
    while at < six.at {
        let len = if bytes[name] == 44 { 8 } else { 8 * (1 + usize::from(bytes[at + 1])) };
        (name, at) = (at, at + len);
    }
    problem(1, name)
}

impl Families {
    /// Sends an error about a packet from the address that the packet went to.
    pub(crate) fn complain(
        &mut self,
        now: Timestamp,
        side: Side,
        received: &[u8],
        complaint: Complaint,
    ) {
        let Some(message) = complaint else { return };
        let link = if side == Side::Inside { self.settings.inside } else { self.settings.outside };
        if link.icmp_errors && !super::errors::may_answer6(received, message) {
            return;
        }
        let requester = requester_of((address(received, 8) >> 64) as u64);
        let bytes = self.error6(address(received, 24), received, message);
        self.send_own(now, side, requester, Some(bytes));
    }
}
