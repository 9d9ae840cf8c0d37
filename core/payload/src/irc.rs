//! IRC: offers of direct connections by DCC in the messages of a client inside.
//!
//! `PRIVMSG nick :^ADCC SEND file 167772165 5000 1024^A`: the address is a number of 32 bits, or an
//! IPv6 address in text, and the client waits at it. What leaves is a number. The other client is a
//! third host, so the expectation is for any remote address, and for one flow. A client must have
//! registered in the manner of RFC 2812 section 3.1, and the server must have welcomed it; each
//! line must have a command of IRC.

use crate::Side;
use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::saved::saved;
use alloc::format;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use natgate_wire::protocol::TCP;
use winnow::ascii::dec_uint;
use winnow::combinator::{alt, delimited, preceded, terminated};
use winnow::token::{literal, take_while};
use winnow::{ModalResult, Parser};

/// Longest line with tags, bytes: 8,191 of tags are allowed, but clients send none of this length.
const LONGEST_LINE: usize = 4096;

/// Lifetime of an expectation, seconds: a person accepts the offer.
const LIFETIME: u16 = 180;

/// Commands with which a client begins.
const FIRST: [&[u8]; 6] = [b"CAP", b"PASS", b"NICK", b"USER", b"AUTHENTICATE", b"SERVICE"];

/// Commands of a client: RFC 2812 and IRCv3.
const COMMANDS: [&[u8]; 52] = [
    b"ADMIN",
    b"AUTHENTICATE",
    b"AWAY",
    b"BATCH",
    b"CAP",
    b"CHATHISTORY",
    b"CONNECT",
    b"CS",
    b"DIE",
    b"ERROR",
    b"HELP",
    b"INFO",
    b"INVITE",
    b"ISON",
    b"JOIN",
    b"KICK",
    b"KILL",
    b"KNOCK",
    b"LINKS",
    b"LIST",
    b"LUSERS",
    b"METADATA",
    b"MODE",
    b"MONITOR",
    b"MOTD",
    b"MS",
    b"NAMES",
    b"NICK",
    b"NOTICE",
    b"NS",
    b"OPER",
    b"PART",
    b"PASS",
    b"PING",
    b"PONG",
    b"PRIVMSG",
    b"QUIT",
    b"REHASH",
    b"SERVICE",
    b"SERVLIST",
    b"SETNAME",
    b"SQUERY",
    b"STATS",
    b"TAGMSG",
    b"TIME",
    b"TOPIC",
    b"USER",
    b"USERHOST",
    b"VERSION",
    b"WHO",
    b"WHOIS",
    b"WHOWAS",
];

/// A connection of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Irc {
    has_begun: bool,
    is_welcome: bool,
}

saved!(Irc { has_begun, is_welcome });

impl Irc {
    /// A connection of a client that the server has welcomed.
    pub(crate) fn welcome() -> Self {
        Self { has_begun: true, is_welcome: true }
    }
}

impl Protocol for Irc {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let line = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
        if !context.is_from_client() {
            self.is_welcome |= self.has_begun && end.is_some() && is_welcome(line);
            // Nothing in a server's line is edited, so nothing but the welcome has to be whole.
            let is_held = !self.is_welcome && end.is_none() && line.len() <= LONGEST_LINE;
            return if is_held { Step::More } else { Step::Pass(line.len()) };
        }
        let text = line.trim_ascii_end();
        let word = match text.first() {
            Some(b'@' | b':') => Some(&b"PRIVMSG"[..]).filter(|_| self.has_begun),
            None => None,
            Some(_) => text.split(|byte| *byte == b' ').next(),
        };
        let known = if self.has_begun { &COMMANDS[..] } else { &FIRST[..] };
        let is_possible = |word: &[u8]| {
            let begins = |one: &&[u8]| {
                let start = one.get(..word.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(word))
            };
            let is_whole = end.is_some() || word.len() < text.len();
            known.iter().any(|one| begins(one) && (!is_whole || one.len() == word.len()))
        };
        match (word, end) {
            (Some(word), _) if !is_possible(word) => Step::Leave(Reason::NotProtocol),
            _ if line.len() > LONGEST_LINE => Step::Leave(Reason::TooLong),
            (_, None) => Step::More,
            (None, Some(_)) => Step::Pass(line.len()),
            (Some(_), Some(_)) => {
                self.has_begun = true;
                let edited = if self.is_welcome { edit(line, context) } else { Ok(()) };
                edited.map_or_else(|step| step, |()| Step::Pass(line.len()))
            }
        }
    }
}

