//! Senders that expect no answer: packets without a destination, fragments of datagrams, forged
//! packets and floods, from inside and from outside.

use super::clients::host;
use super::raw::{Header, Raw, datagram, icmp, syn};
use super::{KERNEL, KERNEL_PORT, Random, World};
use natgate_testnet::{GATEWAY_INSIDE, GATEWAY_OUTSIDE, POOL, REFLECTOR_PORT, SERVER1, SERVER2};
use natgate_wire::protocol;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Unused addresses in the servers' networks.
const DEAD: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 99), Ipv4Addr::new(198, 51, 100, 200)];

/// Address of a subscriber that does not exist. A packet to it waits for ARP in vain, or has no
/// route.
fn ghost(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 9 * random.below(2) as u8, 220 + random.below(30) as u8)
}

fn port(random: &mut Random) -> u16 {
    1024 + random.below(60_000) as u16
}

/// Sends stray packets from inside.
pub(super) fn inside(world: &World<'_>, node: &str, mut random: Random) {
    let raw = Raw::open();
    while world.goes_on() {
        let own = host(node, &mut random);
        let server = [SERVER1, SERVER2][random.below(2) as usize];
        let random = &mut random;
        let udp = |from, to| Header::new(from, to, protocol::UDP);
        let payload = datagram(port(random), REFLECTOR_PORT, &[7; 64]);
        match random.below(12) {
            // The time to live ends at the gateway, or at the router.
            0 => raw.send(&Header { ttl: 1, ..udp(own, server) }.packet(&payload)),
            1 => raw.send(&Header { ttl: 2, ..udp(own, server) }.packet(&payload)),
            2 => raw.send(&udp(own, DEAD[random.below(2) as usize]).packet(&payload)),
            // The answers reach no host.
            3 => raw.send(&udp(ghost(random), server).packet(&payload)),
            4 => raw.send(&udp(Ipv4Addr::new(11, 0, 0, 1), server).packet(&payload)),
            5 => raw.send(&udp(own, POOL[random.below(4) as usize]).packet(&payload)),
            6 => raw.send(&udp(own, GATEWAY_INSIDE).packet(&payload)),
            7 => raw.send(&udp(own, KERNEL).packet(&datagram(4000, KERNEL_PORT, &[0; 32]))),
            8 => raw.send(&udp(own, Ipv4Addr::new(10, 0, 0, 255)).packet(&payload)),
            9 => {
                // A connection that is never completed.
                let bytes = syn([own, DEAD[0]], port(random), 443);
                raw.send(&Header::new(own, DEAD[0], protocol::TCP).packet(&bytes));
            }
            _ => pieces(&raw, own, SocketAddrV4::new(server, REFLECTOR_PORT), random),
        }
        random.nap(4);
    }
}

/// Sends stray packets from outside.
pub(super) fn outside(world: &World<'_>, _: &str, mut random: Random) {
    let raw = Raw::open();
    while world.goes_on() {
        let random = &mut random;
        let pool = POOL[random.below(4) as usize];
        // An endpoint that a mapping has or had.
        let met = world.met(random).unwrap_or(SocketAddrV4::new(pool, 5000));
        let udp = |to| Header::new(SERVER1, to, protocol::UDP);
        let payload = datagram(REFLECTOR_PORT, met.port(), &[9; 64]);
        match random.below(9) {
            0 => raw.send(&udp(pool).packet(&datagram(53, port(random), &[1; 20]))),
            1 => raw.send(&udp(*met.ip()).packet(&payload)),
            2 => {
                let bytes = syn([SERVER1, pool], port(random), port(random));
                raw.send(&Header::new(SERVER1, pool, protocol::TCP).packet(&bytes));
            }
            3 => {
                let bytes = icmp(8, 0, [1, 2, 0, 1], &[3; 40]);
                raw.send(&Header::new(SERVER1, pool, protocol::ICMP).packet(&bytes));
            }
            4 => {
                // An error about a packet that was never sent.
                let quoted = Header::new(pool, SERVER2, protocol::UDP);
                let quoted = quoted.packet(&datagram(port(random), 53, &[0; 8]));
                let bytes = icmp(3, 3, [0; 4], &quoted);
                raw.send(&Header::new(SERVER2, pool, protocol::ICMP).packet(&bytes));
            }
            5 => raw.send(&Header::new(SERVER1, pool, 99).packet(&[5; 40])),
            6 => raw.send(&udp(GATEWAY_OUTSIDE).packet(&payload)),
            7 => raw.send(&Header { ttl: 2, ..udp(*met.ip()) }.packet(&payload)),
            _ => pieces(&raw, SERVER1, met, random),
        }
        random.nap(4);
    }
}

/// Sends a datagram in fragments, in any order; sometimes fragments are missing.
fn pieces(raw: &Raw, from: Ipv4Addr, to: SocketAddrV4, random: &mut Random) {
    let identification = 1 + random.below(65_535) as u16;
    let header = Header { identification, ..Header::new(from, *to.ip(), protocol::UDP) };
    let len = 100 + random.below(3000) as usize;
    let payload = datagram(REFLECTOR_PORT, to.port(), &random.bytes(len));
    let mut pieces = header.pieces(&payload, 64 + 8 * random.below(100) as usize);
    while !pieces.is_empty() {
        let which = random.below(pieces.len() as u64) as usize;
        let piece = pieces.swap_remove(which);
        if random.below(16) > 0 {
            raw.send(&piece);
        }
    }
}

/// Floods from time to time, as fast as one thread can: from inside new mappings without end, from
/// outside packets to any port.
pub(super) fn floods(world: &World<'_>, node: &str, mut random: Random) {
    let raw = Raw::open();
    while world.goes_on() {
        world.sleep(world.pace / 2 + world.pace * random.below(100) as u32 / 100);
        let end = Instant::now() + Duration::from_millis(50 + random.below(300));
        let len = [18, 500, 1400][random.below(3) as usize];
        while Instant::now() < end && world.goes_on() {
            for _ in 0..64 {
                let (from, to) = match node {
                    "sub2" => (Ipv4Addr::new(10, 0, 0, 20 + random.below(230) as u8), SERVER2),
                    _ => (SERVER2, POOL[random.below(4) as usize]),
                };
                let payload = datagram(port(&mut random), port(&mut random), &vec![0; len]);
                raw.send(&Header::new(from, to, protocol::UDP).packet(&payload));
            }
        }
    }
}
