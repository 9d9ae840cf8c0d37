//! Headers of a packet to the gateway itself that the gateway does not know: the errors for the
//! sender (RFC 8200 section 4).

use crate::convert::{ErrorMessage, Refusal};
use natgate_engine::DropReason;
use natgate_wire::ipv6::{self, Fragment, MOST_HEADERS, next};
use natgate_wire::{Ipv6, icmpv6, protocol};

/// The only option of one byte.
const PAD1: u8 = 0;
/// Codes of ICMPv6 "parameter problem" (RFC 4443 section 3.4).
const WRONG_FIELD: u8 = 0;
const UNKNOWN_NEXT_HEADER: u8 = 1;
const UNKNOWN_OPTION: u8 = 2;

/// ICMPv6 "parameter problem" about a byte of the packet.
const fn problem(code: u8, at: usize) -> ErrorMessage {
    ErrorMessage::new(icmpv6::kind::PARAMETER_PROBLEM, code, at as u32)
}

fn refused(error: Option<ErrorMessage>) -> Refusal {
    Refusal { reason: DropReason::LocalUnsupported, error }
}

/// Checks the extension headers of a packet to the gateway, up to the fragment header of a
/// fragment.
///
/// # Errors
/// The refusal of the packet: with an error for its sender, unless it is to be dropped silently.
pub(crate) fn check_headers(bytes: &[u8]) -> Result<(), Refusal> {
    let (mut named_at, mut at) = (ipv6::NEXT_HEADER, ipv6::HEADER_LEN);
    let mut is_atomic = false;
    for _ in 0..=MOST_HEADERS {
        let kind = bytes.get(named_at).copied().unwrap_or(next::NONE);
        let is_known =
            matches!(kind, next::HOP_BY_HOP | next::ROUTING | next::DESTINATION | next::FRAGMENT);
        if !is_known {
            return Ok(());
        }
        let header = bytes.get(at..).unwrap_or_default();
        let len = match (kind, header.get(1)) {
            (_, None) => return Err(refused(None)),
            (next::FRAGMENT, _) => ipv6::FRAGMENT_LEN,
            (_, Some(units)) => usize::from(*units) * 8 + 8,
        };
        let header = header.get(..len).ok_or(refused(None))?;
        match kind {
            // No sender writes two headers.
            next::FRAGMENT if is_atomic => return Err(refused(None)),
            next::FRAGMENT if !Fragment::read(header).is_some_and(Fragment::is_atomic) => {
                return Ok(());
            }
            next::FRAGMENT => is_atomic = true,
            //= rfc8200#section-4-hop-by-hop
            next::HOP_BY_HOP if at != ipv6::HEADER_LEN => {
                return Err(refused(Some(problem(UNKNOWN_NEXT_HEADER, named_at))));
            }
            //= rfc8200#section-4.4-unknown
            next::ROUTING if header[3] != 0 => {
                return Err(refused(Some(problem(WRONG_FIELD, at + 2))));
            }
            next::ROUTING => {}
            _ => check_options(header, at)?,
        }
        (named_at, at) = (at, at + len);
    }
    Err(refused(None))
}

/// Checks the options of a header at an offset. The gateway knows padding alone; the two highest
/// bits of a type say what to do without knowledge of the option.
//= rfc8200#section-4.2-unknown
fn check_options(header: &[u8], start: usize) -> Result<(), Refusal> {
    let mut at = 2;
    while let Some(&kind) = header.get(at) {
        match kind >> 6 {
            0 => {}
            1 => return Err(refused(None)),
            _ => return Err(refused(Some(problem(UNKNOWN_OPTION, start + at)))),
        }
        at += match (kind, header.get(at + 1)) {
            (PAD1, _) => 1,
            (_, Some(len)) => usize::from(*len) + 2,
            (_, None) => return Err(refused(None)),
        };
    }
    // The last option ends where the header ends.
    if at == header.len() { Ok(()) } else { Err(refused(None)) }
}

/// The refusal of a packet to the gateway whose extension headers are right, and that nobody takes.
//= rfc8200#section-4-next
pub(crate) fn unknown_protocol(bytes: &[u8]) -> Refusal {
    use protocol::{ICMPV6, TCP, UDP};
    let walk = Ipv6::new_checked(bytes).ok().and_then(|header| header.walk().ok());
    let is_unknown = |walk: &ipv6::Walk| {
        let is_whole = walk.fragment.is_none_or(|(_, fragment)| fragment.is_atomic());
        is_whole && !matches!(walk.protocol, ICMPV6 | TCP | UDP | next::NONE)
    };
    refused(walk.filter(is_unknown).map(|walk| problem(UNKNOWN_NEXT_HEADER, walk.named_at)))
}

