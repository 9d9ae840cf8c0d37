//! Headers: lengths, checksums, options, impossible addresses (section 2).

use crate::common::*;
use crate::world::*;
use natgate_engine::{DropReason, Side};
use natgate_wire::Ipv4;

#[test]
fn packets_cut_at_any_length_have_a_bad_length() {
    let mut world = World::new();
    for side in SIDES {
        let options = with_options(&world.good(side), &[148, 4, 0, 0]);
        let error = world.error(side, 3, |_| {});
        for bytes in [world.good(side), world.good_tcp(side), world.good_ping(side), options, error]
        {
            for len in 0..bytes.len() {
                world.refuse(&format!("cut to {len}"), side, &bytes[..len], DropReason::BadLength);
            }
        }
    }
    world.finish();
}

#[test]
fn packets_whose_transport_header_is_cut_have_a_bad_length() {
    let mut world = World::new();
    for side in SIDES {
        // The least IP payload of each protocol that can be translated. The UDP length says 13.
        for (bytes, least) in
            [(world.good(side), 13), (world.good_tcp(side), 20), (world.good_ping(side), 8)]
        {
            for payload in 0..least {
                let name = format!("{payload} bytes of protocol {}", bytes[9]);
                let short = shortened(&bytes, 20 + payload);
                world.refuse(&name, side, &short, DropReason::BadLength);
            }
        }
    }
    world.finish();
}

#[test]
fn headers_that_lie_about_versions_and_lengths() {
    let mut world = World::new();
    for version in (0..16).filter(|&version| version != 4) {
        world.refuse_both(&format!("version {version}"), DropReason::NotIpv4, |world, side| {
            with(&world.good(side), 0, version << 4 | 5)
        });
    }
    for words in (0..5).chain([9, 15]) {
        // Nine words are 36 bytes, and the packet has 33.
        world.refuse_both(&format!("{words} words"), DropReason::BadLength, |world, side| {
            with(&world.good(side), 0, 0x40 | words)
        });
    }
    for total_len in [0, 1, 19, 34, 1500, 65_535_u16] {
        let name = format!("total length {total_len}");
        world.refuse_both(&name, DropReason::BadLength, |world, side| {
            let mut bytes = world.good(side);
            bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
            sealed(bytes)
        });
    }
    world.finish();
}

#[test]
fn bytes_after_the_total_length_are_cut_off() {
    let mut world = World::new();
    for side in SIDES {
        let good = world.good(side);
        for more in [1, 13, 1000] {
            let after = world.forward("more bytes", side, &[&good[..], &vec![0xff; more]].concat());
            assert_eq!(after.len(), good.len());
            ends(&after);
        }
    }
    world.finish();
}

#[test]
fn a_wrong_header_checksum_is_seen_whatever_bit_is_wrong() {
    let mut world = World::new();
    // Version and lengths are checked before, and have their own test.
    for at in (0..20).filter(|at| !matches!(at, 0 | 2 | 3)) {
        for bit in 0..8 {
            let name = format!("bit {bit} of byte {at}");
            world.refuse_both(&name, DropReason::BadHeaderChecksum, |world, side| {
                let mut bytes = world.good(side);
                bytes[at] ^= 1 << bit;
                bytes
            });
        }
    }
    world.finish();
}

#[test]
fn source_routes_and_broken_options_are_dropped() {
    let mut world = World::new();
    let cases: [(&str, &[u8], DropReason); 9] = [
        ("loose", &[131, 7, 4, 198, 51, 100, 7, 0], DropReason::SourceRoute),
        ("strict", &[137, 7, 4, 198, 51, 100, 7, 0], DropReason::SourceRoute),
        ("already used up", &[131, 3, 4, 0], DropReason::SourceRoute),
        ("behind padding", &[1, 1, 1, 137, 3, 4, 0, 0], DropReason::SourceRoute),
        ("behind a record route", &[7, 7, 4, 0, 0, 0, 0, 131, 3, 4, 0, 0], DropReason::SourceRoute),
        ("length zero", &[7, 0, 4, 0], DropReason::BadOptions),
        ("length one", &[7, 1, 4, 0], DropReason::BadOptions),
        ("past the header", &[1, 7, 4, 0], DropReason::BadOptions),
        ("no length", &[1, 1, 1, 7], DropReason::BadOptions),
    ];
    for (name, options, reason) in cases {
        world.refuse_both(name, reason, |world, side| with_options(&world.good(side), options));
    }
    world.finish();
}

