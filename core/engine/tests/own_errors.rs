//! ICMP errors that the gateway makes: their number, destinations and contents, and the settings of
//! the operator.

mod common;

use common::*;
use natgate_engine::{Config, DropReason, Prefix, Refusal, Side, SideConfig};
use std::net::Ipv4Addr;

fn expired(source: &str) -> Vec<u8> {
    let mut probe = udp(source, REMOTE);
    set_ttl(&mut probe, 1);
    probe
}

fn answers(lab: &mut Lab, source: &str, causes: usize) -> usize {
    let before = lab.sent.len();
    for _ in 0..causes {
        lab.refused(Side::Inside, &expired(source));
    }
    lab.sent.len() - before
}

//= test rfc1812#section-4.3.2.8
#[test]
fn one_requester_gets_a_quarter_of_the_rate() {
    let mut lab = Lab::new(&config());
    assert_eq!(answers(&mut lab, "10.0.0.5:4000", 2000), 125);
    assert_eq!(lab.engine.counters().errors_suppressed, 1875);
    assert_eq!(answers(&mut lab, "10.0.0.6:4000", 2000), 125);
    lab.wait_s(0.5);
    assert_eq!(answers(&mut lab, "10.0.0.5:4000", 2000), 62);
}

/// Of 2,000 causes at most half are answered, for any number of requesters. The first request of
/// each is answered as long as the reserve lasts.
#[test]
fn the_first_error_goes_out_even_when_the_rate_is_used_up() {
    let mut lab = Lab::new(&config());
    for host in 10..20 {
        answers(&mut lab, &format!("10.0.0.{host}:4000"), 200);
    }
    assert_eq!(lab.sent.len(), 500 + 6);
    assert_eq!(answers(&mut lab, "10.0.0.77:4000", 1), 1);
    let mut lab = Lab::new(&config());
    for host in 0..2000 {
        answers(&mut lab, &format!("10.1.{}.{}:4000", host / 200, host % 200), 1);
    }
    assert_eq!(lab.sent.len(), 1000);
}

/// Hosts hear of narrow paths, however many errors of other kinds a scan provokes. The same holds
/// the other way round.
#[test]
fn a_scan_leaves_the_discovery_of_narrow_paths_its_rate() {
    let outside = SideConfig { mtu: Some(600), ..config().outside };
    let mut limited = Config { outside, ..config() };
    limited.limits.icmp_errors_per_second = 40;
    let mut lab = Lab::new(&limited);
    let long = |source: &str| {
        let packet = udp_with(source, REMOTE, &[7; 700]);
        with_fragment_field(&packet, 0, 0x4000)
    };
    for host in 1..=200 {
        answers(&mut lab, &format!("10.0.1.{host}:4000"), 1);
    }
    assert_eq!(lab.sent.len(), 80, "the rate and the reserve are used up");
    lab.sent.clear();
    for count in 1..=10 {
        assert_eq!(lab.refused(Side::Inside, &long("10.0.1.1:4000")), DropReason::TooBig);
        assert_eq!(lab.sent.len(), count, "its own quarter is unused");
        assert_eq!(lab.sent[count - 1].2[20..22], [3, 4]);
    }
    lab.refused(Side::Inside, &long("10.0.1.1:4000"));
    assert_eq!(lab.sent.len(), 10);
    for host in 1..=200 {
        lab.refused(Side::Inside, &long(&format!("10.0.2.{host}:4000")));
    }
    assert_eq!(lab.sent.len(), 80);
    lab.wait_s(0.1);
    assert_eq!(answers(&mut lab, "10.0.3.1:4000", 1), 1);
}

//= test rfc5508#REQ-10d
#[test]
fn they_take_the_class_of_service_and_leave_congestion_marks() {
    let mut lab = Lab::new(&config());
    let mut probe = expired("10.0.0.5:4000");
    probe[1] = 0xb8 | 3;
    fill_header_checksum(&mut probe);
    lab.refused(Side::Inside, &probe);
    assert_eq!(lab.sent[0].2[1], 0xb8);
}

