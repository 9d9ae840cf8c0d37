//! SDP: the addresses and ports of media (RFC 8866, RFC 3605), as a body of SIP.
//!
//! A description from inside names the ports where the host waits for media. Each becomes a pair
//! of external ports, RTP and RTCP, if it is even. Candidates of ICE stay as they are: ICE finds
//! its own way through a translator (RFC 8445), and an edit would break its checks.

use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::Context;
use crate::text;
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use core::ops::Range;
use natgate_wire::protocol::{TCP, UDP};
use winnow::ascii::dec_uint;
use winnow::combinator::{alt, preceded, terminated};
use winnow::token::{literal, take_while};
use winnow::{ModalResult, Parser};

/// Lifetime of an expectation, seconds: a telephone may ring so long.
const LIFETIME: u16 = 180;

/// Most media of one description that are edited.
const MOST_MEDIA: usize = 8;

/// An edit of a message: the place, and the new text.
pub(crate) type Edit = (Range<usize>, Vec<u8>);

/// One medium: its own connection address if it has one, its port, and the port of RTCP.
#[derive(Clone, Debug)]
struct Medium {
    connection: Option<Ipv4Addr>,
    port: (Range<usize>, u16),
    is_tcp: bool,
    rtcp: Option<(Range<usize>, u16)>,
}

/// A description: the addresses in it, and its media.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    connection: Option<Ipv4Addr>,
    addresses: Vec<(Range<usize>, Ipv4Addr)>,
    media: Vec<Medium>,
}

/// Reads `IN IP4 10.0.0.5` up to the address.
fn connection(input: &mut &[u8]) -> ModalResult<Ipv4Addr> {
    preceded(literal("IN IP4 "), text::ipv4).parse_next(input)
}

/// Reads `audio 49170 RTP/AVP` without a number of ports: the medium's length, the port, and true
/// for media by TCP.
fn medium(input: &mut &[u8]) -> ModalResult<(usize, u16, bool)> {
    let name = terminated(take_while(1.., |byte: u8| byte != b' '), b' ').parse_next(input)?;
    let port = terminated(dec_uint::<_, u16, _>, b' ').parse_next(input)?;
    let is_tcp = alt((literal("TCP").value(true), winnow::combinator::empty.value(false)));
    let is_tcp = { is_tcp }.parse_next(input)?;
    Ok((name.len() + 1, port, is_tcp))
}

impl Description {
    /// Reads a description that is a part of a message.
    pub(crate) fn read(message: &[u8], part: Range<usize>) -> Self {
        let mut description = Self::default();
        let mut at = part.start;
        for line in message[part].split(|byte| *byte == b'\n') {
            description.read_line(line.strip_suffix(b"\r").unwrap_or(line), at);
            at += line.len() + 1;
        }
        description
    }

    fn read_line(&mut self, line: &[u8], at: usize) {
        let (Some(kind), Some(mut value)) = (line.get(..2), line.get(2..)) else { return };
        let len = line.len();
        match kind {
            b"c=" => {
                let Ok(address) = connection(&mut value) else { return };
                // A TTL behind a slash is one of multicast, which is not translated.
                if value.is_empty() {
                    self.addresses.push((at + len - address_len(address)..at + len, address));
                    match self.media.last_mut() {
                        Some(medium) => medium.connection = Some(address),
                        None => self.connection = Some(address),
                    }
                }
            }
            b"o=" => {
                let Some(blank) = value.iter().rposition(|byte| *byte == b' ') else { return };
                if let Ok(address) = text::ipv4.parse(&value[blank + 1..]) {
                    self.addresses.push((at + 2 + blank + 1..at + len, address));
                }
            }
            b"m=" if self.media.len() < MOST_MEDIA => {
                let Ok((skipped, port, is_tcp)) = medium(&mut value) else { return };
                let start = at + 2 + skipped;
                let port = (start..start + format!("{port}").len(), port);
                self.media.push(Medium { connection: None, port, is_tcp, rtcp: None });
            }
            b"a=" => {
                let Some(mut text) = value.strip_prefix(b"rtcp:") else { return };
                let all = text.len();
                let Ok(port) = dec_uint::<_, u16, winnow::error::ContextError>(&mut text) else {
                    return;
                };
                let start = at + len - all;
                if let Some(medium) = self.media.last_mut() {
                    medium.rtcp = Some((start..start + all - text.len(), port));
                }
                let mut rest = text.trim_ascii_start();
                if let Ok(address) = connection(&mut rest)
                    && rest.is_empty()
                {
                    self.addresses.push((at + len - address_len(address)..at + len, address));
                }
            }
            _ => {}
        }
    }

