//! Values that a configuration writes as text: durations, sizes, addresses, ports.
//!
//! Each function takes the text between the quotes and returns the value, or one sentence with the
//! fault and the remedy. The reader adds the place. All functions are strict: ambiguous text is
//! refused.

use natgate_engine::{AddressRange, Prefix};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Quotes a text for a message: control characters escaped, long text cut.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// Parses an address with a port. `remedy` says what to write instead.
pub(super) fn socket_address(text: &str, remedy: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{} is no address with a port; {remedy}", quoted(text)))
}

/// Units and their milliseconds.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses a duration such as `2h4m`: whole numbers with the units d, h, m, s, ms, each once, from
/// large to small.
///
/// # Errors
/// One sentence with the fault and the remedy.
pub fn duration(text: &str) -> Result<Duration, String> {
    let not_a_duration = || {
        let units = "numbers with d, h, m, s, ms, in this order, such as \"2h4m\"";
        format!("{} is no duration; write {units}", quoted(text))
    };
    let mut rest = text;
    let mut units = TIME_UNITS.iter();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let known = units.find(|(name, _)| *name == unit);
        let milliseconds = known
            .and_then(|(_, scale)| number.parse::<u64>().ok()?.checked_mul(*scale))
            .and_then(|part| total.checked_add(part));
        total = milliseconds.ok_or_else(not_a_duration)?;
        rest = after;
    }
    if text.is_empty() { Err(not_a_duration()) } else { Ok(Duration::from_millis(total)) }
}

/// Formats a duration so that [`duration`] reads it.
pub(crate) fn show_duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, scale) in TIME_UNITS.map(|(unit, scale)| (unit, u128::from(scale))) {
        if rest >= scale {
            let _ = write!(text, "{}{unit}", rest / scale);
            rest %= scale;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Parses a size such as `16MiB`, in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = text.parse::<bytesize::ByteSize>();
    size.map(|size| size.0).map_err(|_| {
        format!("{} is no size; write one such as \"16MiB\" or \"4GiB\"", quoted(text))
    })
}

/// Parses an absolute path, which does not depend on the working directory.
pub(super) fn absolute_path(text: &str, example: &str) -> Result<PathBuf, String> {
    let is_file = text.starts_with('/') && !text.ends_with('/') && !text.contains('\0');
    is_file.then(|| PathBuf::from(text)).ok_or_else(|| {
        let shown = quoted(text);
        format!("{shown} is no absolute path of a file; write one such as \"{example}\"")
    })
}

/// Parses the absolute path of a folder, which may end with slashes.
pub(super) fn absolute_folder(text: &str, example: &str) -> Result<PathBuf, String> {
    let trimmed = text.trim_end_matches('/');
    absolute_path(if trimmed.is_empty() { text } else { trimmed }, example).map_err(|_| {
        format!("{} is no absolute path; write one such as \"{example}\"", quoted(text))
    })
}

/// Parses an address.
pub(super) fn address(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| {
        format!("{} is no IPv4 address; write one such as \"192.0.2.1\"", quoted(text))
    })
}

/// Parses the address of a host with the length of its network's prefix.
pub(super) fn interface_address(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let example = "write an address with its prefix length, such as \"192.0.2.1/24\"";
    let Some((host, len)) = split_prefix(text, 32) else {
        return Err(format!("{} is no interface address; {example}", quoted(text)));
    };
    let network = Prefix::new(host, len);
    if len == 0 {
        return Err(format!("{} makes every address a neighbor; {example}", quoted(text)));
    }
    let bits = u32::from(host);
    if len <= 30 && (bits == network.first() || bits == network.last()) {
        let kind = if bits == network.first() { "network" } else { "broadcast" };
        return Err(format!("{host} is the {kind} address of its own prefix; write a host's"));
    }
    Ok((host, len))
}

/// Parses a prefix or one address.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    if let Ok(host) = text.parse() {
        return Ok(Prefix::new(host, 32));
    }
    let Some((first, len)) = split_prefix(text, 32) else {
        let shown = quoted(text);
        return Err(format!("{shown} is no IPv4 prefix; write one such as \"10.0.0.0/8\""));
    };
    let prefix = Prefix::new(first, len);
    if u32::from(first) == prefix.first() {
        return Ok(prefix);
    }
    let right = Ipv4Addr::from(prefix.first());
    Err(format!("{first} has bits beyond the /{len}; write \"{right}/{len}\""))
}

/// Parses an entry of an address set: a prefix (all its addresses), an address, or `FIRST-LAST`.
pub(super) fn address_range(text: &str) -> Result<AddressRange, String> {
    //= rfc6888#REQ-3
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (address(first.trim())?, address(last.trim())?);
        if first > last {
            return Err(format!("the range is reversed; write \"{last}-{first}\""));
        }
        return Ok(AddressRange { first, last });
    }
    if !text.contains('/') {
        return address(text).map(|one| AddressRange { first: one, last: one });
    }
    let prefix = prefix(text)?;
    Ok(AddressRange { first: prefix.first().into(), last: prefix.last().into() })
}

/// Parses `FIRST-LAST`, or one port.
pub(super) fn ports(text: &str) -> Result<(u16, u16), String> {
    let port = |text: &str| number(text).and_then(|port| u16::try_from(port).ok());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (Some(first), Some(last)) = (port(first.trim()), port(last.trim())) else {
        let shown = quoted(text);
        return Err(format!("{shown} is no range of ports; write one such as \"1024-65535\""));
    };
    if first > last {
        return Err(format!("the range is reversed; write \"{last}-{first}\""));
    }
    if first == 0 {
        return Err("port 0 cannot be used; begin at 1, better at 1024".to_owned());
    }
    Ok((first, last))
}

