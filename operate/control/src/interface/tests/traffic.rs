//! Packets that pass a running gateway while commands change it: each is expected to leave.

use super::*;
use natgate_wire::Ipv6;
use std::time::Instant;

/// Packets a flow sends in one round.
const ROUND: u32 = 3;

/// Keys of both sides with IPv6, and next hops that need no discovery.
pub(super) const NEXT_HOPS: &str = "\
[[neighbor]]\naddress = \"192.0.2.254\"\nmac = \"02:00:00:00:02:01\"\n\
[[neighbor]]\naddress = \"fe80::9\"\nmac = \"02:00:00:00:02:02\"\nside = \"inside\"\n\
[[neighbor]]\naddress = \"fe80::8\"\nmac = \"02:00:00:00:02:03\"\nside = \"outside\"\n\
[[route]]\nprefix = \"fd00::/8\"\nvia = \"fe80::9\"\nside = \"inside\"\n\
[[route]]\nprefix = \"2001:db8:b4::/48\"\nvia = \"fe80::9\"\nside = \"inside\"\n\
[[route]]\nprefix = \"2600::/16\"\nvia = \"fe80::8\"\nside = \"outside\"\n";

/// Source and destination of a packet, of either family.
type Ends = (String, String);

/// Makes a packet with these bytes at its end.
type Make = dyn Fn(&[u8]) -> Vec<u8>;

/// Packets of one kind.
pub(super) struct Flow {
    /// The side that the packets come in by.
    pub(super) from: Side,
    /// A packet with these bytes at its end.
    pub(super) packet: Box<Make>,
    /// The ends of the packet that leaves by the other side.
    pub(super) leaves: Ends,
}

/// An IPv6 packet.
pub(super) fn six(ends: (&str, &str), next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").to_bits();
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(payload.len() as u16);
    header.set_next_header(next_header);
    header.set_hop_limit(64);
    header.set_source(address(ends.0));
    header.set_destination(address(ends.1));
    bytes.extend(payload);
    bytes
}

/// An IPv4 packet of UDP without a checksum.
pub(super) fn four(ends: (&str, &str), ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let payload = datagram(ports, data);
    let mut bytes = vec![0; 20];
    let address = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_bits();
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(20 + payload.len() as u16);
    header.set_ttl(64);
    header.set_protocol(17);
    header.set_source(address(ends.0));
    header.set_destination(address(ends.1));
    header.fill_checksum();
    bytes.extend(payload);
    bytes
}

/// A UDP datagram without a checksum.
pub(super) fn datagram((from, to): (u16, u16), data: &[u8]) -> Vec<u8> {
    let len = 8 + data.len() as u16;
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], data].concat()
}

fn framed(side: Side, packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 6 { ethertype::IPV6 } else { ethertype::IPV4 };
    let own = if side == Side::Inside { INSIDE } else { OUTSIDE };
    let mut frame = [&[0; ETHERNET_LEN][..], packet].concat();
    let header = frame.first_chunk_mut().expect("a header");
    write_ethernet(header, own, Mac([2, 0, 0, 0, 1, 5]), kind);
    frame
}

/// Ends of a packet, and its last eight bytes.
fn seen(packet: &[u8]) -> Option<(Ends, [u8; 8])> {
    let ends = match Ipv6::new_checked(packet) {
        Ok(header) if packet[0] >> 4 == 6 => {
            let shown = |address| std::net::Ipv6Addr::from_bits(address).to_string();
            (shown(header.source()), shown(header.destination()))
        }
        _ => {
            let header = Ipv4::new_checked(packet).ok()?;
            let shown = |address| Ipv4Addr::from_bits(address).to_string();
            (shown(header.source()), shown(header.destination()))
        }
    };
    Some((ends, *packet.last_chunk()?))
}

impl World {
    /// Sends packets of all flows and waits until all of them have left, while `work` runs in a
    /// thread of its own. Returns the number of packets.
    pub(super) fn pass_during(&self, flows: &[Flow], work: impl FnOnce() + Send) -> u64 {
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let (mut rounds, mut count) = (0, 0);
            // The last rounds come after the work.
            let mut further = 2;
            while further > 0 {
                further -= u32::from(work.is_finished());
                count += self.pass_round(flows, rounds);
                rounds += 1;
            }
            work.join().expect("the work succeeds");
            count
        })
    }

    /// Checks that the gateway has forwarded this many packets, and dropped none.
    pub(super) fn passed(&self, count: u64) {
        let counters = self.get("/v1/counters");
        let packets = counters["packets"].as_object().expect("directions");
        let sum = |outcome: &str| -> u64 {
            packets.values().filter_map(|way| way[outcome].as_u64()).sum()
        };
        assert!(count > 0);
        assert_eq!((sum("forwarded"), sum("dropped")), (count, 0), "{counters}");
    }

    /// Sends packets of all flows, and waits for them.
    fn pass_round(&self, flows: &[Flow], round: u32) -> u64 {
        let mut missing = BTreeSet::new();
        for (number, flow) in flows.iter().enumerate() {
            for packet in 0..ROUND {
                let mark = (number as u32, round * ROUND + packet);
                let tail = [mark.0.to_be_bytes(), mark.1.to_be_bytes()].concat();
                let wire = if flow.from == Side::Inside { &self.inside } else { &self.outside };
                assert!(wire.send(&framed(flow.from, &(flow.packet)(&tail))), "room on the wire");
                let to = flow.from.other();
                missing.insert((to as usize, flow.leaves.clone(), tail));
            }
        }
        let count = missing.len() as u64;
        self.wakers.iter().for_each(|mut waker| waker.write_all(&[0]).expect("it wakes"));
        let began = Instant::now();
        while !missing.is_empty() {
            for (side, wire) in [(Side::Inside, &self.inside), (Side::Outside, &self.outside)] {
                while let Some(frame) = wire.take() {
                    let Some((ends, tail)) = seen(&frame[ETHERNET_LEN..]) else { continue };
                    missing.remove(&(side as usize, ends, tail.to_vec()));
                }
            }
            assert!(began.elapsed() < PATIENCE, "round {round}: lost {missing:?}");
            std::thread::sleep(Duration::from_micros(200));
        }
        count
    }
}
