//! Tests of steering, without a device.

use super::*;
use proptest::prelude::*;

/// The kernel's machine, as far as the filter uses it; the packet is IPv4.
fn run(program: &[libc::sock_filter], packet: &[u8]) -> u32 {
    run_frame(program, ethertype::IPV4, packet)
}

/// The kernel's machine with the packet of a frame of a type.
fn run_frame(program: &[libc::sock_filter], kind: u16, packet: &[u8]) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    let read = |at: u64, len: usize| {
        let bytes = packet.get(usize::try_from(at).ok()?..)?.get(..len)?;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    loop {
        let libc::sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let (class, mode, size) = (code & 7, code & 0xe0, code & 0x18);
        let operand = if code & 8 == 0 { k } else { x };
        let len = [4, 2, 1][usize::from(size >> 3).min(2)];
        match (class, mode) {
            (0, 0x20) if k as i32 == libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL => {
                a = kind.into();
            }
            (0, 0x20 | 0x40) => {
                let base = if mode == 0x40 { u64::from(x) } else { 0 };
                let Some(value) = read(base + u64::from(k), len) else { return 0 };
                a = value;
            }
            (0, 0) => a = k,
            (0, 0x60) => a = memory[k as usize],
            (1, 0x60) => x = memory[k as usize],
            (1, 0xa0) => match read(k.into(), 1) {
                Some(byte) => x = (byte & 0xf) * 4,
                None => return 0,
            },
            (2, _) => memory[k as usize] = a,
            (7, _) => x = a,
            (6, _) => return if code & 0x10 == 0 { k } else { a },
            (4, _) => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a / operand,
                    0x50 => a & operand,
                    0x60 => a << operand,
                    0x70 => a >> operand,
                    0x90 => a % operand,
                    other => panic!("operation {other:#x}"),
                }
            }
            (5, _) => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at += k as usize;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    other => panic!("condition {other:#x}"),
                };
                at += usize::from(if holds { jt } else { jf });
            }
            other => panic!("instruction {other:?}"),
        }
    }
}

/// Few addresses and ports, so that generated packets hit them.
fn an_address() -> impl Strategy<Value = Ipv4Addr> {
    (0..24_u32).prop_map(|last| Ipv4Addr::from(0xcb00_7100 + last))
}

fn a_stretch() -> impl Strategy<Value = Stretch> {
    let share = prop_oneof![
        any::<u32>().prop_map(|place| Share::Whole { place }),
        (0..3000_u16, 0..9000_u16).prop_map(|(first, len)| Share::Slices { first, len }),
    ];
    (an_address(), 0..8_u32, share).prop_map(|(first, more, share)| Stretch {
        first,
        last: Ipv4Addr::from(first.to_bits() + more),
        share,
    })
}

fn a_steering() -> impl Strategy<Value = Steering> {
    let by = prop_oneof![
        1 => Just(By::Source),
        5 => prop::collection::vec(a_stretch(), 0..6).prop_map(By::Destination),
    ];
    let exception = prop::option::of(0..=128_u8);
    (by, 0..=128_u8, exception).prop_map(|(by, prefix_len, exception)| {
        let exception = exception.filter(|_| by == By::Source);
        let exception = exception.map(|prefix_len| Exception { destination: END, prefix_len });
        Steering { by, prefix_len, exception }
    })
}

/// An address to which packets are steered by other bits.
const END: u128 = 0x2001_0db8_ffff << 80 | 1;

const BY_SOURCE: Steering = Steering { by: By::Source, prefix_len: 64, exception: None };

fn by_destination(stretches: Vec<Stretch>) -> Steering {
    Steering { by: By::Destination(stretches), prefix_len: 64, exception: None }
}

/// A header of an IPv4 packet, perhaps with options, of a relevant protocol.
fn a_header() -> impl Strategy<Value = Vec<u8>> {
    let protocol = prop::sample::select(vec![1, 1, 6, 17, 33, 132, 47]);
    let fragment = prop_oneof![4 => Just(0), 1 => Just(0x2000_u16), 1 => Just(185)];
    (5..8_u8, protocol, fragment, an_address(), an_address()).prop_map(
        |(words, protocol, fragment, source, destination)| {
            let mut header = vec![0; usize::from(words) * 4];
            header[0] = 0x40 | words;
            header[6..8].copy_from_slice(&fragment.to_be_bytes());
            header[9] = protocol;
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            header
        },
    )
}

