//! FTP: the control connection (RFC 959, RFC 2428), also between families (RFC 6384).
//!
//! Only a host inside makes expectations: a client by PORT and EPRT, a server by the replies 227
//! and 229. The rest passes as it is. A client speaks after the server's greeting and only in
//! commands of FTP; anything else is another protocol, and the flow leaves FTP for ever.
//!
//! Between families, a client inside has IPv6 and the server outside IPv4. EPSV becomes PASV and
//! the reply 227 becomes 229, EPRT becomes PORT. EPSV with an argument that the server must not see
//! becomes NOOP, and the reply to it gets the code of RFC 6384 section 6. So does ALGS, by which a
//! client asks about the translation and turns it off and on (section 11). Text that is written
//! here is ASCII, whatever language the client and the server speak (section 5.1).

use crate::Side;
use crate::expectation::Uses;
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::saved::saved;
use alloc::format;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ops::Range;
use natgate_wire::protocol::TCP;
use winnow::ascii::dec_uint;
use winnow::combinator::{alt, preceded};
use winnow::token::{any, take_while};
use winnow::{ModalResult, Parser};

/// Longest line, bytes: a path of 4,096 and a command.
const LONGEST_LINE: usize = 4200;

/// Lifetime of an expectation, seconds.
//= rfc6384#section-12-lifetime
const LIFETIME: u16 = 60;

/// Commands: RFC 959, 775, 1639, 2228, 2389, 2428, 2640, 3659, 6384, 7151, and common ones that the
/// registry of RFC 5797 or servers have. A client says PRET before PASV or EPSV to a server that
/// lists it as a feature; CPSV and SSCN are of transfers between servers.
const COMMANDS: [&[u8]; 72] = [
    b"ABOR", b"ACCT", b"ADAT", b"ALGS", b"ALLO", b"APPE", b"AUTH", b"AVBL", b"CCC", b"CDUP",
    b"CLNT", b"CONF", b"CPSV", b"CSID", b"CWD", b"DELE", b"DSIZ", b"ENC", b"EPRT", b"EPSV",
    b"FEAT", b"HASH", b"HELP", b"HOST", b"LANG", b"LIST", b"LPRT", b"LPSV", b"MDTM", b"MFCT",
    b"MFF", b"MFMT", b"MIC", b"MKD", b"MLSD", b"MLST", b"MODE", b"NLST", b"NOOP", b"OPTS", b"PASS",
    b"PASV", b"PBSZ", b"PORT", b"PRET", b"PROT", b"PWD", b"QUIT", b"RANG", b"REIN", b"REST",
    b"RETR", b"RMD", b"RNFR", b"RNTO", b"SITE", b"SIZE", b"SMNT", b"SSCN", b"STAT", b"STOR",
    b"STOU", b"STRU", b"SYST", b"TYPE", b"USER", b"XCRC", b"XCUP", b"XCWD", b"XMKD", b"XPWD",
    b"XRMD",
];

/// A command that is not answered yet, if its answer matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Command {
    /// Its answer passes.
    #[default]
    Other,
    /// EPSV that became PASV.
    Passive,
    /// EPSV ALL that became NOOP.
    PassiveAll,
    /// EPSV for another family that became NOOP.
    OtherFamily,
    /// AUTH.
    Authentication,
    /// ALGS that became NOOP, while translation is on.
    StatusOn,
    /// The same, while translation is off.
    StatusOff,
    /// ALGS with another argument.
    StatusUnknown,
}

/// Commands without an answer, the oldest first.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    /// Commands whose answer matters, each with the number of other ones directly before it.
    marked: [(u16, Command); 8],
    count: u8,
    /// Other commands behind these.
    others: u16,
}

impl Unanswered {
    /// True if there is room for a command, whose answer matters if it `is_marked`.
    fn has_room(&self, is_marked: bool) -> bool {
        let has_place = !is_marked || usize::from(self.count) < self.marked.len();
        has_place && self.others < u16::MAX
    }

    /// Adds a command. There must be room.
    fn push(&mut self, command: Command) {
        if command == Command::Other {
            self.others += 1;
        } else {
            let others = core::mem::take(&mut self.others);
            self.marked[usize::from(self.count)] = (others, command);
            self.count += 1;
        }
    }

    fn first(&self) -> Command {
        match self.marked[0] {
            (0, command) if self.count > 0 => command,
            _ => Command::Other,
        }
    }