    /// The address of the first medium.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        let own = self.media.first().and_then(|medium| medium.connection);
        own.or(self.connection).filter(|address| !address.is_unspecified())
    }

    /// Expects the media of a host inside, from the address of the other side if it is known, and
    /// collects the edits.
    pub(crate) fn expect(
        &self,
        remote: Option<Ipv4Addr>,
        context: &mut Context<'_>,
        edits: &mut Vec<Edit>,
    ) {
        for (range, address) in &self.addresses {
            if context.is_own((*address).into()) {
                let text = format!("{}", context.flow().external.ip());
                edits.push((range.clone(), text.into_bytes()));
            }
        }
        for medium in &self.media {
            let Some(address) = medium.connection.or(self.connection) else { continue };
            if address.is_unspecified() || medium.port.1 == 0 {
                continue;
            }
            medium.expect((address, remote), context, edits);
        }
    }
}

impl Medium {
    fn expect(
        &self,
        (address, remote): (Ipv4Addr, Option<Ipv4Addr>),
        context: &mut Context<'_>,
        edits: &mut Vec<Edit>,
    ) {
        let (range, port) = &self.port;
        let is_pair = port % 2 == 0 && !self.is_tcp;
        let mut expect = |port: u16, wanted: Wanted| {
            context.expect_exactly(Expectation {
                protocol: if self.is_tcp { TCP } else { UDP },
                remote,
                remote_port: 0,
                internal: SocketAddr::new(address.into(), port),
                wanted,
                lifetime: LIFETIME,
                uses: Uses::Many,
            })
        };
        let wanted = if is_pair { Wanted::Pair } else { Wanted::AddressOfFlow };
        let Some(external) = expect(*port, wanted) else { return };
        edits.push((range.clone(), format!("{}", external.port()).into_bytes()));
        let Some((range, rtcp)) = &self.rtcp else { return };
        let rtcp = if is_pair && port + 1 == *rtcp {
            Some(external.port() + 1)
        } else if rtcp == port {
            Some(external.port())
        } else {
            expect(*rtcp, Wanted::AddressOfFlow).map(|external| external.port())
        };
        if let Some(rtcp) = rtcp {
            edits.push((range.clone(), format!("{rtcp}").into_bytes()));
        }
    }
}

fn address_len(address: Ipv4Addr) -> usize {
    format!("{address}").len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_the_rfc_writes_it() {
        let text = b"v=0\r\no=a 1 1 IN IP4 10.0.0.5\r\nc=IN IP4 10.0.0.5\r\nt=0 0\r\n\
            m=audio 49170 RTP/AVP 0\r\na=rtcp:53020 IN IP4 10.0.0.5\r\n\
            m=video 0 RTP/AVP 31\r\nc=IN IP4 0.0.0.0\r\nm=x 5000/2 RTP/AVP 1\r\n";
        let description = Description::read(text, 0..text.len());
        let own = Ipv4Addr::new(10, 0, 0, 5);
        assert_eq!(description.address(), Some(own));
        assert_eq!(description.media.len(), 2);
        for (range, address) in &description.addresses {
            assert_eq!(text[range.clone()], *format!("{address}").as_bytes());
        }
        let audio = &description.media[0];
        assert_eq!(text[audio.port.0.clone()], *b"49170");
        assert_eq!(audio.rtcp.clone().map(|(range, _)| &text[range]), Some(&b"53020"[..]));
        assert_eq!(description.media[1].connection, Some(Ipv4Addr::UNSPECIFIED));
    }
}