/// The error about a fragment of a packet to the gateway that cannot be part of one. The fragment
/// header is at an offset.
pub(crate) fn about_fragment(bytes: &[u8], at: usize, reason: DropReason) -> Option<ErrorMessage> {
    const LENGTH: usize = 4;
    let payload = bytes.len().saturating_sub(at + ipv6::FRAGMENT_LEN);
    match reason {
        //= rfc8200#section-4.5-length
        DropReason::FragmentTiny if !payload.is_multiple_of(8) => {
            Some(problem(WRONG_FIELD, LENGTH))
        }
        //= rfc8200#section-4.5-long
        DropReason::FragmentTooLong => Some(problem(WRONG_FIELD, at + 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A packet with these headers behind the fixed one, which names the first.
    fn packet(first: u8, headers: &[&[u8]]) -> Vec<u8> {
        let mut bytes = alloc::vec![0; 40];
        bytes.extend(headers.concat());
        let len = bytes.len() as u16 - 40;
        let mut header = Ipv6::init(&mut bytes[..40]);
        header.set_payload_len(len);
        header.set_next_header(first);
        bytes
    }

    //= test rfc8200#section-4.2-unknown
    #[test]
    fn unknown_options_are_skipped_or_refused_as_their_type_says() {
        let with = |option: [u8; 6]| packet(60, &[&[17, 0], &option, &[0; 8]]);
        let check = |option| check_headers(&with(option)).map_err(|refusal| refusal.error);
        assert_eq!(check([1, 4, 0, 0, 0, 0]), Ok(()));
        assert_eq!(check([0, 0, 0, 0, 0, 0]), Ok(()));
        assert_eq!(check([0x1e, 4, 0, 0, 0, 0]), Ok(()));
        assert_eq!(check([0x5e, 4, 0, 0, 0, 0]), Err(None));
        assert_eq!(check([0x9e, 4, 0, 0, 0, 0]), Err(Some(problem(2, 42))));
        assert_eq!(check([0, 0xde, 3, 0, 0, 0]), Err(Some(problem(2, 43))));
        // An option that goes past its header.
        assert_eq!(check([1, 5, 0, 0, 0, 0]), Err(None));
        assert_eq!(check([1, 2, 0, 0, 0, 1]), Err(None));
        let second = packet(0, &[&[60, 0, 5, 2, 0, 0, 1, 0], &[17, 0, 0xc9, 4, 0, 0, 0, 0]]);
        assert_eq!(check_headers(&second).map_err(|one| one.error), Err(Some(problem(2, 50))));
    }

    //= test rfc8200#section-4-hop-by-hop
    //= test rfc8200#section-4.4-unknown
    #[test]
    fn headers_in_wrong_places_are_refused() {
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let late = packet(60, &[&[0, 0, 1, 4, 0, 0, 0, 0], &options]);
        let error = |bytes: &[u8]| check_headers(bytes).map_err(|refusal| refusal.error);
        assert_eq!(error(&late), Err(Some(problem(1, 40))));
        let routing = |left| packet(43, &[&[17, 0, 9, left, 0, 0, 0, 0], &[0; 8]]);
        assert_eq!(error(&routing(0)), Ok(()));
        assert_eq!(error(&routing(1)), Err(Some(problem(0, 42))));
        // Behind the header of a fragment nothing is checked.
        let fragment = packet(44, &[&[60, 0, 0, 1, 0, 0, 0, 7], &[17, 0, 0xc9, 4, 0, 0, 0, 0]]);
        assert_eq!(error(&fragment), Ok(()));
        assert_eq!(error(&packet(60, &[&[17, 3, 0, 0]])), Err(None));
        let atomic = [44, 0, 0, 0, 0, 0, 0, 7];
        let twice = packet(44, &[&atomic, &[47, 0, 0, 8, 0, 0, 0, 7], &[0; 8]]);
        assert_eq!(error(&twice), Err(None));
        let many = packet(60, &[&[60, 0, 1, 4, 0, 0, 0, 0][..]; 12]);
        assert_eq!(error(&many), Err(None));
    }

    //= test rfc8200#section-4-next
    #[test]
    fn protocols_that_nobody_takes_are_told_apart() {
        for (protocol, expected) in [(17, None), (6, None), (58, None), (59, None), (47, Some(6))] {
            let error = expected.map(|at| problem(1, at));
            assert_eq!(unknown_protocol(&packet(protocol, &[&[0; 8]])).error, error);
        }
        let behind = packet(60, &[&[50, 0, 1, 4, 0, 0, 0, 0], &[0; 8]]);
        assert_eq!(unknown_protocol(&behind).error, Some(problem(1, 40)));
    }

    //= test rfc8200#section-4.5-length
    //= test rfc8200#section-4.5-long
    #[test]
    fn fragments_of_no_packet_are_told_apart() {
        let fragment = packet(44, &[&[4, 0, 0, 1, 0, 0, 0, 7], &[0; 9]]);
        let about = |reason| about_fragment(&fragment, 40, reason);
        assert_eq!(about(DropReason::FragmentTiny), Some(problem(0, 4)));
        assert_eq!(about(DropReason::FragmentTooLong), Some(problem(0, 42)));
        assert_eq!(about(DropReason::FragmentLimit), None);
        let empty = packet(44, &[&[4, 0, 0, 1, 0, 0, 0, 7]]);
        assert_eq!(about_fragment(&empty, 40, DropReason::FragmentTiny), None);
    }
}