fn a_packet() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![0_u8, 8, 3, 11, 12, 5, 13, 9]);
    let ports = (0..12_000_u16, 0..12_000_u16, 0..12_000_u16);
    (a_header(), a_header(), kind, ports, 0..100_usize).prop_map(
        |(mut packet, quoted, kind, (one, two, three), cut)| {
            let words = |words: [u16; 4]| words.map(u16::to_be_bytes).concat();
            if packet[9] == 1 {
                packet.extend([kind, 0, 0, 0]);
                packet.extend([one, two].map(u16::to_be_bytes).concat());
                packet.extend(quoted);
            }
            packet.extend(words([two, one, three, 0]));
            // Most packets are whole; some are truncated.
            packet.truncate(if cut < 80 { usize::MAX } else { packet.len() - (cut - 79) });
            packet
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_filter_agrees_with_the_definition(
        steering in a_steering(),
        packet in a_packet(),
        count in 1..9_usize,
    ) {
        let program = assemble(&steering, count);
        let worker = steering.worker(&packet, count);
        prop_assert!(worker < count);
        prop_assert_eq!(run(&program, &packet) as usize, worker, "{:?}", packet);
    }

    #[test]
    fn the_filter_agrees_with_the_definition_for_ipv6(
        steering in a_steering(),
        mut packet in prop::collection::vec(any::<u8>(), 0..48),
        end in prop::option::of(0..=128_u32),
        count in 1..9_usize,
    ) {
        if let (Some(bits), Some(destination)) = (end, packet.get_mut(24..40)) {
            // All bits are those of the exception, or all but one.
            let other = 1_u128.checked_shl(bits).unwrap_or(0);
            destination.copy_from_slice(&(END ^ other).to_be_bytes());
        }
        let program = assemble(&steering, count);
        let worker = steering.worker_ipv6(&packet, count);
        prop_assert!(worker < count);
        let of_filter = run_frame(&program, ethertype::IPV6, &packet);
        prop_assert_eq!(of_filter as usize, worker, "{:?}", packet);
        prop_assert_eq!(run_frame(&program, ethertype::ARP, &packet), 0);
    }
}

#[test]
fn prefixes_inside_are_scattered_evenly() {
    for (len, count) in [(48, 2), (56, 3), (64, 4), (128, 7)] {
        let steering = Steering { prefix_len: len, ..BY_SOURCE };
        let mut each = vec![0_usize; count];
        for number in 0..60_000_u128 {
            let source = 0x2001_0db8_u128 << 96 | number << (128 - len) | 1;
            let packet = [&[0x60; 8][..], &source.to_be_bytes()].concat();
            each[steering.worker_ipv6(&packet, count)] += 1;
        }
        let even = 60_000 / count;
        assert!(each.iter().all(|n| n.abs_diff(even) < even / 10), "/{len}: {each:?}");
    }
}

/// A UDP packet.
fn datagram(source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut packet = vec![0; 28];
    (packet[0], packet[9]) = (0x45, UDP);
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&destination);
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet
}

#[test]
fn inside_addresses_are_scattered_evenly() {
    for count in [2, 3, 4, 7] {
        let mut each = vec![0_usize; count];
        for host in 0..60_000_u32 {
            each[worker_of_source(Ipv4Addr::from(0x0a00_0000 + host), count)] += 1;
        }
        let even = 60_000 / count;
        assert!(each.iter().all(|n| n.abs_diff(even) < even / 20), "{count}: {each:?}");
    }
    let one = datagram([10, 0, 0, 1], [1; 4], 53);
    assert_eq!(
        BY_SOURCE.worker(&one, 4),
        ((0x9e37_79b1_u64 * 0x0a00_0001 % (1 << 32)) >> 24) as usize % 4
    );
}

#[test]
fn outside_addresses_and_slices_are_whose_they_are_said_to_be() {
    let steering = by_destination(vec![
        Stretch {
            first: [203, 0, 113, 0].into(),
            last: [203, 0, 113, 7].into(),
            share: Share::Whole { place: 3 },
        },
        Stretch {
            first: [203, 0, 113, 9].into(),
            last: [203, 0, 113, 9].into(),
            share: Share::slices(1024, 65_535, 2),
        },
    ]);
    let worker =
        |last, port, count| steering.worker(&datagram([1; 4], [203, 0, 113, last], port), count);
    assert_eq!([0, 1, 2, 7].map(|last| worker(last, 0, 4)), [3, 0, 1, 2]);
    assert_eq!([1024, 33_279, 33_280, 65_535].map(|port| worker(9, port, 2)), [0, 0, 1, 1]);
    assert_eq!((worker(9, 1023, 2), worker(8, 2000, 2)), (0, 0));
    let mut fragment = datagram([1; 4], [203, 0, 113, 9], 65_535);
    assert_eq!(steering.worker(&fragment, 2), 1);
    fragment[7] = 1;
    assert_eq!(steering.worker(&fragment, 2), 0);
}

#[test]
fn frames_of_other_families_are_worker_0s() {
    let packet = datagram([10, 0, 0, 1], [1; 4], 53);
    let frame = |tag: &[u8], kind: [u8; 2]| [&[0; 12], tag, &kind, &packet[..]].concat();
    let owner = BY_SOURCE.worker(&packet, 7);
    assert_ne!(owner, 0);
    let worker = |frame: Vec<u8>| BY_SOURCE.worker_of_frame(&frame, 7);
    assert_eq!(worker(frame(&[], [8, 0])), owner);
    assert_eq!(worker(frame(&[0x81, 0, 0, 9], [8, 0])), owner);
    assert_eq!(worker(frame(&[], [8, 6])), 0);
    let ipv6 = BY_SOURCE.worker_ipv6(&packet, 7);
    assert_ne!(ipv6, 0);
    assert_eq!(worker(frame(&[], [0x86, 0xdd])), ipv6);
    assert_eq!(worker(frame(&[0x81, 0, 0, 9], [0x86, 0xdd])), ipv6);
    assert_eq!(worker(frame(&[0x81, 0, 0, 9], [8, 6])), 0);
    assert_eq!(worker(vec![0; 13]), 0);
}

#[test]
fn no_program_is_longer_than_the_kernel_takes() {
    const MOST_INSTRUCTIONS: usize = 4096;
    let stretch = Stretch {
        first: [1; 4].into(),
        last: [1; 4].into(),
        share: Share::slices(1024, 65_535, 2),
    };
    let program = assemble(&by_destination(vec![stretch; 10_000]), 64);
    assert!(program.len() <= MOST_INSTRUCTIONS, "{}", program.len());
    let mut stretches = vec![stretch; 10_000];
    stretches[MOST_STRETCHES].first = [2; 4].into();
    stretches[MOST_STRETCHES].last = [2; 4].into();
    let steering = by_destination(stretches);
    let packet = datagram([9; 4], [2; 4], 65_535);
    assert_eq!(steering.worker(&packet, 2), 1, "the definition knows all of them");
    assert_eq!(run(&assemble(&steering, 2), &packet), 0, "the filter does not");
}