#[test]
fn other_options_pass_unchanged() {
    let mut world = World::new();
    for options in [
        &[0, 0, 0, 0][..],
        &[1, 1, 1, 1],
        &[148, 4, 0, 0],
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
        &[0, 131, 3, 4],
        &[1; 40],
    ] {
        for side in SIDES {
            let sent = with_options(&world.good(side), options);
            let after = world.forward(&format!("{options:?}"), side, &sent);
            assert_eq!(&after[20..20 + options.len()], options);
            assert!(Ipv4::new_checked(&after[..]).unwrap().checksum_valid());
        }
    }
    world.finish();
}

#[test]
fn martians_and_land_are_dropped() {
    let mut world = World::new();
    for martian in [
        "0.0.0.0",
        "0.1.2.3",
        "0.255.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        let martian_bits = Some(address(martian));
        world.refuse_both(&format!("{martian} >"), DropReason::MartianSource, |world, side| {
            with_addresses(&world.good(side), martian_bits, None)
        });
        world.refuse_both(
            &format!("> {martian}"),
            DropReason::MartianDestination,
            |world, side| with_addresses(&world.good(side), None, martian_bits),
        );
    }
    for same in ["10.0.0.5", "198.51.100.7", "203.0.113.1", "192.0.2.254", "10.0.0.1"] {
        world.refuse_both(same, DropReason::Land, |world, side| {
            with_addresses(&world.good_tcp(side), Some(address(same)), Some(address(same)))
        });
    }
    world.finish();
}

#[test]
fn neighbours_of_martians_are_ordinary() {
    let mut world = World::new();
    for ordinary in ["1.0.0.0", "126.255.255.255", "128.0.0.0", "223.255.255.255"] {
        let sent = with_addresses(&world.good(Side::Inside), None, Some(address(ordinary)));
        world.forward(ordinary, Side::Inside, &sent);
        let sent = with_addresses(&world.good(Side::Outside), Some(address(ordinary)), None);
        world.forward(ordinary, Side::Outside, &sent);
    }
}

#[test]
fn transport_headers_that_lie_have_a_bad_length() {
    let mut world = World::new();
    // The segment has 20 bytes.
    for words in (0..5).chain([6, 15]) {
        world.refuse_both(&format!("{words} words"), DropReason::BadLength, |world, side| {
            with(&world.good_tcp(side), 32, words << 4)
        });
    }
    // The datagram has 13 bytes.
    for length in (0..8).chain([14, 21, 1480, 65_535_u16]) {
        let name = format!("UDP length {length}");
        world.refuse_both(&name, DropReason::BadLength, |world, side| {
            let mut bytes = world.good(side);
            bytes[24..26].copy_from_slice(&length.to_be_bytes());
            bytes
        });
    }
    // Bytes between the datagram's end and the packet's end do not matter.
    for side in SIDES {
        let short = with(&world.good(side), 25, 8);
        world.forward("UDP length 8", side, &short);
    }
    world.finish();
}

#[test]
fn the_first_fault_gives_the_reason() {
    let mut world = World::new();
    // A packet with every fault. Each step repairs the reported fault.
    let mut bytes = shortened(&with_options(&world.good(Side::Outside), &[131, 9, 1, 1]), 28);
    bytes[0] = 0x66;
    bytes[12] = 127;
    bytes[16] = 240;
    let mut refuse = |bytes: &[u8], reason: DropReason| {
        for side in SIDES {
            world.refuse(reason.name(), side, bytes, reason);
        }
    };
    refuse(&bytes, DropReason::NotIpv4);
    bytes[0] = 0x46;
    refuse(&bytes[..27], DropReason::BadLength);
    refuse(&bytes, DropReason::BadHeaderChecksum);
    bytes = sealed(bytes);
    refuse(&bytes, DropReason::SourceRoute);
    bytes = with(&bytes, 20, 7);
    refuse(&bytes, DropReason::BadOptions);
    bytes = with(&bytes, 21, 4);
    refuse(&bytes, DropReason::MartianSource);
    bytes = with(&bytes, 12, 10);
    refuse(&bytes, DropReason::MartianDestination);
    let source: [u8; 4] = bytes[12..16].try_into().unwrap();
    bytes[16..20].copy_from_slice(&source);
    bytes = sealed(bytes);
    refuse(&bytes, DropReason::Land);
    // Four bytes of UDP follow the options.
    bytes = with_addresses(&bytes, Some(address("10.0.0.1")), Some(address("203.0.113.1")));
    refuse(&bytes, DropReason::BadLength);
    let whole = with_addresses(&udp(INNER, &world.udp), Some(address("10.0.0.1")), None);
    for side in SIDES {
        world.refuse("spoofed", side, &whole, DropReason::SpoofedSource);
    }
    world.finish();
}
