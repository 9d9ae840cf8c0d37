//! Values of IPv6 that a configuration writes as text: addresses and prefixes.
//!
//! As in [`super::values`], each function takes the text between the quotes and returns the value,
//! or one sentence with the fault and the remedy.

use super::values::{quoted, split_prefix};
use natgate_ipv6::Prefix6;
use std::net::{IpAddr, Ipv6Addr};

/// Parses an address that a host can have. It may be link-local.
pub(super) fn address6(text: &str) -> Result<Ipv6Addr, String> {
    let address: Ipv6Addr = text.parse().map_err(|_| {
        format!("{} is no IPv6 address; write one such as \"2001:db8::1\"", quoted(text))
    })?;
    usable(address)?;
    Ok(address)
}

/// Parses an address that a host can have and that other networks reach.
pub(super) fn routed_address6(text: &str) -> Result<Ipv6Addr, String> {
    let address = address6(text)?;
    not_link_local(address)?;
    Ok(address)
}

/// Parses an address of either family that other networks reach.
pub(super) fn address_of_either(text: &str) -> Result<IpAddr, String> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(IpAddr::V4(address)),
        Ok(IpAddr::V6(address)) => {
            usable(address)?;
            not_link_local(address)?;
            Ok(IpAddr::V6(address))
        }
        Err(_) => Err(format!("{} is no address; write one such as \"192.0.2.1\"", quoted(text))),
    }
}

/// Parses the address of a host with the length of its network's prefix.
pub(super) fn interface_address6(text: &str) -> Result<(Ipv6Addr, u8), String> {
    let example = "write an address with its prefix length, such as \"2001:db8::1/64\"";
    let Some((host, len)) = split_prefix(text, 128) else {
        return Err(format!("{} is no IPv6 interface address; {example}", quoted(text)));
    };
    if len == 0 {
        return Err(format!("{} makes every address a neighbor; {example}", quoted(text)));
    }
    usable(host)?;
    not_link_local(host)?;
    let network = Prefix6 { address: host, len };
    if len <= 126 && host == network.first() {
        let message = "is the address of all routers of its own prefix (RFC 4291 section 2.6.1)";
        return Err(format!("{host} {message}; write a host's"));
    }
    Ok((host, len))
}

/// Parses a prefix or one address.
pub(super) fn prefix6(text: &str) -> Result<Prefix6, String> {
    if let Ok(address) = text.parse() {
        return Ok(Prefix6 { address, len: 128 });
    }
    let Some((address, len)) = split_prefix(text, 128) else {
        let shown = quoted(text);
        return Err(format!("{shown} is no IPv6 prefix; write one such as \"2001:db8::/32\""));
    };
    let prefix = Prefix6 { address, len };
    if address == prefix.first() {
        return Ok(prefix);
    }
    Err(format!("{address} has bits beyond the /{len}; write \"{prefix}\""))
}

/// Parses a prefix whose addresses hosts can have.
pub(super) fn unicast_prefix6(text: &str) -> Result<Prefix6, String> {
    prefix6(text).and_then(unicast)
}

/// As [`unicast_prefix6`]; bits beyond the length are ignored.
pub(super) fn prefix6_around(text: &str) -> Result<Prefix6, String> {
    match split_prefix(text, 128) {
        Some((address, len)) => unicast(Prefix6 { address: Prefix6 { address, len }.first(), len }),
        None => unicast_prefix6(text),
    }
}

/// Refuses a prefix with addresses that no host has.
//= rfc7757#section-3.2-length
fn unicast(prefix: Prefix6) -> Result<Prefix6, String> {
    match CLASSES.iter().find(|(class, _)| prefix.overlaps(*class)) {
        Some((class, name)) => {
            let relation = if class.len <= prefix.len { "is in" } else { "overlaps" };
            let message = format!("{prefix} {relation} {class} ({name}), which no host has");
            Err(format!("{message}; write unicast"))
        }
        None if prefix.overlaps(LINK_LOCAL) => {
            let message = format!("{prefix} has addresses of {LINK_LOCAL} (link-local)");
            Err(format!("{message}, which stay on their link; write another prefix"))
        }
        None => Ok(prefix),
    }
}

/// Parses a prefix whose addresses hosts can have, or `::/0`.
pub(super) fn unicast_or_all(text: &str) -> Result<Prefix6, String> {
    match prefix6(text)? {
        all @ Prefix6 { len: 0, .. } => Ok(all),
        other => unicast(other),
    }
}

const fn class(first: u16, len: u8) -> Prefix6 {
    Prefix6 { address: Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), len }
}

const LINK_LOCAL: Prefix6 = class(0xfe80, 10);

/// Addresses that no host can have.
const CLASSES: [(Prefix6, &str); 4] = [
    (Prefix6 { address: Ipv6Addr::UNSPECIFIED, len: 128 }, "unspecified"),
    (Prefix6 { address: Ipv6Addr::LOCALHOST, len: 128 }, "loopback"),
    (Prefix6 { address: Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), len: 96 }, "mapped IPv4"),
    (class(0xff00, 8), "multicast"),
];

fn usable(address: Ipv6Addr) -> Result<(), String> {
    match CLASSES.iter().find(|(class, _)| class.contains(address)) {
        Some((class, name)) => {
            Err(format!("{address} is in {class} ({name}), which no host has; write unicast"))
        }
        None => Ok(()),
    }
}

fn not_link_local(address: Ipv6Addr) -> Result<(), String> {
    match LINK_LOCAL.contains(address) {
        true => {
            let message = format!("{address} is link-local, and no other network reaches it");
            Err(format!("{message}; write an address such as \"2001:db8::1\""))
        }
        false => Ok(()),
    }
}
