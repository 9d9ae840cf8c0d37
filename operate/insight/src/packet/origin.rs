//! The link that a described packet comes in by, and its tunnel.

use super::{PacketDescription, TunnelEnds};
use natgate_engine::{Config, Side};
use natgate_gateway::ipv6::softwire::{MapMode, MapRule};
use natgate_gateway::ipv6::{Prefix6, Settings};
use natgate_gateway::{Link, Probe};
use natgate_wire::{Ipv6, ipv6};
use std::net::Ipv6Addr;

/// Next header of IPv4 in IPv6.
const IPV4_IN_IPV6: u8 = 4;

impl PacketDescription {
    /// The packet with the link that it comes in by. If the description names no side, packets with
    /// the source address of a subscriber or of an inside network come from inside, and of IPv6
    /// those that a table translates on their way out. A packet in a tunnel has its outer header.
    ///
    /// # Errors
    /// A sentence if there is no such realm, or no such tunnel.
    pub fn probe(self, config: &Config, settings: &Settings) -> Result<Probe, String> {
        let Self { packet, from, realm, tunnel } = self;
        let realm = match realm.as_deref() {
            None => 0,
            Some(name) => realm_of(config, name)?,
        };
        if let Some(tunnel) = tunnel {
            let link = Link::new(from.unwrap_or(Side::Inside), realm);
            return Ok(Probe { link, packet: encapsulated(&packet, tunnel, settings)? });
        }
        let own = || match Ipv6::new_header_checked(&packet[..]) {
            Ok(header) if packet[0] >> 4 == 6 => {
                side(header.source().into(), header.destination().into(), settings)
            }
            _ => side_of_ipv4(&packet, realm, config),
        };
        Ok(Probe { link: Link::new(from.unwrap_or_else(own), realm), packet })
    }
}

fn side_of_ipv4(packet: &[u8], realm: u16, config: &Config) -> Side {
    let source = u32::from_be_bytes([packet[12], packet[13], packet[14], packet[15]]);
    let network = config.inside_of(realm).network;
    let mut inside = config.subscribers_of(realm).iter().chain(&network);
    match inside.any(|prefix| prefix.contains(source)) {
        true => Side::Inside,
        false => Side::Outside,
    }
}

/// The side that an IPv6 packet with these ends comes in by.
fn side(source: Ipv6Addr, destination: Ipv6Addr, settings: &Settings) -> Side {
    let network = |own: Option<(Ipv6Addr, u8)>, address| {
        own.is_some_and(|(own, len)| Prefix6 { address: own, len }.contains(address))
    };
    let (inside, outside) = (settings.inside.address, settings.outside.address);
    let mut pairs = settings.nptv6.iter().map(|one| one.pair);
    let is_internal = pairs.clone().any(|pair| pair.internal().contains(source));
    let is_external = pairs.any(|pair| pair.external().contains(destination));
    let clat = settings.clat.as_ref();
    let is_outside = clat.is_some_and(|clat| clat.source.contains(destination))
        || is_external && !is_internal
        || network(outside, source)
        || network(inside, destination) && !network(inside, source);
    match is_outside {
        true => Side::Outside,
        false => Side::Inside,
    }
}

/// The packet in its tunnel.
fn encapsulated(
    packet: &[u8],
    TunnelEnds { b4, aftr }: TunnelEnds,
    settings: &Settings,
) -> Result<Vec<u8>, String> {
    let none = || {
        format!(
            "the configuration has no tunnel to {b4}: there is no [dslite], no [lw4o6], and no \
             [[map]] with its prefix; write the gateway's end with aftr ADDRESS"
        )
    };
    let aftr = aftr.or_else(|| end_for(b4, settings)).ok_or_else(none)?;
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    bytes.extend(packet);
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(packet.len() as u16);
    header.set_next_header(IPV4_IN_IPV6);
    header.set_hop_limit(64);
    header.set_source(b4.to_bits());
    header.set_destination(aftr.to_bits());
    Ok(bytes)
}

/// The gateway's end of the tunnel of a customer.
fn end_for(b4: Ipv6Addr, settings: &Settings) -> Option<Ipv6Addr> {
    let rule = |rule: &MapRule| match rule.parameters().mode {
        MapMode::Encapsulation(br) if rule.parameters().ipv6.contains(b4) => Some(br),
        _ => None,
    };
    let of_map = settings.map.iter().find_map(|map| rule(&map.rule));
    let of_bindings = settings.lw4o6.as_ref().map(|lw4o6| lw4o6.address);
    let of_dslite = settings.dslite.as_ref().filter(|dslite| {
        of_bindings.is_none() || dslite.b4.iter().any(|prefix| prefix.contains(b4))
    });
    of_map.or(of_dslite.map(|dslite| dslite.address)).or(of_bindings)
}

/// The number of a realm; number 0 is called `default`.
fn realm_of(config: &Config, name: &str) -> Result<u16, String> {
    let further = config.realms.iter().position(|realm| !realm.gone && realm.name == name);
    match further {
        Some(place) => Ok(place as u16 + 1),
        None if name == "default" => Ok(0),
        None => {
            let names =
                config.realms.iter().filter(|realm| !realm.gone).map(|realm| &realm.name[..]);
            let names: Vec<&str> = std::iter::once("default").chain(names).collect();
            Err(format!("there is no realm {name}; there are: {}", names.join(", ")))
        }
    }
}
