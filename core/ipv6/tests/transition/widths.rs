//! Paths that are narrower than the gateway's links: a router there drops what does not fit and
//! reports it, and a sender believes the reports that it gets. No length of a packet is lost for
//! ever, in either direction, whether the packet may be cut or not.

use crate::packets::*;
use crate::prefixes::pref64;
use crate::world::{Went, World, customer, dmr, lw4o6, map, map_rule, nat64, siit};
use natgate_engine::Side;
use natgate_ipv6::convert::Cut;
use natgate_ipv6::softwire::MapMode;
use natgate_ipv6::{Pref64, Settings};
use natgate_wire::Ipv4;

const LINK: u16 = 1540;
const HOST: &str = "2001:db8:a::5";
const REMOTE: &str = "198.51.100.7";
const ROUTER6: &str = "2001:db8:77::1";
const ROUTER4: &str = "192.0.2.77";
const B4: &str = "2001:db8:b4::1";
const RELAY: &str = "2001:db8:fffe::2";
const PORT: u16 = 1232;
/// Most packets that a sender needs until one arrives: the first, one after the gateway's error,
/// and one after the router's.
const TRIES: usize = 3;

/// The transport of one host's packets through the gateway.
struct Way {
    name: &'static str,
    world: World,
    /// Ends of IPv6 packets from the host, and of IPv4 packets to it.
    outward: (String, String),
    inward: (String, String),
    /// The host's port, inside and outside.
    ports: (u16, u16),
    is_tunnel: bool,
}

fn wide(settings: Settings) -> World {
    let mut settings = settings;
    (settings.inside.mtu, settings.outside.mtu) = (LINK, LINK);
    World::new(settings)
}

impl Way {
    fn new(name: &'static str, settings: Settings, ends: Ends<'_>, external: &str) -> Self {
        let ports = (PORT, PORT);
        let (outward, inward) = (pair(ends), pair((REMOTE, external)));
        let is_tunnel = settings.lw4o6.is_some();
        Self { name, world: wide(settings), outward, inward, ports, is_tunnel }
    }

    /// A packet from the host with so many bytes on the path outside.
    fn outward(&self, len: usize, may_cut: bool) -> Vec<u8> {
        let ends = (&self.outward.0[..], &self.outward.1[..]);
        let datagram = udp((self.ports.0, 53), len - 28);
        if !self.is_tunnel {
            return six(ends, UDP, &datagram);
        }
        let inner = four((&self.inward.1, REMOTE), UDP, &datagram);
        tunneled(ends, &with_field(inner, 7, if may_cut { 0 } else { 0x4000 }))
    }

    /// A packet to the host, of so many bytes.
    fn inward(&self, len: usize, may_cut: bool) -> Vec<u8> {
        let packet = four((REMOTE, &self.inward.1), UDP, &udp((53, self.ports.1), len - 28));
        with_field(packet, 7, if may_cut { 0 } else { 0x4000 })
    }

    /// The MTU that the gateway's errors to a side tell, after a packet's fate. `None`: no error
    /// left.
    fn told(&mut self, to: Side, went: Went) -> Option<usize> {
        let mut errors: Vec<(Side, Vec<u8>)> = Vec::new();
        match went {
            Went::To(side, bytes, None) => errors.push((side, bytes)),
            Went::To(..) => panic!("{}: an error is cut", self.name),
            Went::Dropped(_) | Went::Held => {}
        }
        errors.extend(std::iter::from_fn(|| self.world.own()));
        let mut told = None;
        for (side, bytes) in errors {
            check(&bytes);
            assert_eq!(side, to, "{}", self.name);
            let inner = if self.is_tunnel && side == Side::Inside { &bytes[40..] } else { &bytes };
            let (at, kind) = if inner[0] >> 4 == 6 { (40, [2, 0]) } else { (20, [3, 4]) };
            assert_eq!(inner[at..at + 2], kind, "{}", self.name);
            let word = [inner[at + 4], inner[at + 5], inner[at + 6], inner[at + 7]];
            told = Some(u32::from_be_bytes(word) as usize);
        }
        told
    }

    /// Carries a packet over a path behind the gateway: the packets that arrive, or the MTU that
    /// the sender is told of.
    fn carry(
        &mut self,
        from: Side,
        width: usize,
        packet: &[u8],
    ) -> Result<Vec<Vec<u8>>, Option<usize>> {
        let (bytes, cut) = match self.world.take(from, packet) {
            Went::To(side, bytes, cut) if side == from.other() => (bytes, cut),
            went => return Err(self.told(from, went)),
        };
        let pieces = pieces(cut, &bytes);
        let may_cut = |piece: &[u8]| {
            piece[0] >> 4 == 4 && !Ipv4::new_checked(piece).expect("a packet").dont_fragment()
        };
        let Some(wide) = pieces.iter().find(|piece| piece.len() > width && !may_cut(piece)) else {
            return Ok(pieces);
        };
        let source = ends(wide).0;
        let report = match from {
            Side::Outside => {
                let quoted = &wide[..wide.len().min(1232)];
                six((ROUTER6, &source), ICMPV6, &error(2, 0, width, quoted))
            }
            Side::Inside => four((ROUTER4, &source), ICMP, &error(3, 4, width, &wide[..28])),
        };
        let went = self.world.take(from.other(), &report);
        Err(self.told(from, went))
    }