/// True for the reply 001 (RFC 2812 section 5.1).
fn is_welcome(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    words.next().is_some_and(|prefix| prefix.starts_with(b":")) && words.next() == Some(b"001")
}

/// Reads `DCC SEND name ` or the start of another offer, and then address and port.
fn offer(input: &mut &[u8]) -> ModalResult<(IpAddr, u16)> {
    let number = terminated(dec_uint::<_, u32, _>, b' ')
        .map(|number| IpAddr::from(Ipv4Addr::from_bits(number)));
    let in_text = take_while(2..=45, |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte))
        .verify_map(|text| core::str::from_utf8(text).ok()?.parse::<Ipv6Addr>().ok());
    let in_text = terminated(in_text, b' ').map(IpAddr::from);
    let kind = alt((literal(&b"SEND"[..]), literal(&b"CHAT"[..]), literal(&b"RESUME"[..])));
    let quoted = delimited('"', take_while(1.., |byte: u8| byte != b'"'), '"');
    let name = alt((quoted, take_while(1.., |byte: u8| byte != b' ')));
    preceded((kind, b' ', name, b' '), (alt((number, in_text)), dec_uint::<_, u16, _>))
        .parse_next(input)
}

/// Edits an offer in a line.
fn edit(line: &[u8], context: &mut Context<'_>) -> Result<(), Step> {
    const START: &[u8] = b"\x01DCC ";
    let found = line.windows(START.len()).position(|part| part == START);
    let (Some(at), Side::Inside) = (found, context.from()) else { return Ok(()) };
    let text = &line[at + START.len()..];
    let mut rest = text;
    let Ok((address, port)) = offer(&mut rest) else { return Ok(()) };
    let is_whole = rest.first().is_some_and(|byte| b" \x01".contains(byte));
    // Port 0 is the offer of a client that cannot wait for a connection.
    if !is_whole || port == 0 {
        return Ok(());
    }
    let end = at + START.len() + text.len() - rest.len();
    // Address and port are the last two words.
    let mut words = line[..end].rsplitn(3, |byte| *byte == b' ');
    let Some(before) = words.nth(2) else { return Ok(()) };
    let start = before.len() + 1;
    let internal = SocketAddr::new(address, port);
    let external = context.expect_exactly(Expectation {
        protocol: TCP,
        remote: None,
        remote_port: 0,
        internal,
        wanted: Wanted::AddressOfFlow,
        lifetime: LIFETIME,
        uses: Uses::Once,
    });
    let Some(external) = external else { return Ok(()) };
    let text = format!("{} {}", external.ip().to_bits(), external.port());
    context.replace(start..end, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn offers_are_read_as_clients_write_them() {
        let read = |text: &[u8]| offer(&mut { text }).ok();
        let own = Some((IpAddr::from([10, 0, 0, 5]), 5000));
        assert_eq!(read(b"SEND a.txt 167772165 5000 1024\x01"), own);
        assert_eq!(read(b"SEND \"a b\" 167772165 5000 1024\x01"), own);
        assert_eq!(read(b"CHAT chat 167772165 5000\x01"), own);
        let text = read(b"CHAT chat 2001:db8::5 5000\x01").map(|(address, _)| address.to_string());
        assert_eq!(text.as_deref(), Some("2001:db8::5"));
        for bad in
            [&b"SEND a 4294967296 5000"[..], b"SEND a 1 65536", b"SEND a 1", b"XMIT a 1 5000"]
        {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
