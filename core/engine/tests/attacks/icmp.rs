//! Forged ICMP errors. An error is as credible as the packet that it embeds: it must quote an
//! existing session, and even then it changes nothing in the translator (RFC 5508, RFC 5927).

use crate::common::*;
use crate::world::*;
use natgate_engine::{DropReason, Side, Verdict};
use natgate_wire::{Ipv4, icmp as kinds, protocol};

/// Types that embed a packet and are translated: unreachable, quench, time exceeded, problem.
const ERRORS: [u8; 4] = [3, 4, 11, 12];
/// Echo and timestamp, request and reply.
const QUERIES: [u8; 4] = [0, 8, 13, 14];

/// A victim with a session of each protocol, and the packet that an error about each embeds: from
/// outside the packet that it sent, from inside the packet that it got.
struct Victim {
    lab: Lab,
    sent: [Vec<u8>; 3],
    received: [Vec<u8>; 3],
}

impl Victim {
    fn new() -> Self {
        let (mut lab, external) = established(&config());
        let tcp_sent = lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
        let tcp_received = lab.inward(&tcp(REMOTE, &external, "A", 501, 101));
        let udp_sent = lab.out(&udp(VICTIM, REMOTE));
        let udp_received = lab.inward(&udp(REMOTE, &ends(&udp_sent).0));
        let ping_sent = lab.out(&ping("10.0.0.5", "198.51.100.7", 77));
        let pong =
            icmp("198.51.100.7", "203.0.113.1", kinds::kind::ECHO_REPLY, 0, &ping_sent[24..]);
        let ping_received = lab.inward(&pong);
        lab.wait_s(1.0);
        lab.events.clear();
        Self {
            lab,
            sent: [tcp_sent, udp_sent, ping_sent],
            received: [tcp_received, udp_received, ping_received],
        }
    }

    fn about(&self, from: Side) -> &[Vec<u8>; 3] {
        match from {
            Side::Inside => &self.received,
            Side::Outside => &self.sent,
        }
    }
}

/// An error of any type and code, from a side, to the destination of errors about the victim's
/// sessions.
fn forged(from: Side, kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    match from {
        Side::Inside => error("10.0.0.5", "198.51.100.7", kind, code, about),
        Side::Outside => error("192.0.2.66", "203.0.113.1", kind, code, about),
    }
}

fn with_endpoints(packet: &[u8], source: Option<&str>, destination: Option<&str>) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let mut header = Ipv4::new_checked(&mut bytes[..]).unwrap();
    let address = |text: &str| endpoint(text).0;
    header.set_source(source.map_or(header.source(), address));
    header.set_destination(destination.map_or(header.destination(), address));
    header.fill_checksum();
    bytes
}

/// Feeds an error and checks its verdict, and that nothing but the packet itself has changed.
fn judge(lab: &mut Lab, from: Side, packet: &[u8], expected: Verdict, what: &str) -> Vec<u8> {
    let before = picture(lab);
    let (verdict, bytes) = lab.pass(from, packet);
    assert_eq!(verdict, expected, "{what}");
    assert_eq!(picture(lab), before, "{what}");
    assert!(lab.sent.is_empty() && lab.events.is_empty(), "{what}");
    bytes
}

fn rightly_refused(kind: u8, from: Side) -> Option<DropReason> {
    if ERRORS.contains(&kind) {
        return Some(DropReason::IcmpNoSession);
    }
    match kind {
        // A subscriber may send a request from inside.
        8 | 13 if from == Side::Inside => None,
        _ if QUERIES.contains(&kind) => Some(DropReason::NoMapping),
        _ => Some(DropReason::IcmpUnsupported),
    }
}

//= test rfc5508#REQ-6
//= test rfc5382#REQ-10
#[test]
fn of_all_types_and_codes_only_errors_about_a_session_pass_and_none_changes_anything() {
    let mut victim = Victim::new();
    let mut passed = 0;
    for from in [Side::Inside, Side::Outside] {
        let about = victim.about(from).clone();
        for kind in 0..=255 {
            for code in 0..=15 {
                for embedded in &about {
                    let what = format!("type {kind} code {code} from {from:?}");
                    let packet = forged(from, kind, code, embedded);
                    let lab = &mut victim.lab;
                    if ERRORS.contains(&kind) {
                        let forward = Verdict::Forward(from.other());
                        let after = judge(lab, from, &packet, forward, &what);
                        assert_eq!(after[20..22], [kind, code], "{what}");
                        ends(&after);
                        passed += 1;
                    } else if let Some(reason) = rightly_refused(kind, from) {
                        judge(lab, from, &packet, Verdict::Drop(reason), &what);
                    }
                }
            }
        }
    }
    assert_eq!(passed, 2 * 4 * 16 * 3);
    // The sessions exist after any number of errors, and continue.
    let lab = &mut victim.lab;
    assert_eq!(session(lab, REMOTE).state, "established");
    for packet in [tcp(VICTIM, REMOTE, "A", 101, 501), udp(VICTIM, REMOTE)] {
        lab.out(&packet);
    }
}

