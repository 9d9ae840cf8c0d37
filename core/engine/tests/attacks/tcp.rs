//! Blind attacks on a TCP connection: an attacker off its path knows, or guesses, its two
//! endpoints, but not its sequence numbers.

use crate::common::*;
use crate::world::*;
use natgate_engine::{Behavior, Config, DropReason, SessionInfo, Side, Verdict};
use std::time::Duration;

/// A connection whose inside expects `next`. The third handshake packet carries `window`, scaled by
/// `scale` if both sides agreed on it.
fn connection(next: u32, window: u16, scale: Option<u8>) -> (Lab, String) {
    let mut lab = Lab::new(&config());
    let syn = Segment { scale, ..segment("S", 100, 0) };
    let external = lab.external_of(&syn.packet(VICTIM, REMOTE));
    let answer = Segment { scale, ..segment("SA", next.wrapping_sub(1), 101) };
    lab.inward(&answer.packet(REMOTE, &external));
    lab.out(&Segment { window, ..segment("A", 101, next) }.packet(VICTIM, REMOTE));
    (lab, external)
}

/// True if a RST changes the state. Data then restores the connection for the next RST.
fn resets(lab: &mut Lab, reset: &[u8], revival: &[u8]) -> bool {
    let before = session(lab, REMOTE);
    assert_eq!(before.state, "established");
    lab.inward(reset);
    let after = session(lab, REMOTE);
    if after.state == "established" {
        assert_eq!(after.expires, before.expires, "a refused RST leaves the timer alone");
        return false;
    }
    assert_eq!(after.state, "transitory");
    lab.out(revival);
    true
}

/// Every sequence number around the window's edges, around those half the space away, and 10,000
/// random ones.
fn offsets(window: u32, dice: &mut Dice) -> Vec<u32> {
    let around = |middle: u32, reach: u32| {
        (0..2 * reach).map(move |i| middle.wrapping_sub(reach).wrapping_add(i))
    };
    let edges = [window, 1 << 31, (1_u32 << 31).wrapping_add(window)];
    let mut offsets: Vec<u32> = around(0, 2000).collect();
    offsets.extend(edges.iter().flat_map(|&edge| around(edge, 2000)));
    // Inside the window: all of a small one, a sample of a large one.
    offsets.extend((0..window).step_by((window as usize / 20_000).max(1)));
    offsets.extend((0..10_000).map(|_| dice.word()));
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

#[test]
fn of_all_sequence_numbers_as_many_reset_as_the_window_is_wide() {
    // (next expected, window field, scale): the window's width.
    let cases = [
        (501, 1000, None, 1000),
        (501, 0, None, 1),
        (501, 1, None, 1),
        (501, 65_535, None, 65_535),
        (u32::MAX - 99, 1000, None, 1000),
        (0x8000_0000, 1000, None, 1000),
        (501, 512, Some(7), 65_536),
        (501, 65_535, Some(14), 65_535 << 14),
    ];
    let mut dice = Dice(1);
    for (next, field, scale, window) in cases {
        let (mut lab, external) = connection(next, field, scale);
        let reset = tcp(REMOTE, &external, "R", 0, 0);
        let revival = Segment { window: field, ..segment("A", 101, next) }.packet(VICTIM, REMOTE);
        let (mut tried, mut believed) = (0, 0);
        for offset in offsets(window, &mut dice) {
            let packet = with_sequence(&reset, next.wrapping_add(offset));
            let reset = resets(&mut lab, &packet, &revival);
            assert_eq!(reset, offset < window, "offset {offset} of a window of {window}");
            tried += 1;
            believed += u32::from(reset);
        }
        println!(
            "window {window}: {believed} of {tried} numbers tried reset; a blind guess succeeds \
             once in {}",
            (1_u64 << 32) / u64::from(window)
        );
        assert!(tried > 15_000 && believed > 0);
    }
}

#[test]
fn with_a_window_of_a_thousand_exactly_a_thousand_numbers_reset() {
    let (mut lab, external) = connection(501, 1000, None);
    let reset = tcp(REMOTE, &external, "R", 0, 0);
    let revival = tcp(VICTIM, REMOTE, "A", 101, 501);
    let mut believed = 0;
    for offset in 0..200_000_u32 {
        let packet = with_sequence(&reset, 501_u32.wrapping_add(offset.wrapping_sub(100_000)));
        believed += u32::from(resets(&mut lab, &packet, &revival));
    }
    assert_eq!(believed, 1000);
}

/// An attacker that knows one endpoint only must guess the other among 65,536 ports.
#[test]
fn a_reset_with_a_wrong_port_finds_no_session() {
    let (mut lab, external) = established(&config());
    let before = picture(&lab);
    let reset = tcp(REMOTE, &external, "R", 501, 0);
    let (remote_port, external_port) = (endpoint(REMOTE).1, endpoint(&external).1);
    for port in (0..=u16::MAX).filter(|&port| port != remote_port) {
        let packet = with_ports(&reset, port, external_port);
        assert_eq!(lab.pass(Side::Outside, &packet).0, Verdict::Drop(DropReason::TcpNotSyn));
    }
    for port in (0..=u16::MAX).filter(|&port| port != external_port) {
        let packet = with_ports(&reset, remote_port, port);
        assert_eq!(lab.pass(Side::Outside, &packet).0, Verdict::Drop(DropReason::NoMapping));
    }
    assert_eq!(lab.refused(Side::Outside, &tcp(ATTACKER, &external, "R", 501, 0)), {
        DropReason::TcpNotSyn
    });
    assert_eq!(picture(&lab), before, "131,071 wrong guesses change nothing");
    lab.wait_s(7.0);
    assert!(lab.sent.is_empty(), "and nobody is answered");
}

#[test]
fn an_opening_connection_cannot_be_reset() {
    let mut dice = Dice(2);
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&tcp(VICTIM, REMOTE, "S", 100, 0));
    lab.wait_s(1.0);
    let unchanged = |lab: &Lab, before: &SessionInfo, state: &str| {
        let after = session(lab, REMOTE);
        assert_eq!((after.state, after.expires), (state, before.expires));
    };
    let before = session(&lab, REMOTE);
    for flags in ["R", "RA"] {
        for _ in 0..10_000 {
            lab.inward(&tcp(REMOTE, &external, flags, dice.word(), dice.word()));
        }
        // A RST that the host itself would accept: RFC 9293 section 3.10.7.3.
        lab.inward(&tcp(REMOTE, &external, flags, 0, 101));
        unchanged(&lab, &before, "opening-out");
    }
    lab.inward(&tcp("192.0.2.9:81", &external, "S", 7, 0));
    let stranger = session(&lab, "192.0.2.9:81");
    for sequence in [0, 7, 8, 9, 1 << 31] {
        lab.inward(&tcp("192.0.2.9:81", &external, "R", sequence, 0));
    }
    let after = session(&lab, "192.0.2.9:81");
    assert_eq!((after.state, after.expires), ("opening-in", stranger.expires));
    // The connection is made as if nothing had happened.
    lab.inward(&tcp(REMOTE, &external, "SA", 500, 101));
    assert_eq!(session(&lab, REMOTE).state, "established");
}

