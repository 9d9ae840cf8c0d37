//! 19.17: packets from outside that sections 2 to 18 refuse for their headers, and that are
//! translated for hosts of NAT64: with a source route, and ICMP errors from an address of 2.6.

use super::Families;
use super::headers::Four;
use super::words::{checksum_of, put, total};
use natgate_engine::{DropReason, Endpoint, Side, Timestamp, Verdict};
use natgate_ipv6::convert::{ErrorMessage, Refusal};

impl Families {
    /// The packet that sections 2 to 18 get in place of one that goes to a host of NAT64. The error
    /// is the refusal of a source route that is not used up.
    pub(crate) fn amended(
        &self,
        now: Timestamp,
        from: Side,
        bytes: &[u8],
        choice: Option<Endpoint>,
    ) -> Option<Result<Vec<u8>, Refusal>> {
        self.settings.nat64.as_ref().filter(|_| from == Side::Outside)?;
        let four = Four::read(bytes, false).ok()?;
        let header_len = usize::from(bytes[0] & 15) * 4;
        let has_route = has_source_route(four.options);
        let is_error = crate::bytes::is_martian(four.source) && four.quotes();
        if !has_route && !is_error {
            return None;
        }
        let mut amended = bytes.to_vec();
        if has_route {
            amended[20..header_len].fill(1);
        }
        if is_error {
            amended[12..16].copy_from_slice(&[192, 0, 0, 8]);
        }
        put(&mut amended, 10, 0);
        let checksum = checksum_of(total(&amended[..header_len]));
        put(&mut amended, 10, checksum);
        let result = self.ipv4.clone().process(now, from, &amended, choice);
        let is_to_host = result.verdict == Verdict::Forward(Side::Inside)
            && self.nat64_realm().is_some_and(|realm| result.realm == realm);
        is_to_host.then(|| match four.has_source_route() {
            true => {
                let is_answered = !four.is_error() && four.transport.offset == 0; // 19.9
                let error = Some(ErrorMessage::SOURCE_ROUTE_FAILED).filter(|_| is_answered);
                Err(Refusal { reason: DropReason::SourceRoute, error })
            }
            false => Ok(amended),
        })
    }
}

/// True if there is a source route before the end of the options, or before a malformed one.
fn has_source_route(options: &[u8]) -> bool {
    match options {
        [131 | 137, ..] => true,
        [1, rest @ ..] => has_source_route(rest),
        [0, ..] | [] => false,
        [_, len, ..] if *len >= 2 && usize::from(*len) <= options.len() => {
            has_source_route(&options[usize::from(*len)..])
        }
        _ => false,
    }
}