    fn pop(&mut self) {
        if self.count == 0 {
            self.others = self.others.saturating_sub(1);
        } else if self.marked[0].0 > 0 {
            self.marked[0].0 -= 1;
        } else {
            self.marked.rotate_left(1);
            self.count -= 1;
        }
    }
}

/// A control connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ftp {
    unanswered: Unanswered,
    /// Code of a reply of several lines that has not ended; 0: none.
    open_reply: u16,
    is_greeted: bool,
    is_authenticating: bool,
    /// True if the client has turned the translation between families off.
    is_disabled: bool,
}

saved!(Command [
    Other, Passive, PassiveAll, OtherFamily, Authentication, StatusOn, StatusOff, StatusUnknown,
]);
saved!(Unanswered { marked, count, others });
saved!(Ftp { unanswered, open_reply, is_greeted, is_authenticating, is_disabled });

impl Ftp {
    /// True if the numbers are possible.
    pub(crate) fn is_sound(&self) -> bool {
        usize::from(self.unanswered.count) <= self.unanswered.marked.len()
    }
}

impl Protocol for Ftp {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        let is_command = context.is_from_client();
        if is_command && (!self.is_greeted || self.is_authenticating) {
            // A client that speaks first, or behind AUTH without waiting, is not understood.
            let reason = if self.is_greeted { Reason::Encrypted } else { Reason::NotProtocol };
            return Step::Leave(reason);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let line = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
        let is_possible = if is_command { may_be_command(line) } else { self.may_be_reply(line) };
        if !is_possible {
            return Step::Leave(Reason::NotProtocol);
        }
        match end {
            _ if line.len() > LONGEST_LINE => Step::Leave(Reason::TooLong),
            None => Step::More,
            Some(_) if is_command => self.take_command(line, context).unwrap_or_else(|step| step),
            Some(_) => self.take_reply(line, context).unwrap_or_else(|step| step),
        }
    }
}

impl Ftp {
    /// A control connection whose server has greeted.
    pub(crate) fn greeted() -> Self {
        Self { is_greeted: true, ..Self::default() }
    }

    /// RFC 959 section 4.1, and RFC 2428.
    fn take_command(&mut self, line: &[u8], context: &mut Context<'_>) -> Result<Step, Step> {
        let start = telnet(line);
        let text = line[start..].trim_ascii_end();
        if text.is_empty() {
            return Ok(Step::Pass(line.len()));
        }
        let verb = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let Some(verb) = known(verb) else { return Err(Step::Leave(Reason::NotProtocol)) };
        let argument = text[verb.len()..].trim_ascii_start();
        let place = start + text.len() - argument.len()..start + text.len();
        let is_between = context.is_between_families() && context.from() == Side::Inside;
        let is_marked = verb == b"AUTH" || is_between && matches!(verb, b"EPSV" | b"ALGS");
        if !self.unanswered.has_room(is_marked) {
            return Err(Step::Leave(Reason::TooLong));
        }
        let command = match verb {
            b"PORT" => port(argument, place, context)?,
            b"ALGS" if is_between => self.status(argument, start..place.end, context)?,
            //= rfc6384#section-11-set
            b"EPRT" | b"EPSV" if is_between && self.is_disabled => Command::Other,
            b"EPRT" => extended_port(argument, start..place.end, context)?,
            b"EPSV" if is_between => extended_passive(argument, start..place.end, context)?,
            b"AUTH" => Command::Authentication,
            //= rfc6384#section-10-other
            _ => Command::Other,
        };
        self.is_authenticating = command == Command::Authentication;
        self.unanswered.push(command);
        Ok(Step::Pass(line.len()))
    }

    /// The client asks about the translation, or sets it; RFC 6384 section 11.
    //= rfc6384#section-11-algs
    fn status(
        &mut self,
        argument: &[u8],
        place: Range<usize>,
        context: &mut Context<'_>,
    ) -> Result<Command, Step> {
        let is = |token: &[u8]| argument.eq_ignore_ascii_case(token);
        let is_known = is(b"STATUS64") || is(b"ENABLE64") || is(b"DISABLE64");
        //= rfc6384#section-11-set
        if is(b"ENABLE64") || is(b"DISABLE64") {
            self.is_disabled = is(b"DISABLE64");
        }
        //= rfc6384#section-12-noop
        context.replace(place, b"NOOP")?;
        Ok(match (is_known, self.is_disabled) {
            (false, _) => Command::StatusUnknown,
            (true, false) => Command::StatusOn,
            (true, true) => Command::StatusOff,
        })
    }

