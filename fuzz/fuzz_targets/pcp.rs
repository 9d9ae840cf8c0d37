//! Random bytes as requests of PCP and NAT-PMP: nothing panics, and every answer has the form that
//! clients rely on.
//!
//! The first byte says how the rest is dressed up: as it is, or as a request whose header is right,
//! for otherwise most would be turned away by it. It also says the family of the client.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_pcp::{Client, Granted, LONGEST, Policy, Prefix64, Read, Refusal, ResultCode, Server};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);

fuzz_target!(|data: &[u8]| {
    let Some((dress, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    let prefixes: Vec<Prefix64> = Prefix64::new(CLIENT6, 48).into_iter().collect();
    let (address, prefixes): (IpAddr, &[Prefix64]) = match dress & 4 {
        0 => (CLIENT.into(), &[]),
        _ => (CLIENT6.into(), &prefixes),
    };
    if dress & 1 != 0 && bytes.len() >= 24 {
        bytes[0] = 2;
        bytes[1] &= 3;
        bytes[8..24].copy_from_slice(&match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        });
    }
    let server = Server::new(Policy { lifetime: (120, 86_400), nat_pmp: true, port_set: 64 });
    let client = Client { address, may_speak_for_others: dress & 2 != 0, prefixes };
    match server.read(&bytes, client, 1) {
        Read::Silence(_) => {}
        Read::Answer(answer) => check(&bytes, &answer),
        Read::Ask(request) => {
            let granted = Granted {
                external: Ipv4Addr::new(203, 0, 113, 1),
                external_port: 1024,
                lifetime: u32::from(*dress),
                port: u16::from(*dress) << 8,
                ports: u16::from(*dress),
            };
            check(&bytes, &request.grant(&bytes, &granted, prefixes, 1));
            for code in ResultCode::ALL {
                check(&bytes, &request.refuse(&bytes, Refusal::new(code), 1));
            }
        }
    }
});

fn check(request: &[u8], answer: &[u8]) {
    assert!((4..=LONGEST).contains(&answer.len()));
    assert_eq!(answer[1], request[1] | 0x80);
    assert!(answer[0] == 0 || answer.len() >= 24 && answer.len().is_multiple_of(4));
}