/// SYN, FIN, data and rubbish from endpoints that the victim does not talk to.
#[test]
fn what_comes_from_others_leaves_a_connection_alone() {
    let flags = ["S", "SA", "F", "FA", "A", "PA", "R", "RA", "SF", "SR", "FR", "SFRPA", ""];
    for filtering in [
        Behavior::EndpointIndependent,
        Behavior::AddressDependent,
        Behavior::AddressAndPortDependent,
    ] {
        let (mut lab, external) = established(&Config { filtering, ..config() });
        let before = session(&lab, REMOTE);
        let same_address = "198.51.100.7:81";
        for from in [ATTACKER, same_address] {
            for flags in flags {
                for sequence in [0, 500, 501, 502, 1 << 31, u32::MAX] {
                    lab.pass(Side::Outside, &tcp(from, &external, flags, sequence, 101));
                }
            }
        }
        assert_eq!(session(&lab, REMOTE), before, "{filtering:?}");
        let expected = match filtering {
            Behavior::EndpointIndependent => 3,
            Behavior::AddressDependent => 2,
            Behavior::AddressAndPortDependent => 1,
        };
        assert_eq!(lab.engine.sessions().count(), expected, "only SYNs make sessions, as filtered");
    }
}

/// With the right endpoints, data with any sequence number passes for the receiver to judge, and
/// changes no state.
#[test]
fn data_with_wrong_sequence_numbers_moves_no_state() {
    let (mut lab, external) = established(&config());
    let mut dice = Dice(3);
    for flags in ["A", "PA", "P", ""] {
        for _ in 0..2500 {
            lab.inward(&tcp(REMOTE, &external, flags, dice.word(), dice.word()));
            assert_eq!(session(&lab, REMOTE).state, "established");
        }
    }
    let id = session(&lab, REMOTE).mapping;
    assert_eq!(lab.engine.mappings().map(|mapping| mapping.id).collect::<Vec<_>>(), [id]);
    // The expectation of the inside has not changed: a RST just outside the window is still
    // refused.
    for outside in [500, 1501] {
        lab.inward(&tcp(REMOTE, &external, "R", outside, 0));
        assert_eq!(session(&lab, REMOTE).state, "established");
    }
}

/// A single FIN is not the end (RFC 7857 section 2): a forged FIN does not shorten the session's
/// time.
#[test]
fn a_forged_fin_does_not_shorten_a_connections_time() {
    let (mut lab, external) = established(&config());
    let mut dice = Dice(4);
    for _ in 0..1000 {
        lab.inward(&tcp(REMOTE, &external, "F", dice.word(), 0));
        lab.inward(&tcp(REMOTE, &external, "FA", dice.word(), dice.word()));
    }
    let left = session(&lab, REMOTE).expires.since(lab.now);
    assert!(left > Duration::from_secs(2 * 3600), "{left:?}");
    for n in 0..20 {
        lab.wait_s(600.0);
        lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
        lab.inward(&tcp(REMOTE, &external, "A", 501 + n, 101));
    }
}

