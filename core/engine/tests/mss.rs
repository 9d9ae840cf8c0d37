//! Lower maximum segment sizes in SYNs on request, so that TCP connections work on a path that
//! loses ICMP errors.

mod common;

use common::*;
use natgate_engine::{Config, Side};

/// The announced size, if any, of a packet with right checksums.
fn announced(bytes: &[u8]) -> Option<u16> {
    ends(bytes);
    natgate_wire::Tcp::new_checked(&bytes[20..]).unwrap().max_segment_size().map(|(_, size)| size)
}

const PLAIN: [u8; 4] = [2, 4, 0x05, 0xb4];
/// Options with the size at an odd place.
const SHIFTED: [u8; 8] = [1, 2, 4, 0x05, 0xb4, 3, 3, 7];

#[test]
fn a_syn_announces_no_more_than_the_limit() {
    for (limit, after) in [(None, 1460), (Some(1400), 1400), (Some(1460), 1460), (Some(9000), 1460)]
    {
        for options in [&PLAIN[..], &SHIFTED] {
            let mut lab = Lab::new(&Config { tcp_mss: limit, ..config() });
            let out = lab.out(&syn_with("10.0.0.5:4000", REMOTE, options));
            assert_eq!(announced(&out), Some(after));
            let back = lab.inward(&syn_with(REMOTE, &ends(&out).0, options));
            assert_eq!(announced(&back), Some(after));
        }
    }
}

#[test]
fn a_hairpinned_syn_too() {
    let mut lab = Lab::new(&Config { tcp_mss: Some(1300), ..config() });
    let server = lab.external_of(&tcp("10.0.0.6:80", REMOTE, "S", 1, 0));
    let (_, bytes) = lab.pass(Side::Inside, &syn_with("10.0.0.5:4000", &server, &SHIFTED));
    assert_eq!(announced(&bytes), Some(1300));
}

#[test]
fn nothing_else_changes() {
    let mut lab = Lab::new(&Config { tcp_mss: Some(500), ..config() });
    let none = lab.out(&tcp("10.0.0.5:4000", REMOTE, "S", 1, 0));
    assert_eq!(announced(&none), None);
    // Without a SYN flag the same bytes announce nothing.
    let mut segment = syn_with("10.0.0.5:4000", REMOTE, &PLAIN);
    segment[33] = 0x10;
    let sum = u16::from_be_bytes([segment[36], segment[37]]) - 0x0e;
    segment[36..38].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(announced(&lab.out(&segment)), Some(1460));
    // Malformed options are left to the receiver.
    for options in [[2, 3, 0x05, 0xb4], [4, 0, 2, 4], [0, 2, 4, 9]] {
        let out = lab.out(&syn_with("10.0.0.5:4000", REMOTE, &options));
        assert_eq!(out[40..44], options);
    }
}