    /// Sends a datagram until it arrives.
    fn deliver(&mut self, from: Side, width: usize, len: usize, may_cut: bool) {
        let (name, mut at_most) = (self.name, len);
        for _ in 0..TRIES {
            self.world.now.0 += 3_000_000;
            let packet = match from {
                Side::Inside => self.outward(at_most, may_cut),
                Side::Outside => self.inward(at_most, may_cut),
            };
            let mtu = match self.carry(from, width, &packet) {
                Ok(pieces) => return arrives(&pieces, at_most - 28),
                Err(mtu) => mtu,
            };
            // A gateway that cuts the packet from now on needs to tell nothing.
            let Some(mtu) = mtu else {
                assert!(may_cut, "{name}: {at_most} bytes into {width} vanish without a word");
                continue;
            };
            // The sender inside reckons with headers of its own family.
            let mtu =
                if from == Side::Inside && !self.is_tunnel { mtu.max(1280) - 20 } else { mtu };
            assert!(mtu < at_most, "{name}: {mtu} after {at_most} bytes into {width}");
            at_most = mtu;
        }
        panic!("{name}: {len} bytes never pass {width} from {from:?}");
    }
}

/// The packets that leave for a packet.
fn pieces(cut: Option<Cut>, bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(cut) = cut else { return vec![bytes.to_vec()] };
    let mut fragments = cut.fragments(bytes);
    let mut buffer = vec![0; cut.limit];
    let next = || fragments.write_next(&mut buffer).map(|len| buffer[..len].to_vec());
    std::iter::from_fn(next).collect()
}

/// Checks that the pieces are a datagram with so many bytes of data.
fn arrives(pieces: &[Vec<u8>], data: usize) {
    let content = |piece: &Vec<u8>| match (piece[0] >> 4, piece[6]) {
        (4, _) => piece[20..].to_vec(),
        (_, 44) => piece[48..].to_vec(),
        _ => piece[40..].to_vec(),
    };
    let mut joined: Vec<u8> = pieces.iter().flat_map(content).collect();
    if joined[0] == 0x45 {
        joined.drain(..20);
    }
    assert_eq!(joined.len(), 8 + data);
    assert!(joined[8..].iter().all(|byte| *byte == 7));
}

/// NAT64, SIIT, MAP-T and lw4o6.
fn ways() -> [Way; 4] {
    let seen = |net: Pref64| net.embed(REMOTE.parse().expect("an address")).to_string();
    let net = pref64("64:ff9b::", 96);
    let rule = map_rule("2001:db8::", "192.0.2.0", 24, MapMode::Translation(dmr()));
    let ce = customer(&rule, "192.0.2.18", 0x34);
    let mut nat64 = Way::new("NAT64", nat64(net), (HOST, &seen(net)), "203.0.113.1");
    let first = nat64.outward(100, true);
    let left = nat64.world.pass(Side::Inside, Side::Outside, &first);
    nat64.ports.1 = port(&left, 0);
    let siit = siit(net, &[(HOST, "192.0.2.1")]);
    [
        nat64,
        Way::new("SIIT", siit, (HOST, &seen(net)), "192.0.2.1"),
        Way::new("MAP-T", map(&[(rule, None)]), (&ce, &seen(dmr())), "192.0.2.18"),
        Way::new("lw4o6", lw4o6("192.0.2.18", None, &[(1, B4, RELAY)]), (B4, RELAY), "192.0.2.18"),
    ]
}

/// Widths, the widest first: a gateway that remembers a path gets a new report for each.
fn sweep(from: Side, widths: impl DoubleEndedIterator<Item = usize>) {
    let mut ways = ways();
    for width in widths.rev() {
        for way in &mut ways {
            // The mapping of NAT64 stays.
            let first = way.outward(100, true);
            way.world.pass(Side::Inside, Side::Outside, &first);
            let most = if from == Side::Inside && way.is_tunnel { 1500 } else { 1520 };
            let least = width.max(1240) - 60;
            for len in (least..=most).step_by(13).chain([100, most]) {
                for may_cut in [false, true] {
                    way.deliver(from, width, len, may_cut);
                }
            }
        }
    }
}

#[test]
fn no_width_of_a_path_inside_is_a_black_hole() {
    sweep(Side::Outside, 1280..=1540);
}

#[test]
fn no_width_of_a_path_outside_is_a_black_hole() {
    sweep(Side::Inside, 1200..=1540);
    sweep(Side::Inside, [576, 600, 1006].into_iter());
}