    /// True if a line, or its start, can be one of a reply.
    fn may_be_reply(&self, line: &[u8]) -> bool {
        let is_code = || {
            let digits = line.iter().take(3).all(u8::is_ascii_digit);
            digits && line.get(3).is_none_or(|byte| b" -\r\n".contains(byte))
        };
        let is_greeting =
            || [&b"220"[..], b"120", b"421"].iter().any(|code| line.iter().zip(*code).all(same));
        self.open_reply != 0 || (is_code() && (self.is_greeted || is_greeting()))
    }

    /// RFC 959 section 4.2.
    fn take_reply(&mut self, line: &[u8], context: &mut Context<'_>) -> Result<Step, Step> {
        let code = dec_uint::<_, u16, winnow::error::ContextError>
            .parse(line.get(..3).unwrap_or_default())
            .unwrap_or(0);
        let is_first = self.open_reply == 0;
        let is_coded = if is_first { code >= 100 } else { code == self.open_reply };
        let is_end = is_coded && line.get(3) != Some(&b'-');
        if is_first && !is_coded {
            return Err(Step::Leave(Reason::NotProtocol));
        }
        if is_first && !is_end {
            self.open_reply = code;
        }
        if is_end {
            self.open_reply = 0;
        }
        let command = self.unanswered.first();
        if is_coded {
            edit_reply(code, command, line, (is_first && is_end, is_end), context)?;
        }
        if is_end && code >= 200 {
            self.finish_reply(code, command)?;
        }
        Ok(Step::Pass(line.len()))
    }

    /// The reply to the oldest command is complete.
    fn finish_reply(&mut self, code: u16, command: Command) -> Result<(), Step> {
        if !self.is_greeted {
            self.is_greeted = true;
            return Ok(());
        }
        self.unanswered.pop();
        if command == Command::Authentication {
            self.is_authenticating = false;
            //= rfc6384#section-5-auth-refused
            //= rfc6384#section-5-auth
            if code < 400 {
                return Err(Step::Leave(Reason::Encrypted));
            }
        }
        Ok(())
    }
}

fn same((one, other): (&u8, &u8)) -> bool {
    one == other
}

/// Length of the Telnet commands before a command of FTP (RFC 959 section 4.1.3, RFC 854).
fn telnet(line: &[u8]) -> usize {
    const IAC: u8 = 255;
    const WILL: u8 = 251;
    const DONT: u8 = 254;
    let mut at = 0;
    while line.get(at) == Some(&IAC) {
        let has_option = line.get(at + 1).is_some_and(|byte| (WILL..=DONT).contains(byte));
        at += if has_option { 3 } else { 2 };
    }
    at.min(line.len())
}

/// True if a line, or its start, can be a command.
fn may_be_command(line: &[u8]) -> bool {
    let text = &line[telnet(line)..];
    let end = text.iter().position(|byte| b" \r\n".contains(byte));
    let verb = &text[..end.unwrap_or(text.len())];
    let begins = |command: &&[u8]| {
        command.get(..verb.len()).is_some_and(|start| start.eq_ignore_ascii_case(verb))
    };
    match end {
        Some(0) => true,
        Some(_) => known(verb).is_some(),
        None => COMMANDS.iter().any(begins),
    }
}

/// The command of FTP with this name.
fn known(verb: &[u8]) -> Option<&'static [u8]> {
    COMMANDS.into_iter().find(|command| command.eq_ignore_ascii_case(verb))
}

/// Reads a number of up to three digits. Some clients write all three.
fn octet(input: &mut &[u8]) -> ModalResult<u8> {
    take_while(1..=3, |byte: u8| byte.is_ascii_digit())
        .verify_map(|text| core::str::from_utf8(text).ok()?.parse().ok())
        .parse_next(input)
}

/// Reads `h1,h2,h3,h4,p1,p2` (RFC 959 section 5.3.2).
fn host_port(input: &mut &[u8]) -> ModalResult<SocketAddrV4> {
    let next = || preceded(',', octet);
    let (a, b, c, d, high, low) =
        (octet, next(), next(), next(), next(), next()).parse_next(input)?;
    let port = u16::from_be_bytes([high, low]);
    Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}