/// Parses an address with or without a port.
pub(super) fn endpoint(text: &str) -> Result<(Ipv4Addr, Option<u16>), String> {
    let Some((host, port)) = text.split_once(':') else {
        return address(text).map(|host| (host, None));
    };
    let host = address(host)?;
    match number(port).and_then(|port| u16::try_from(port).ok()) {
        Some(0) | None => {
            Err(format!("{} is no port; write one from 1 to 65535, or none", quoted(port)))
        }
        some => Ok((host, some)),
    }
}

/// Consecutive ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// First port.
    pub(super) first: u16,
    /// Last port, not below the first.
    pub(super) last: u16,
}

impl Span {
    /// Number of ports.
    pub(super) fn count(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// Formats the range as a configuration writes it.
    pub(super) fn show(self) -> String {
        match self.count() {
            1 => self.first.to_string(),
            _ => format!("{}-{}", self.first, self.last),
        }
    }

    /// All ports of the range.
    pub(super) fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }
}

/// Parses an address without a port, with one, or with a range of ports.
pub(super) fn endpoint_range(text: &str) -> Result<(Ipv4Addr, Option<Span>), String> {
    match text.split_once(':') {
        Some((host, ports)) => {
            let host = address(host)?;
            Ok((host, Some(span(ports)?)))
        }
        None => address(text).map(|host| (host, None)),
    }
}

/// Parses one port or a range of ports.
pub(super) fn span(text: &str) -> Result<Span, String> {
    if text.contains('-') {
        let (first, last) = ports(text)?;
        return Ok(Span { first, last });
    }
    match number(text).and_then(|port| u16::try_from(port).ok()) {
        Some(0) | None => {
            Err(format!("{} is no port; write one from 1 to 65535, or none", quoted(text)))
        }
        Some(port) => Ok(Span { first: port, last: port }),
    }
}

/// Parses the target of translated destinations: an address with or without a port, or a prefix.
pub(super) fn target(text: &str) -> Result<DnatTo, String> {
    let Some((_, len)) = text.split_once('/') else {
        return endpoint(text).map(|(address, port)| DnatTo::Endpoint(address, port));
    };
    if len.contains(':') {
        return Err(format!("{} has a port; with a prefix ports stay as they are", quoted(text)));
    }
    prefix(text).map(DnatTo::Prefix)
}

/// The target of translated destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DnatTo {
    /// One address for all packets, and one port if given.
    Endpoint(Ipv4Addr, Option<u16>),
    /// A prefix of the same length.
    Prefix(Prefix),
}

/// Names a class of addresses that no host can have, if the range contains one.
pub(super) fn unusable(range: AddressRange) -> Option<&'static str> {
    const CLASSES: [(Ipv4Addr, u8, &str); 4] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8, "0.0.0.0/8 (zero)"),
        (Ipv4Addr::new(127, 0, 0, 0), 8, "127.0.0.0/8 (loopback)"),
        (Ipv4Addr::new(224, 0, 0, 0), 4, "224.0.0.0/4 (multicast)"),
        (Ipv4Addr::new(240, 0, 0, 0), 4, "240.0.0.0/4 (class E)"),
    ];
    CLASSES
        .into_iter()
        .find(|(first, len, _)| overlaps(range, Prefix::new(*first, *len)))
        .map(|(_, _, class)| class)
}

/// True if a range and a prefix share an address.
pub(super) fn overlaps(range: AddressRange, prefix: Prefix) -> bool {
    u32::from(range.first) <= prefix.last() && prefix.first() <= u32::from(range.last)
}

/// True if two prefixes share an address.
pub(super) fn overlaps_prefix(one: Prefix, other: Prefix) -> bool {
    one.first() <= other.last() && other.first() <= one.last()
}

/// Formats a range as an address set writes it.
pub(crate) fn show_range(range: AddressRange) -> String {
    let (first, last) = (u32::from(range.first), u32::from(range.last));
    let size = u64::from(last - first) + 1;
    if size == 1 {
        range.first.to_string()
    } else if size.is_power_of_two() && u64::from(first) % size == 0 {
        format!("{}/{}", range.first, 32 - size.trailing_zeros())
    } else {
        format!("{}-{}", range.first, range.last)
    }
}

/// Formats a prefix as a configuration writes it.
pub(crate) fn show_prefix(prefix: Prefix) -> String {
    format!("{}/{}", Ipv4Addr::from(prefix.first()), prefix.len())
}

/// True if a text is an address with a prefix length. Bits beyond the prefix may be set.
pub(super) fn interface_prefix(text: &str) -> bool {
    split_prefix::<Ipv4Addr>(text, 32).is_some()
}

/// Parses an address of a family with a prefix length of at most `longest` bits.
pub(super) fn split_prefix<A: FromStr>(text: &str, longest: u32) -> Option<(A, u8)> {
    let (host, len) = text.split_once('/')?;
    let len = number(len).filter(|len| *len <= longest)?;
    Some((host.parse().ok()?, len as u8))
}

/// Parses a decimal number without sign and without leading zeros that could mean octal.
fn number(text: &str) -> Option<u32> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}
