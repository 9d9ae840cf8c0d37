//! A device whose MTU falls or rises while packets flow: router and translator follow it, up to the
//! configured value.

use crate::world::*;
use natgate_engine::DropReason;
use natgate_wire::Ipv4;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::time::Duration;

/// The MTU of devices and configuration at first, bytes.
const USUAL: u32 = 1500;

/// A second, after which devices have been maintained.
const A_WHILE: Duration = Duration::from_millis(1100);

/// The path of a subscriber's datagrams: a world whose neighbours are known, and the external port.
struct UdpPath {
    world: World,
    port: u16,
}

/// The result of one packet.
#[derive(Debug, PartialEq, Eq)]
enum Result {
    /// The packet left whole or in fragments, each no longer than this many bytes.
    Passed(usize),
    /// The sender got an error with this MTU, bytes.
    Refused(u16),
}

impl UdpPath {
    fn new() -> Self {
        let (world, port) = World::acquainted();
        Self { world, port }
    }

    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
        self.packets();
        self.world.turn();
    }

    fn carry(&mut self, outside: u32, inside: u32) {
        self.world.outside.set_mtu(outside);
        self.world.inside.set_mtu(inside);
        self.pass(A_WHILE);
    }

    /// IP packets that have come out inside and outside. ARP is answered.
    fn packets(&mut self) -> [Vec<Vec<u8>>; 2] {
        let World { inside, outside, .. } = &self.world;
        [(inside, HOST), (outside, SERVER)].map(|(wire, host)| {
            let mut packets = Vec::new();
            while let Some(frame) = wire.take() {
                match frame[12..14] == ethertype::IPV4.to_be_bytes() {
                    true => packets.push(frame[ETHERNET_LEN..].to_vec()),
                    false => drop(wire.send(&answer(&frame, host))),
                }
            }
            packets
        })
    }

    /// Sends a datagram of `len` bytes with its headers from one side to the other.
    fn sends(&mut self, outbound: bool, len: usize, dont_fragment: bool) -> Result {
        let (from, to) = match outbound {
            true => ((SUBSCRIBER, 4000), (REMOTE, 53)),
            false => ((REMOTE, 53), (EXTERNAL, self.port)),
        };
        let mut packet = udp(from, to, &vec![0x5a; len - 28]);
        let mut header = Ipv4::new_checked(&mut packet[..]).expect("a packet");
        header.set_fragment_field(if dont_fragment { 0x4000 } else { 0 });
        header.fill_checksum();
        match outbound {
            true => self.world.inside.send(&to_inside(&packet)),
            false => self.world.outside.send(&to_outside(&packet)),
        };
        self.world.turn();
        let [inside, outside] = self.packets();
        let (near, far) = match outbound {
            true => (inside, outside),
            false => (outside, inside),
        };
        match (&far[..], &near[..]) {
            ([], [error]) => {
                let error = view(error);
                let message = error.payload();
                assert_eq!(message[..2], [3, 4], "fragmentation needed");
                Result::Refused(u16::from_be_bytes([message[6], message[7]]))
            }
            (pieces, []) if !pieces.is_empty() => {
                let payload: usize = pieces.iter().map(|piece| view(piece).payload().len()).sum();
                assert_eq!(payload, len - 20, "all of it arrives");
                Result::Passed(pieces.iter().map(Vec::len).max().unwrap_or_default())
            }
            other => panic!("{len} bytes, DF {dont_fragment}: {other:?}"),
        }
    }
}

#[test]
fn packets_fit_a_device_that_carries_less_than_before() {
    let mut path = UdpPath::new();
    assert_eq!(path.sends(true, 1400, true), Result::Passed(1400));
    path.carry(900, USUAL);
    assert_eq!(path.sends(true, 1400, true), Result::Refused(900));
    assert!(matches!(path.sends(true, 1400, false), Result::Passed(..=900)));
    assert_eq!(path.sends(true, 900, true), Result::Passed(900));
    assert_eq!(path.sends(false, 1400, true), Result::Passed(1400));
    path.carry(USUAL, 900);
    assert_eq!(path.sends(true, 1400, true), Result::Passed(1400));
    assert_eq!(path.sends(false, 1400, true), Result::Refused(900));
    assert!(matches!(path.sends(false, 1400, false), Result::Passed(..=900)));
    // An MTU above the configuration's or below IPv4's minimum changes nothing.
    path.carry(9000, 20);
    assert_eq!(path.sends(true, 1501, true), Result::Refused(1500));
    assert_eq!(path.sends(false, 69, true), Result::Refused(68));
    path.carry(USUAL, USUAL);
    assert_eq!(path.sends(false, 1500, true), Result::Passed(1500));
    assert_eq!(path.world.drops(DropReason::TooBig), 4);
}

//= test rfc1812#section-3.3.4
#[test]
fn a_device_that_carries_less_at_the_start_is_told_and_gone_by() {
    const CONFIGURED: u16 = 9000;
    let mut settings = settings();
    settings.outside.mtu = CONFIGURED;
    settings.engine.outside.mtu = Some(CONFIGURED);
    let (world, port) = World::acquainted_with(&settings);
    let told = world.worker.narrow_devices(&settings);
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["outside.mtu is 9000, but device \"out\" carries 1500 bytes; set outside.mtu = 1500, or \
          raise the device's with `ip link set dev out mtu 9000`"]
    );
    let mut path = UdpPath { world, port };
    path.world.inside.set_mtu(CONFIGURED.into());
    assert_eq!(path.sends(true, 1501, true), Result::Refused(1500));
    assert!(matches!(path.sends(true, 1501, false), Result::Passed(..=1500)));
    // As soon as the device carries more, natgate uses that, up to the configured value.
    path.carry(8000, CONFIGURED.into());
    assert_eq!(path.world.worker.narrow_devices(&settings).len(), 1);
    assert_eq!(path.sends(true, 1501, true), Result::Passed(1501));
    path.carry(10_000, CONFIGURED.into());
    assert!(path.world.worker.narrow_devices(&settings).is_empty());
}

#[test]
fn whatever_devices_carry_no_longer_packet_is_sent_and_none_is_lost_in_silence() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(78);
    println!("SEED={seed}");
    let mut state = seed | 1;
    let mut draw = |below: u64| {
        // xorshift64, by Marsaglia.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut path = UdpPath::new();
    let mut carried = [USUAL; 2];
    for _ in 0..2000 {
        if draw(4) == 0 {
            let side = draw(2) as usize;
            carried[side] = 68 + draw(1700) as u32;
            path.carry(carried[0], carried[1]);
        }
        let (outbound, dont_fragment) = (draw(2) == 0, draw(2) == 0);
        let len = 30 + draw(1471) as usize;
        let most = carried[usize::from(!outbound)].min(USUAL) as usize;
        // This pace is below the rate limit of errors.
        path.pass(Duration::from_millis(300));
        match path.sends(outbound, len, dont_fragment) {
            Result::Passed(longest) => {
                assert!(longest <= most && !(dont_fragment && len > most), "{len} by {most}");
            }
            Result::Refused(told) => {
                assert!(dont_fragment && len > most && usize::from(told) == most, "{len} {told}");
            }
        }
    }
}