/// Reads `<d>family<d>address<d>port<d>` (RFC 2428 section 2).
fn extended_host_port(input: &mut &[u8]) -> ModalResult<SocketAddr> {
    let mut delimiter = any.verify(|byte: &u8| (33..=126).contains(byte)).parse_next(input)?;
    let family = alt((b'1', b'2')).parse_next(input)?;
    delimiter.parse_next(input)?;
    let address = take_while(2..=45, |byte: u8| byte != delimiter)
        .verify_map(|text| core::str::from_utf8(text).ok()?.parse::<IpAddr>().ok())
        .verify(|address: &IpAddr| address.is_ipv4() == (family == b'1'))
        .parse_next(input)?;
    delimiter.parse_next(input)?;
    let port = dec_uint.parse_next(input)?;
    delimiter.parse_next(input)?;
    Ok(SocketAddr::new(address, port))
}

fn write_host_port(end: SocketAddrV4) -> alloc::string::String {
    let [a, b, c, d] = end.ip().octets();
    let [high, low] = end.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// A client says where it waits for the server.
fn port(argument: &[u8], place: Range<usize>, context: &mut Context<'_>) -> Result<Command, Step> {
    if context.from() == Side::Inside
        && let Ok(named) = host_port.parse(argument)
        && let Some(external) = context.expect(TCP, named.into(), Uses::Once, LIFETIME)
    {
        context.replace(place, write_host_port(external).as_bytes())?;
    }
    Ok(Command::Other)
}

/// The same for both families; RFC 6384 section 7.2.
//= rfc6384#section-7.2-own
fn extended_port(
    argument: &[u8],
    place: Range<usize>,
    context: &mut Context<'_>,
) -> Result<Command, Step> {
    if context.from() == Side::Inside
        && let Ok(named) = extended_host_port.parse(argument)
        //= rfc6384#section-7.2-narrow
        && let Some(external) = context.expect(TCP, named, Uses::Once, LIFETIME)
    {
        let text = if named.is_ipv6() {
            format!("PORT {}", write_host_port(external))
        } else {
            format!("EPRT |1|{}|{}|", external.ip(), external.port())
        };
        context.replace(place, text.as_bytes())?;
    }
    Ok(Command::Other)
}

/// A client with IPv6 asks a server with IPv4 to wait; RFC 6384 section 6.
//= rfc6384#section-4-epsv
//= rfc6384#section-6-epsv
//= rfc6384#section-6-family
//= rfc6384#section-6-all
fn extended_passive(
    argument: &[u8],
    place: Range<usize>,
    context: &mut Context<'_>,
) -> Result<Command, Step> {
    let (text, command) = match argument {
        b"" | b"2" => ("PASV", Command::Passive),
        _ if argument.eq_ignore_ascii_case(b"ALL") => ("NOOP", Command::PassiveAll),
        _ if argument.iter().all(u8::is_ascii_digit) => ("NOOP", Command::OtherFamily),
        _ => return Ok(Command::Other),
    };
    context.replace(place, text.as_bytes())?;
    Ok(command)
}

/// The first endpoint in the text of a reply 227, with or without parentheses, and its place.
fn find_host_port(line: &[u8]) -> Option<(Range<usize>, SocketAddrV4)> {
    const CODE: usize = 4;
    (CODE..line.len()).find_map(|at| {
        let is_within = line[at - 1].is_ascii_digit() || line[at - 1] == b',';
        let is_start = line[at].is_ascii_digit() && !is_within;
        let mut rest = &line[at..];
        let end = if is_start { host_port(&mut rest).ok()? } else { return None };
        let is_whole = !rest.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b',');
        is_whole.then_some((at..line.len() - rest.len(), end))
    })
}

/// The port in the text of a reply 229, and its place (RFC 2428 section 3).
fn find_port(line: &[u8]) -> Option<(Range<usize>, u16)> {
    let open = line.iter().position(|byte| *byte == b'(')? + 1;
    let delimiter = *line.get(open)?;
    let mut rest = line.get(open..)?;
    let empty: (u8, u8, u8) =
        (any::<_, winnow::error::ContextError>, any, any).parse_next(&mut rest).ok()?;
    let start = line.len() - rest.len();
    let port = dec_uint::<_, u16, winnow::error::ContextError>(&mut rest).ok()?;
    let is_right = empty == (delimiter, delimiter, delimiter)
        && rest.first() == Some(&delimiter)
        && !delimiter.is_ascii_digit();
    is_right.then_some((start..line.len() - rest.len(), port))
}

