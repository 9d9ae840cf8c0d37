//! Settings of a pair of gateways.

use crate::limits::MOST_WORKERS;
use natgate_engine::AddressRange;
use natgate_pair::{Boot, Node, Ownership};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of one of two gateways that share external addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Name of this node. The partner's certificate must not have it.
    pub node: String,
    /// Number of this node's workers.
    pub workers: usize,
    /// Address to listen on for the partner.
    pub listen: SocketAddr,
    /// Certificate of this node, a PEM file. Its names include `node`.
    pub certificate: PathBuf,
    /// Key of the certificate, a PEM file.
    pub key: PathBuf,
    /// Certificates of the authorities that sign the nodes' certificates, a PEM file.
    pub authorities: PathBuf,
    /// The other node.
    pub partner: PartnerSettings,
    /// The slices. Both nodes have the same, in the same order.
    pub slices: Vec<SliceSettings>,
    /// File with the number of starts of this node.
    pub starts: PathBuf,
    /// Time without progress after which the guardian ends the gateway.
    pub hang: Duration,
}

/// The other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartnerSettings {
    /// Its name, which its certificate must have.
    pub node: String,
    /// Address that it listens on.
    pub address: SocketAddr,
}

/// A slice: external addresses with one owner at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceSettings {
    /// The addresses.
    pub addresses: Vec<AddressRange>,
    /// Name of the node that is the owner as long as it can be.
    pub owner: String,
}

impl FleetSettings {
    /// This node, in the order of names.
    pub fn this(&self) -> Node {
        if self.node < self.partner.node { Node::A } else { Node::B }
    }

    /// Home of each slice.
    pub fn homes(&self) -> Vec<Node> {
        let home = |slice: &SliceSettings| match slice.owner == self.node {
            true => self.this(),
            false => self.this().other(),
        };
        self.slices.iter().map(home).collect()
    }

    /// The ownership of a start of this node.
    pub(super) fn ownership(&self, boot: Boot) -> Ownership {
        let workers = self.workers.clamp(1, MOST_WORKERS) as u8;
        let ownership = Ownership::start(self.this(), boot, &self.homes());
        ownership.with_shape(self.shape()).with_workers(workers)
    }

    /// A sum over what both nodes must have alike: the names of the nodes, and the slices.
    fn shape(&self) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        let mut text = |text: &str| {
            sum.update(text.as_bytes());
            sum.update(&[0]);
        };
        for node in [Node::A, Node::B] {
            text(self.name(node));
        }
        for slice in &self.slices {
            text(&slice.owner);
            for AddressRange { first, last } in &slice.addresses {
                text(&format!("{first}-{last}"));
            }
        }
        sum.finalize()
    }

    /// Name of a node.
    pub fn name(&self, node: Node) -> &str {
        if node == self.this() { &self.node } else { &self.partner.node }
    }
}
