//! Cases found by fuzzing, and random faults.

use crate::common::*;
use crate::world::*;
use natgate_engine::{Counters, DropReason, Packet, Side, Verdict};
use natgate_wire::Ipv4;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// RFC 1624 is wrong only for a message of zeros: its sum is 0x0000, not 0xffff.
#[test]
fn a_message_of_zeros_keeps_a_right_checksum() {
    let mut lab = Lab::new(&config());
    let out = lab.out(&icmp("10.0.0.5", "198.51.100.7", 8, 0, &[0; 4]));
    ends(&out);
    let reply = icmp("198.51.100.7", "203.0.113.1", 0, 0, &[out[24], out[25], 0, 0]);
    assert_eq!(lab.inward(&reply)[20..], [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
}

/// A clone has the room of its original, even if the original was empty when it was cloned.
#[test]
fn a_clone_does_what_its_original_does() {
    let mut original = Lab::new(&config());
    let mut clone = Lab::new(&config());
    clone.engine = original.engine.clone();
    for host in 5..250 {
        let sent = udp(&format!("10.0.0.{host}:4000"), REMOTE);
        assert_eq!(original.out(&sent), clone.out(&sent));
    }
}

// ---- random faults ----

/// Reasons for a fault of the packet itself, or for a packet that finds nothing to change.
fn is_harmless(reason: DropReason) -> bool {
    use DropReason::*;
    matches!(
        reason,
        NotIpv4
            | BadLength
            | BadHeaderChecksum
            | BadOptions
            | SourceRoute
            | MartianSource
            | MartianDestination
            | Land
            | SpoofedSource
            | NotSubscriber
            | SameSide
            | NotForUs
            | LocalUnsupported
            | IcmpBadChecksum
            | IcmpBadEmbedded
            | IcmpUnsupported
            | IcmpNoSession
    )
}

/// Feeds an arbitrary packet, and checks that the effects agree with the verdict.
fn feed(world: &mut World, from: Side, bytes: &[u8]) -> Verdict {
    let (state, counters) = (world.state(), world.lab.engine.counters().clone());
    let mut buffer = bytes.to_vec();
    let mut packets = [Packet::new(&mut buffer, 0)];
    let mut verdicts = [Verdict::Held];
    world.lab.engine.process(world.lab.now, from, &mut packets, &mut verdicts);
    let after = packets[0].bytes().to_vec();
    world.lab.wait_s(0.0);
    match verdicts[0] {
        Verdict::Forward(_) => {
            let (old, new) =
                (Ipv4::new_checked(bytes).unwrap(), Ipv4::new_checked(&after[..]).unwrap());
            assert!(new.checksum_valid());
            assert_eq!(new.ttl(), old.ttl() - 1);
            assert_eq!(after.len(), usize::from(old.total_len()));
        }
        Verdict::Reply(to) => assert_eq!(to, from),
        Verdict::Drop(reason) => {
            assert_eq!(buffer, bytes, "{reason:?} changed the packet");
            if is_harmless(reason) {
                assert_eq!(world.state(), state, "{reason:?} changed the state");
            }
        }
        Verdict::Held => assert!(is_fragment(bytes)),
        Verdict::HandOver => panic!("nobody shares the work"),
    }
    // A fragment may be held, or decide about others that were held.
    if !is_fragment(bytes) {
        let counted = |counters: &Counters| counters.packets.iter().flatten().sum::<u64>();
        assert_eq!(counted(world.lab.engine.counters()), counted(&counters) + 1);
    }
    verdicts[0]
}

fn is_fragment(bytes: &[u8]) -> bool {
    Ipv4::new_checked(bytes)
        .is_ok_and(|packet| packet.more_fragments() || packet.fragment_offset() > 0)
}

/// Replaced bytes, and the checksums to repair: none, the header's, or ICMP's too.
type Faults = (Vec<(prop::sample::Index, u8)>, u8);

fn faults() -> impl Strategy<Value = Faults> {
    let value = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x45)];
    (prop::collection::vec((any::<prop::sample::Index>(), value), 1..6), 0..3_u8)
}

fn spoiled(mut bytes: Vec<u8>, (replaced, sealing): &Faults) -> Vec<u8> {
    for (at, value) in replaced {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    match sealing {
        0 => bytes,
        1 => sealed(bytes),
        _ => sealed_icmp(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_do_no_harm(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..40),
    ) {
        let mut world = World::new();
        let state = world.state();
        for bytes in packets {
            for side in SIDES {
                prop_assert!(matches!(feed(&mut world, side, &bytes), Verdict::Drop(_)));
            }
        }
        prop_assert_eq!(world.state(), state);
        world.finish();
    }

    #[test]
    fn good_packets_with_random_faults_do_no_harm(
        cases in prop::collection::vec((0..4_u8, faults()), 1..60),
    ) {
        let mut world = World::new();
        for (base, faults) in cases {
            for side in SIDES {
                let bytes = match base {
                    0 => world.good(side),
                    1 => world.good_tcp(side),
                    2 => world.good_ping(side),
                    _ => world.error(side, 3, |_| {}),
                };
                feed(&mut world, side, &spoiled(bytes, &faults));
            }
        }
        // A fault may turn a packet into a protocol without ports, whose mappings share endpoints.
        let endpoints: Vec<_> = world
            .lab
            .engine
            .mappings()
            .map(|mapping| (mapping.id.protocol, mapping.id.external))
            .filter(|(protocol, _)| POOLED.contains(protocol))
            .collect();
        prop_assert_eq!(endpoints.iter().collect::<BTreeSet<_>>().len(), endpoints.len());
    }

    /// Random bytes seldom pass the checksum, so here they follow good headers.
    #[test]
    fn errors_about_random_bytes_do_no_harm(
        abouts in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..60), any::<bool>(), any::<bool>()), 1..40,
        ),
    ) {
        let mut world = World::new();
        for (mut about, looks_right, right) in abouts {
            if looks_right && about.len() >= 20 {
                about[0] = 0x45;
                about[2] = 1;
            }
            if right {
                about = sealed(about);
            }
            for side in SIDES {
                let bytes = world.error(side, 3, |embedded| *embedded = about.clone());
                let verdict = feed(&mut world, side, &bytes);
                let named = matches!(
                    verdict,
                    Verdict::Drop(
                        DropReason::IcmpBadChecksum
                            | DropReason::IcmpBadEmbedded
                            | DropReason::IcmpNoSession
                            | DropReason::SourceRoute
                    )
                );
                prop_assert!(named, "{:?}", verdict);
            }
        }
        world.finish();
    }
}