/// Changes a line with the code of a reply. `is_alone`: the reply has no other line. `is_end`: it
/// is the last line.
fn edit_reply(
    code: u16,
    command: Command,
    line: &[u8],
    (is_alone, is_end): (bool, bool),
    context: &mut Context<'_>,
) -> Result<(), Step> {
    match (code, command) {
        (200, Command::PassiveAll) => return context.replace(0..3, b"504"),
        (200, Command::OtherFamily) => return context.replace(0..3, b"522"),
        //= rfc6384#section-11-argument
        (200, Command::StatusUnknown) => return context.replace(0..3, b"504"),
        //= rfc6384#section-11-216
        (200, Command::StatusOn | Command::StatusOff) => {
            let translates = command == Command::StatusOn;
            let text = if translates { "EPSVEPRT" } else { "NONE" };
            let text = format!("216{}{text}", if is_end { ' ' } else { '-' });
            return context.replace(0..line.trim_ascii_end().len(), text.as_bytes());
        }
        //= rfc6384#section-6-address
        (227, Command::Passive) if is_alone => {
            let Some((_, end)) = find_host_port(line) else { return Ok(()) };
            //= rfc6384#section-5.1-ascii
            let text = format!("229 Entering Extended Passive Mode (|||{}|)", end.port());
            return context.replace(0..line.trim_ascii_end().len(), text.as_bytes());
        }
        _ => {}
    }
    if context.from() != Side::Inside {
        return Ok(());
    }
    let (place, port, is_extended) = match code {
        227 => {
            let Some((place, named)) = find_host_port(line) else { return Ok(()) };
            if !context.is_own((*named.ip()).into()) {
                context.refuse(Reason::ForeignAddress);
                return Ok(());
            }
            (place, named.port(), false)
        }
        229 => {
            let Some((place, port)) = find_port(line) else { return Ok(()) };
            (place, port, true)
        }
        _ => return Ok(()),
    };
    let internal = SocketAddr::new(context.flow().internal.ip(), port);
    let Some(external) = context.expect(TCP, internal, Uses::Once, LIFETIME) else {
        return Ok(());
    };
    let text = if is_extended { format!("{}", external.port()) } else { write_host_port(external) };
    context.replace(place, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_the_rfcs_write_them() {
        let read = |text: &'static str| host_port.parse(text.as_bytes()).ok();
        assert_eq!(read("10,0,0,5,200,13"), Some("10.0.0.5:51213".parse().unwrap()));
        for bad in ["10,0,0,5,200", "10,0,0,5,256,1", "10,0,0,5,200,13,1", "1,2,3,4,5,-6", ""] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let read = |text: &'static str| extended_host_port.parse(text.as_bytes()).ok();
        assert_eq!(read("|1|132.235.1.2|6275|"), Some("132.235.1.2:6275".parse().unwrap()));
        assert_eq!(read("!2!1080::8:800:200C:417A!5282!").map(|end| end.port()), Some(5282));
        for bad in ["|2|132.235.1.2|6275|", "|1|1::2|1|", "|1|1.2.3.4|65536|", "|3|1.2.3.4|1|"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        // A number without an end is no number.
        assert_eq!(host_port.parse(&[b'9'; 4000][..]).ok(), None);
    }

    #[test]
    fn a_reply_needs_no_parentheses() {
        let find = |line: &str| find_host_port(line.as_bytes()).map(|(place, _)| place);
        assert_eq!(find("227 Entering Passive Mode (10,0,0,80,4,1).\r\n"), Some(27..40));
        assert_eq!(find("227 Entering Passive Mode. 10,0,0,80,4,1\r\n"), Some(27..40));
        assert_eq!(find("227 =10,0,0,80,4,1\r\n"), Some(5..18));
        assert_eq!(find("227 10,0,0,80,4,1,9\r\n"), None);
        assert_eq!(find("227 \r\n"), None);
        let find = |line: &str| find_port(line.as_bytes());
        assert_eq!(find("229 Extended (|||6446|)\r\n"), Some((17..21, 6446)));
        assert_eq!(find("229 Extended (|1||6446|)\r\n"), None);
        assert_eq!(find("229 (|||99999999999999999999|)\r\n"), None);
    }

    #[test]
    fn telnet_commands_precede_a_command() {
        assert_eq!(telnet(b"\xff\xf4\xff\xf2ABOR\r\n"), 4);
        assert_eq!(telnet(b"\xff\xfb\x06ABOR\r\n"), 3);
        assert_eq!(telnet(b"\xff"), 1);
    }
}