/// A forged SYN with the right endpoints neither ends nor replaces the connection.
#[test]
fn a_forged_syn_does_not_replace_a_connection() {
    let (mut lab, external) = established(&config());
    let before = session(&lab, REMOTE);
    let mut dice = Dice(5);
    for _ in 0..1000 {
        lab.inward(&tcp(REMOTE, &external, "S", dice.word(), 0));
        lab.inward(&tcp(REMOTE, &external, "SA", dice.word(), dice.word()));
    }
    let after = session(&lab, REMOTE);
    assert_eq!((after.state, after.mapping), ("established", before.mapping));
    assert!(after.expires >= before.expires);
    lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
    lab.inward(&tcp(REMOTE, &external, "A", 501, 101));
}

/// An attacker that could teach the translator the sequence number of the inside would need no
/// luck: a SYN, and a matching RST (RFC 5961 section 4).
#[test]
fn a_forged_syn_makes_no_forged_reset_credible() {
    let (mut lab, external) = established(&config());
    let (mut tried, mut believed) = (0, 0);
    for flags in ["S", "SA"] {
        let (syn, reset) = (tcp(REMOTE, &external, flags, 0, 0), tcp(REMOTE, &external, "R", 0, 0));
        // Evenly over all sequence numbers, except those in the window.
        for forged in (0..=u32::MAX).step_by(1 << 18).filter(|forged| *forged > 2000) {
            lab.inward(&with_sequence(&syn, forged));
            lab.inward(&with_sequence(&reset, forged.wrapping_add(1)));
            tried += 1;
            believed += u32::from(session(&lab, REMOTE).state != "established");
        }
    }
    assert_eq!((tried, believed), (2 * 16_383, 0), "each of its RSTs would have fitted its SYN");
}

/// An hour of forged segments of every kind, ten a second, at a connection with one packet a
/// minute. The connection exists at the end, even after a RST in the window.
#[test]
fn a_connection_outlives_an_hour_of_blind_segments() {
    let flags = ["S", "SA", "R", "RA", "F", "FA", "A", "SF", "SR", ""];
    for lucky in [false, true] {
        let (mut lab, external) = established(&config());
        let mut dice = Dice(6);
        let mut reset = 0;
        for minute in 0..60 {
            for n in 0..600 {
                let flags = flags[n % flags.len()];
                lab.inward(&tcp(REMOTE, &external, flags, dice.word(), dice.word()));
                lab.wait_s(0.1);
            }
            if lucky {
                lab.inward(&tcp(REMOTE, &external, "R", 501 + minute, 0));
                reset += u32::from(session(&lab, REMOTE).state == "transitory");
                lab.inward(&tcp(REMOTE, &external, "S", dice.word(), 0));
            }
            lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501 + minute));
            lab.inward(&tcp(REMOTE, &external, "A", 501 + minute, 101));
        }
        assert_eq!(reset > 0, lucky);
        // Some FIN may have been near enough to the inside's expectation: half a close is no end.
        let after = session(&lab, REMOTE);
        assert!(matches!(after.state, "established" | "fin-in"), "{}", after.state);
        assert!(after.expires.since(lab.now) > Duration::from_secs(7400));
    }
}

/// A FIN must be near the receiver's expectation. Otherwise the real FIN of the other side would
/// complete a close that is none. With a window scale of 7, one in 256 sequence numbers is near
/// enough.
#[test]
fn of_all_sequence_numbers_few_close_half_a_connection() {
    const WIDEST: u32 = 65_535 << 7;
    let (mut lab, external) = connection(501, 512, Some(7));
    let fin = tcp(REMOTE, &external, "F", 0, 0);
    let mut dice = Dice(7);
    let edges = [0, 1, WIDEST - 1, WIDEST, WIDEST.wrapping_neg(), WIDEST.wrapping_neg() - 1];
    let random: Vec<u32> = (0..20_000).map(|_| dice.word()).collect();
    let mut believed = 0;
    for offset in edges.into_iter().chain(random) {
        lab.inward(&with_sequence(&fin, 501_u32.wrapping_add(offset)));
        let closing = session(&lab, REMOTE).state == "fin-in";
        assert_eq!(closing, offset.wrapping_add(WIDEST) < 2 * WIDEST, "offset {offset}");
        believed += u32::from(closing);
        if closing {
            // A new connection between the two endpoints.
            (lab, _) = connection(501, 512, Some(7));
        }
    }
    println!("{believed} of 20,006 numbers tried: one in {}", 20_006 / believed);
    assert!((40..=120).contains(&believed));
}