#[test]
fn they_fit_the_side_that_they_leave_by() {
    let inside = SideConfig { mtu: Some(100), ..config().inside };
    let mut lab = Lab::new(&Config { inside, ..config() });
    let mut probe = udp_with("10.0.0.5:4000", REMOTE, &[7; 400]);
    set_ttl(&mut probe, 1);
    lab.refused(Side::Inside, &probe);
    let error = &lab.sent[0].2;
    assert_eq!(error.len(), 100);
    assert_eq!(error[28..], probe[..72]);
    ends(error);
}

//= test rfc5508#REQ-9
#[test]
fn a_side_may_be_spared_them() {
    let inside = SideConfig { silent: true, ..config().inside };
    let mut lab = Lab::new(&Config { inside, ..config() });
    assert_eq!(answers(&mut lab, "10.0.0.5:4000", 3), 0);
    assert_eq!(lab.engine.counters().errors_suppressed, 3);
    let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let mut probe = udp(REMOTE, &external);
    set_ttl(&mut probe, 1);
    lab.refused(Side::Outside, &probe);
    assert_eq!(lab.sent.len(), 1);
}

//= test rfc5508#REQ-8-code
#[test]
fn a_refusal_says_what_the_operator_chose() {
    for (refusal, code) in [
        (Refusal::HostUnreachable, Some(1)),
        (Refusal::Prohibited, Some(13)),
        (Refusal::Silent, None),
    ] {
        let mut limited = Config { refusal, ..config() };
        limited.limits.udp_ports = 1;
        let mut lab = Lab::new(&limited);
        lab.out(&udp("10.0.0.5:1", REMOTE));
        assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:2", REMOTE)), DropReason::PortQuota);
        let codes = lab.sent.first().map(|(_, _, bytes)| bytes[21]);
        assert_eq!(codes, code);
    }
}

#[test]
fn an_unsolicited_syn_may_be_met_with_silence() {
    let mut lab = Lab::new(&Config { answer_unsolicited_syn: false, ..config() });
    lab.refused(Side::Outside, &tcp(REMOTE, "203.0.113.1:5000", "S", 1, 0));
    lab.wait_s(60.0);
    assert!(lab.sent.is_empty());
}

/// ICMP of an unknown type may be an error, and no errors are made about errors.
//= test rfc1812#section-4.3.2.7-error
#[test]
fn icmp_that_is_no_query_is_not_answered() {
    let mut lab = Lab::new(&config());
    for kind in [5, 31, 40, 255] {
        let mut probe = icmp("10.0.0.5", "198.51.100.7", kind, 0, &[0; 36]);
        set_ttl(&mut probe, 1);
        lab.refused(Side::Inside, &probe);
    }
    assert!(lab.sent.is_empty());
}

/// The first and the last address of a connected network mean all its hosts. Packets from or to
/// them are dropped without an answer.
#[test]
fn broadcast_addresses_of_connected_networks_are_martian() {
    let mut lab = Lab::new(&config());
    for source in ["10.0.0.255:1", "10.0.0.0:1", "192.0.2.255:1"] {
        assert_eq!(lab.refused(Side::Inside, &expired(source)), DropReason::MartianSource);
        let probe = tcp(source, "203.0.113.1:5000", "S", 1, 0);
        assert_eq!(lab.refused(Side::Outside, &probe), DropReason::MartianSource);
    }
    for destination in ["192.0.2.255:1", "192.0.2.0:1", "10.0.0.255:1"] {
        let probe = udp("10.0.0.5:1", destination);
        assert_eq!(lab.refused(Side::Inside, &probe), DropReason::MartianDestination);
    }
    lab.wait_s(10.0);
    assert!(lab.sent.is_empty());
}

#[test]
fn an_external_address_is_no_broadcast_address() {
    let address = Ipv4Addr::new(203, 0, 113, 254);
    let network = Some(Prefix::new(address, 24));
    let outside = SideConfig { address: Some(address), network, ..SideConfig::default() };
    let pools = vec![pool("203.0.113.0", "203.0.113.0", (1024, 65535))];
    let mut lab = Lab::new(&Config { outside, pools, ..config() });
    let external = lab.external_of(&udp("10.0.0.5:1", REMOTE));
    lab.inward(&udp(REMOTE, &external));
}
