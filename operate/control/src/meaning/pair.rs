//! The meaning of `[fleet]` and `[[slice]]`: the nodes, their slices, and the ports that rest.

use super::Meaning;
use super::text::{grouped, list};
use crate::config::{show_duration, show_range};
use natgate_engine::Config;
use natgate_gateway::Settings;
use natgate_gateway::fleet::{FleetSettings, SliceSettings};
use serde::Serialize;
use std::fmt::{self, Formatter};
use std::net::Ipv4Addr;

/// Most slices that are listed.
const MOST_SLICES: usize = 20;

/// The meaning of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SliceMeaning {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Name of the node that owns it as long as it can.
    pub owner: String,
    /// Ports of each protocol that dynamic and static mappings can have.
    pub ports: u64,
}

/// The meaning of `[fleet]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairMeaning {
    /// Name of this node.
    pub node: String,
    /// Name of the other node.
    pub partner: String,
    /// The slices, in the file's order.
    pub slices: Vec<SliceMeaning>,
    /// Ports of each protocol of this node's slices.
    pub own_ports: u64,
    /// Ports of each protocol of the other node's slices.
    pub partner_ports: u64,
    /// Time for which no new mapping gets a port of a slice after a take-over, milliseconds.
    pub hold_down_ms: u64,
}

impl PairMeaning {
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        let fleet = settings.fleet.as_ref()?;
        let ports: Vec<u64> =
            settings.engine.pools.iter().map(|pool| u64::from(pool.ports_used())).collect();
        let meaning = |slice| meaning(&settings.engine, &ports, slice);
        let slices: Vec<SliceMeaning> = fleet.slices.iter().map(meaning).collect();
        let ports = |node: &String| -> u64 {
            slices.iter().filter(|slice| slice.owner == *node).map(|slice| slice.ports).sum()
        };
        Some(Self {
            node: fleet.node.clone(),
            partner: fleet.partner.node.clone(),
            own_ports: ports(&fleet.node),
            partner_ports: ports(&fleet.partner.node),
            slices,
            hold_down_ms: settings.engine.timeouts.hold_down.as_millis() as u64,
        })
    }
}

/// The meaning of a slice. `ports`: those of each pool's addresses.
fn meaning(config: &Config, ports: &[u64], slice: &SliceSettings) -> SliceMeaning {
    let is_in = |address: Ipv4Addr| slice.addresses.iter().any(|range| range.contains(address));
    let ports = config.pools.iter().zip(ports).map(|(pool, ports)| {
        let serving = pool.each_address().filter(|address| !pool.is_draining(*address));
        serving.filter(|address| is_in(*address)).count() as u64 * ports
    });
    SliceMeaning {
        addresses: slice.addresses.iter().copied().map(show_range).collect(),
        owner: slice.owner.clone(),
        ports: ports.sum(),
    }
}

impl Meaning {
    /// Writes the nodes, the slices and the ports that rest, if the gateway is one of a pair.
    pub(super) fn of_pair(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Some(pair), Some(fleet)) = (&self.pair, &self.settings.fleet) else { return Ok(()) };
        let FleetSettings { node, listen, partner, slices, .. } = fleet;
        let (other, address) = (&partner.node, partner.address);
        writeln!(f, "Pair")?;
        writeln!(f, "  this is node {node} at {listen}, the other one is {other} at {address}")?;
        for (number, slice) in slices.iter().enumerate().take(MOST_SLICES) {
            let (owner, addresses) = (&slice.owner, list(&slice.addresses, show_range));
            let ports = grouped(pair.slices[number].ports);
            writeln!(f, "  slice {number} of node {owner}: {addresses}, {ports} ports a protocol")?;
        }
        match slices.len().saturating_sub(MOST_SLICES) {
            0 => {}
            more => writeln!(f, "  and {more} more slices")?,
        }
        let hold_down = show_duration(self.settings.engine.timeouts.hold_down);
        match (pair.partner_ports, pair.own_ports) {
            (0, _) => writeln!(f, "  after the end of node {other} no slice rests: it owns none"),
            (ports, own) => {
                write!(f, "  after the end of node {other} its slices rest for {hold_down}: ")?;
                writeln!(f, "{} ports a protocol", grouped(ports))?;
                match own {
                    0 => writeln!(f, "  new mappings get no port meanwhile"),
                    own => {
                        let own = grouped(own);
                        writeln!(f, "  new mappings get the {own} ports of node {node} meanwhile")
                    }
                }
            }
        }
    }
}