/// Errors without a session: another remote host, or another victim.
#[test]
fn of_all_types_and_codes_none_passes_without_a_session() {
    let mut victim = Victim::new();
    for from in [Side::Inside, Side::Outside] {
        let strange = |packet: &Vec<u8>| match from {
            Side::Inside => with_endpoints(packet, Some("198.51.100.8"), None),
            Side::Outside => with_endpoints(packet, None, Some("198.51.100.8")),
        };
        let about = victim.about(from).each_ref().map(strange);
        for kind in 0..=255 {
            for code in 0..=15 {
                for embedded in &about {
                    let what = format!("type {kind} code {code} from {from:?}");
                    let packet = forged(from, kind, code, embedded);
                    if let Some(reason) = rightly_refused(kind, from) {
                        judge(&mut victim.lab, from, &packet, Verdict::Drop(reason), &what);
                    }
                }
            }
        }
    }
}

/// An attacker that knows the victim's external address and its remote address must still guess a
/// port: one of 65,536 external ports, one of 65,536 remote ports.
#[test]
fn an_error_about_a_guessed_port_passes_once_in_65_536() {
    let mut victim = Victim::new();
    for (embedded, name) in victim.sent.clone().iter().zip(["tcp", "udp", "icmp"]) {
        let before = picture(&victim.lab);
        let at = if embedded[9] == protocol::ICMP { &[24][..] } else { &[20, 22][..] };
        for &at in at {
            let mut passed = 0;
            for port in 0..=u16::MAX {
                let mut guess = embedded.clone();
                guess[at..at + 2].copy_from_slice(&port.to_be_bytes());
                let packet = forged(Side::Outside, 3, 1, &guess);
                passed += u32::from(passes(&mut victim.lab, Side::Outside, &packet));
            }
            assert_eq!(passed, 1, "{name}, field at {at}");
        }
        assert_eq!(picture(&victim.lab), before, "{name}");
    }
}

/// The host must judge "fragmentation needed" with an absurd MTU (RFC 1191 section 3: none below
/// 68). The error passes unchanged, and the translator's MTU stays as configured.
#[test]
fn an_absurd_mtu_changes_nothing_here() {
    let mut victim = Victim::new();
    for mtu in [0, 1, 20, 67, 68, 295, 296, 575, 1499, 1500, 1501, u16::MAX] {
        for embedded in &victim.sent.clone() {
            let mut packet = forged(Side::Outside, 3, 4, embedded);
            packet[26..28].copy_from_slice(&mtu.to_be_bytes());
            let mut message = natgate_wire::Icmp::new_checked(&mut packet[20..]).unwrap();
            message.fill_checksum();
            let forward = Verdict::Forward(Side::Inside);
            let after = judge(&mut victim.lab, Side::Outside, &packet, forward, "MTU");
            assert_eq!(after[24..28], packet[24..28], "the message's second word stays");
        }
    }
    let mut full = udp_with(VICTIM, REMOTE, &[7; 1472]);
    full[6] = 0x40;
    fill_header_checksum(&mut full);
    assert_eq!(victim.lab.out(&full).len(), 1500);
}

/// An error must not embed an error, nor quote an address that is not external (RFC 1122 section
/// 3.2.2).
#[test]
fn errors_about_errors_and_about_others_do_not_pass() {
    let mut victim = Victim::new();
    for kind in ERRORS {
        let inner = error("203.0.113.1", "198.51.100.7", 3, 3, &udp(REMOTE, "203.0.113.1:4000"));
        let packet = forged(Side::Outside, kind, 0, &inner);
        let reason = Verdict::Drop(DropReason::IcmpBadEmbedded);
        judge(&mut victim.lab, Side::Outside, &packet, reason, "about an error");
        for source in ["203.0.113.2", "10.0.0.5", "192.0.2.254", "198.51.100.7"] {
            for embedded in &victim.sent.clone() {
                let other = with_endpoints(embedded, Some(source), None);
                let packet = forged(Side::Outside, kind, 0, &other);
                let reason = Verdict::Drop(DropReason::IcmpNoSession);
                judge(&mut victim.lab, Side::Outside, &packet, reason, source);
            }
        }
    }
}

/// An error keeps no mapping alive: with one error a second the victim's mappings go at their time.
//= test rfc5508#REQ-6
#[test]
fn errors_refresh_nothing() {
    let mut victim = Victim::new();
    let about = victim.sent[1].clone();
    let lab = &mut victim.lab;
    let mut passed = 0;
    for _ in 0..400 {
        passed += u32::from(passes(lab, Side::Outside, &forged(Side::Outside, 3, 1, &about)));
        lab.wait_s(1.0);
    }
    // The last packet went one second before the first error, and the timeout is five minutes.
    assert!((298..=300).contains(&passed), "{passed}");
    assert!(lab.engine.mappings().all(|mapping| mapping.id.protocol == protocol::TCP));
}
