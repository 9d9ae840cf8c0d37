//! TFTP (RFC 1350), with any options (RFC 2347).
//!
//! A client sends its request to port 69, and the server answers from a new port. So the client's
//! mapping has to admit one more port of the same server. Options need nothing: no packet of TFTP
//! has an address. Later packets of the transfer have the server's new port, and are no control
//! flow.

use crate::Side;
use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use natgate_wire::protocol::UDP;
use winnow::binary::be_u16;
use winnow::combinator::{preceded, repeat, terminated};
use winnow::token::{literal, take_while};
use winnow::{ModalResult, Parser};

/// Lifetime of an expectation, seconds: longer than a client repeats its request.
const LIFETIME: u16 = 30;

/// A client's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tftp;

impl Protocol for Tftp {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        if !context.is_from_client() {
            return Step::Pass(bytes.len());
        }
        if request.parse(bytes).is_err() {
            return Step::Leave(Reason::NotProtocol);
        }
        if context.from() == Side::Inside {
            let flow = *context.flow();
            context.expect_exactly(Expectation {
                protocol: UDP,
                remote: Some(*flow.remote.ip()),
                remote_port: 0,
                internal: flow.internal,
                wanted: Wanted::EndpointOfFlow,
                lifetime: LIFETIME,
                uses: Uses::Once,
            });
        }
        Step::Pass(bytes.len())
    }
}

/// A string that ends with a zero.
fn string(input: &mut &[u8]) -> ModalResult<()> {
    terminated(take_while(1.., |byte: u8| byte != 0), 0_u8).void().parse_next(input)
}

/// RRQ or WRQ: file, mode, and pairs of option and value.
fn request(input: &mut &[u8]) -> ModalResult<()> {
    const READ: u16 = 1;
    const WRITE: u16 = 2;
    let operation = be_u16.verify(|operation: &u16| [READ, WRITE].contains(operation));
    let mode = take_while(5..=8, |byte: u8| byte.is_ascii_alphabetic())
        .verify(|mode: &[u8]| {
            [&b"netascii"[..], b"octet", b"mail"].iter().any(|m| mode.eq_ignore_ascii_case(m))
        })
        .void();
    let option = (string, string).void();
    preceded(
        operation,
        (string, terminated(mode, literal(0_u8)), repeat::<_, _, (), _, _>(.., option)),
    )
    .void()
    .parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_the_rfcs_write_them() {
        let is_request = |bytes: &[u8]| request.parse(bytes).is_ok();
        assert!(is_request(b"\0\x01boot.img\0octet\0"));
        assert!(is_request(b"\0\x02a\0NetASCII\0blksize\x001432\0tsize\x000\0"));
        for bad in [
            &b"\0\x03\0\x01data"[..],
            b"\0\x01boot.img\0octet",
            b"\0\x01\0octet\0",
            b"\0\x01a\0text1\0",
            b"\0\x01a\0octet\0blksize\0",
            b"GET / HTTP/1.1\r\n\r\n",
            b"",
        ] {
            assert!(!is_request(bad), "{bad:?}");
        }
    }
}
