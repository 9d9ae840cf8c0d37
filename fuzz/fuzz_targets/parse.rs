//! Random bytes as packets, from both sides, against an engine that has something to lose.
//!
//! The first byte says how the rest is dressed up: as it is, with the header's checksum set right,
//! or ICMP's too, or as what an ICMP error embeds. The views are asked for everything that they
//! know.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_engine::{AddressRange, Config, Limits, PoolConfig, Side, SideConfig};
use natgate_fuzz::{World, packet};
use natgate_wire::arp::Arp;
use natgate_wire::ipv4::scan_options;
use natgate_wire::{Icmp, Ipv4, Tcp, Udp, link};
use std::net::Ipv4Addr;

fuzz_target!(|data: &[u8]| {
    let Some((dress, bytes)) = data.split_first() else { return };
    views(bytes);
    let mut bytes = bytes.to_vec();
    match dress % 4 {
        0 => {}
        1 => packet::seal(&mut bytes),
        2 => packet::seal_icmp(&mut bytes),
        _ => bytes = embedded(bytes, dress & 4 != 0),
    }
    let mut world = world();
    for side in [Side::Inside, Side::Outside] {
        world.feed(side, &[bytes.clone()]);
    }
    world.check();
});

/// An engine with a mapping to lose.
fn world() -> World {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 5, 198, 51, 100, 7];
    let message = [8, 0, 0, 0, 7, 208, 0, 1];
    let mut ping = [&header[..], &message].concat();
    packet::seal_icmp(&mut ping);
    let mut world = World::new(config());
    world.feed(Side::Inside, &[ping]);
    assert_eq!(world.sent.len(), 1);
    world
}

/// Few ports keep the engine small.
fn config() -> Config {
    let address = Ipv4Addr::new(203, 0, 113, 1);
    let side = |a, b, c, d| SideConfig {
        address: Some(Ipv4Addr::new(a, b, c, d)),
        ..SideConfig::default()
    };
    Config {
        inside: side(10, 0, 0, 1),
        outside: side(192, 0, 2, 254),
        pools: vec![PoolConfig {
            name: "default".into(),
            addresses: vec![AddressRange { first: address, last: address }],
            ports: (2000, 2007),
            ..PoolConfig::default()
        }],
        limits: Limits { fragment_memory: 64 << 10, ..Limits::default() },
        ..Config::default()
    }
}

/// An ICMP error with an inner packet of these bytes, whose checksum is set right if asked.
fn embedded(mut bytes: Vec<u8>, sealed: bool) -> Vec<u8> {
    if sealed {
        packet::seal(&mut bytes);
    }
    let mut error = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 198, 51, 100, 7, 203, 0, 113, 1];
    error.extend([3, 3, 0, 0, 0, 0, 0, 0]);
    error.append(&mut bytes);
    let total_len = (error.len() as u16).to_be_bytes();
    error[2..4].copy_from_slice(&total_len);
    packet::seal_icmp(&mut error);
    error
}

/// Every accessor of every view that takes the bytes.
fn views(bytes: &[u8]) {
    let _ = (link::ethernet(bytes), link::cooked(bytes), link::cooked2(bytes));
    let _ = Arp::new_checked(bytes).map(|message| message.repr());
    let _ = scan_options(bytes);
    let _ = Tcp::new_checked(bytes).map(|segment| (segment.window_scale(), segment.flags()));
    let _ = Udp::new_checked(bytes).map(|datagram| (datagram.length(), datagram.checksum()));
    let _ = Icmp::new_checked(bytes).map(|message| (message.checksum_valid(), message.kind()));
    if let Ok(packet) = Ipv4::new_header_checked(bytes) {
        let _ = (packet.checksum_valid(), packet.fragment_offset());
        assert_eq!(packet.options().len() + 20, packet.header_len());
        assert!(packet.payload().len() + packet.header_len() <= bytes.len());
    }
}
