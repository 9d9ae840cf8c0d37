//! Protocols without ports in a pair: an external address leads to one host for each remote
//! address, at both nodes.

use super::histories::Judge;
use super::*;

/// Remote hosts of tunnels.
pub(super) const PEERS: [u32; 3] = [REMOTE, REMOTE + 1, REMOTE + 2];

/// A packet of GRE.
fn gre(source: u32, destination: u32) -> [u8; 40] {
    let mut bytes = packet(None, (source, 0), (destination, 0));
    let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a header");
    header.set_protocol(protocol::GRE);
    header.fill_checksum();
    bytes
}

/// The host that had an external address last, for each remote address.
pub(super) type Tunnels = BTreeMap<(Ipv4Addr, u32), u8>;

impl Process {
    /// Sends a packet of GRE of a host to a remote one. Returns its external address.
    pub(super) fn tunnel(&mut self, host: u8, peer: u32) -> Option<Ipv4Addr> {
        let (realm, address) = self.place(host)?;
        let passed = self.pass((Side::Inside, realm), gre(address.to_bits(), peer));
        passed.map(|(source, ..)| source.0)
    }

    /// A packet of GRE comes from a remote host. Returns the realm and the address that it reaches.
    pub(super) fn tunnel_back(
        &mut self,
        address: Ipv4Addr,
        peer: u32,
    ) -> Option<(String, Ipv4Addr)> {
        let (_, to, realm) = self.pass((Side::Outside, 0), gre(peer, address.to_bits()))?;
        Some((self.realm_name(realm), to.0))
    }
}

impl Judge {
    /// A host sends a packet without a port at a node. Then packets come back to both nodes, and
    /// reach nobody but the latest host.
    pub(super) fn tunnel(&mut self, pair: &mut Pair, to_a: bool, host: u8) {
        let peer = PEERS[usize::from(host % 3)];
        if let Some(address) = pair.either(to_a).tunnel(host, peer) {
            self.note_whole(address, host, pair.now);
            self.tunnels.insert((address, peer), host);
        }
        let addresses = pair.allotment.all_addresses();
        let at = (addresses[pair.below(addresses.len() as u64) as usize], peer);
        let Some(latest) = self.tunnels.get(&at).map(|host| self.allotment.place(*host)) else {
            return;
        };
        let processes = [&mut pair.a, &mut pair.b].into_iter().flatten();
        for process in processes.filter(|process| !process.has_static(at.0)) {
            if let Some(reached) = process.tunnel_back(at.0, at.1) {
                assert_eq!(reached, (latest.0.to_owned(), latest.1), "{at:?} leads to another");
            }
        }
    }
}

#[test]
fn tunnels_go_on_at_the_partner_and_their_address_rests() {
    let mut pair = Pair::start();
    let [first, second] = [5, 6].map(|host| pair.a().tunnel(host, PEERS[usize::from(host) - 5]));
    assert_eq!((first, second), (Some(A1), Some(A1)));
    pair.run(3.0);
    assert!(pair.status_is_whole());
    pair.end_a_with_guardian();
    pair.run(1.0);
    assert_eq!(pair.b().tunnel(5, PEERS[0]), Some(A1), "it goes on");
    assert_eq!(pair.b().tunnel_back(A1, PEERS[1]).expect("it is there").1.octets()[3], 6);
    assert_eq!(pair.b().tunnel(7, PEERS[0]), Some(B2), "its own address for a new one");
    pair.run(130.0);
    pair.restart_a();
    pair.run(3.0);
    pair.wire().is_cut = true;
    pair.run(5_000.0);
    assert_eq!(pair.b().engine.mappings().count(), 0);
    assert_eq!(pair.b().engine.resting(), 3);
    assert_eq!(pair.a().engine.mappings().count(), 3, "the copies do not end");
    let new = pair.b().tunnel(8, PEERS[0]);
    assert_eq!(new, None, "both addresses lead to others at the partner");
    assert_eq!(pair.b().tunnel(5, PEERS[0]), Some(A1), "the same host may go on");
    pair.wire().is_cut = false;
    pair.run(5.0);
    assert_eq!(pair.b().engine.resting(), 0);
    assert_eq!(pair.b().tunnel(8, PEERS[0]), Some(B2));
    assert!(pair.status_is_whole());
}
