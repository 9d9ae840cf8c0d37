//! Static neighbors: `[[neighbor]]`, and how many neighbors a link may have.

use super::draft::{Draft, NeighborDraft};
use super::problem::Report;
use super::reader::Section;
use super::realms;
use super::sections::{bounded, read_address};
use super::values::{quoted, show_prefix};
use natgate_engine::Side;
use natgate_gateway::StaticNeighbor;
use natgate_wire::arp::Mac;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Most neighbors of one link in the configuration: hosts of a network with 12 bits of prefix.
const MOST: u64 = 1 << 20;

/// Fewer neighbors are not enough for a small network.
const LEAST: u64 = 16;

/// Reads a `[[neighbor]]` table.
pub(super) fn read_neighbor(section: &Section<'_>) -> Option<NeighborDraft> {
    let address =
        section.require("address", "\"192.0.2.254\"").and_then(|value| read_address(&value));
    let mac = read_mac(section);
    let (side, realm) = realms::read_side(section)?;
    Some(NeighborDraft { address: address?, mac: mac?, side, realm })
}

/// Reads the hardware address of a neighbor.
pub(super) fn read_mac(section: &Section<'_>) -> Option<Mac> {
    let value = section.require("mac", "\"02:00:5e:10:00:01\"")?;
    value.parsed("a hardware address", mac).map(|mac| mac.value)
}

/// Reads the largest number of neighbors of a link.
pub(super) fn read_limit(limits: &Section<'_>) -> Option<usize> {
    bounded(limits, "neighbors", LEAST, MOST).and_then(|most| usize::try_from(most).ok())
}

/// Reports neighbors outside the network of their link, and repeated ones.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<(u16, Ipv4Addr), usize> = HashMap::new();
    let names = draft.realm_names();
    for neighbor in &draft.neighbors {
        let Some(realm) = names.of(&neighbor.realm) else { continue };
        let side = match neighbor.side {
            Side::Inside => draft.inside_of(realm),
            Side::Outside => &draft.outside,
        };
        let (address, place) = (neighbor.address.value, &neighbor.address.place);
        let name = side.name();
        if side.own() == Some(address) {
            report.wrong(place, format!("is {name}.address itself; write a neighbor's"));
        } else if let Some(network) = side.network().filter(|one| !one.contains(address.into())) {
            let shown = show_prefix(network);
            let message = format!("{address} is not in {shown}, the network of {name}.address");
            report.wrong(place, format!("{message}; write a neighbor's address"));
        }
        if let Some(line) = seen.insert((realm, address), report.line(place.offset)) {
            let message = format!("{address} is a neighbor in line {line} already; keep one");
            report.wrong(place, message);
        }
    }
}

/// Reads the hardware address of one station.
fn mac(text: &str) -> Result<Mac, String> {
    let example = "write one such as \"02:00:5e:10:00:01\"";
    let mut mac = Mac::default();
    let mut parts = text.split(':');
    for octet in &mut mac.0 {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()));
        let value = part
            .filter(|part| part.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|part| u8::from_str_radix(part, 16).ok());
        *octet =
            value.ok_or_else(|| format!("{} is no hardware address; {example}", quoted(text)))?;
    }
    if parts.next().is_some() {
        return Err(format!("{} is no hardware address; {example}", quoted(text)));
    }
    if !mac.is_station() {
        return Err(format!("{mac} is no single station's hardware address; {example}"));
    }
    Ok(mac)
}

impl NeighborDraft {
    fn to_settings(&self) -> StaticNeighbor {
        StaticNeighbor { side: self.side, address: self.address.value, mac: self.mac }
    }
}

impl Draft {
    /// Static neighbors by realm. Realm 0 includes those of the outside.
    pub(super) fn to_neighbors(&self) -> Vec<Vec<StaticNeighbor>> {
        let names = self.realm_names();
        let mut neighbors = vec![Vec::new(); self.realms.len() + 1];
        for neighbor in &self.neighbors {
            if let Some(realm) = names.of(&neighbor.realm) {
                neighbors[usize::from(realm)].push(neighbor.to_settings());
            }
        }
        neighbors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_six_octets_of_one_station() {
        assert_eq!(mac("02:00:5e:10:0:A1"), Ok(Mac([2, 0, 0x5e, 0x10, 0, 0xa1])));
        for text in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:01:02", "02:00:5e:10:00:g1", "+2:0:0:0:0:1"]
        {
            assert!(
                mac(text).is_err_and(|error| error.contains("is no hardware address")),
                "{text}"
            );
        }
        for text in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
            assert!(mac(text).is_err_and(|error| error.contains("single station")), "{text}");
        }
    }
}
