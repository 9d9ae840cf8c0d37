//! Whatever comes in: nothing panics, answers have the form that clients rely on, and what was
//! written is read as it was meant.

use natgate_pcp::{
    Client, Granted, Operation, Policy, Prefix64, Read, Refusal, ResultCode, Server,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

/// A client of IPv6, behind a NAT64.
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);

fn client(may_speak_for_others: bool) -> Client<'static> {
    Client { address: CLIENT.into(), may_speak_for_others, prefixes: &[] }
}

fn server() -> Server {
    Server::new(Policy { lifetime: (120, 86_400), nat_pmp: true, port_set: 64 })
}

/// Bytes that are nearly requests: a header that is right, then anything, or options.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<u8>(), 0u16..24, prop::collection::vec(any::<u8>(), 0..24));
    let options = prop::collection::vec(option, 0..6).prop_map(|all| {
        let mut bytes = Vec::new();
        for (code, len, mut contents) in all {
            contents.resize(contents.len().next_multiple_of(4), 0);
            bytes.extend([(code % 5) | (code & 0x80), 0]);
            bytes.extend(len.to_be_bytes());
            bytes.extend(contents);
        }
        bytes
    });
    let own = prop::collection::vec(any::<u8>(), 0..60);
    let head = (0u8..4, any::<u32>(), any::<bool>());
    (head, own, options).prop_map(|((opcode, lifetime, is_ipv4), own, options)| {
        let mut bytes = vec![2, opcode, 0, 0];
        bytes.extend(lifetime.to_be_bytes());
        let client = if is_ipv4 { CLIENT.to_ipv6_mapped() } else { CLIENT6 };
        bytes.extend(client.octets());
        bytes.extend(own);
        bytes.extend(options);
        bytes
    })
}

/// Checks what holds for every answer.
fn check(request: &[u8], answer: &[u8]) {
    assert!((4..=1100).contains(&answer.len()), "{} bytes", answer.len());
    assert_eq!(answer[1], request[1] | 0x80, "the opcode, and that it is a response");
    if answer[0] == 2 {
        assert!(answer.len() >= 24 && answer.len().is_multiple_of(4));
        assert!(answer[3] <= 13);
    }
}

fn try_all(bytes: &[u8]) {
    let prefix = |text: &str, len| Prefix64::new(text.parse().unwrap(), len).unwrap();
    let all = [prefix("64:ff9b::", 96), prefix("2001:db8:100::", 40)].repeat(30);
    let clients: [(IpAddr, &[Prefix64]); 3] =
        [(CLIENT.into(), &[]), (CLIENT6.into(), &all[..2]), (CLIENT6.into(), &all)];
    for (may_speak_for_others, (address, prefixes)) in
        [false, true].into_iter().flat_map(|trusted| clients.map(|client| (trusted, client)))
    {
        match server().read(bytes, Client { address, may_speak_for_others, prefixes }, 77) {
            Read::Silence(_) => {}
            Read::Answer(answer) => check(bytes, &answer),
            Read::Ask(request) => {
                let external = Ipv4Addr::new(203, 0, 113, 1);
                for ports in [1, 64] {
                    let (external_port, lifetime, port) = (9, 60, 65_500);
                    let granted = Granted { external, external_port, lifetime, port, ports };
                    check(bytes, &request.grant(bytes, &granted, prefixes, 77));
                }
                for code in ResultCode::ALL {
                    check(bytes, &request.refuse(bytes, Refusal::new(code), 77));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn garbage_is_answered_in_form(bytes in prop::collection::vec(any::<u8>(), 0..1300)) {
        try_all(&bytes);
    }

    #[test]
    fn what_is_nearly_a_request_is_answered_in_form(bytes in nearly(), cut in 0usize..200) {
        try_all(&bytes);
        try_all(&bytes[..bytes.len().saturating_sub(cut)]);
    }

    #[test]
    fn a_mapping_is_read_as_it_was_written(
        protocol in 1u8..,
        port in 1u16..,
        external in any::<(u32, u16)>(),
        nonce in any::<[u8; 12]>(),
        lifetime in 120u32..86_400,
    ) {
        let mut bytes = vec![2, 1, 0, 0];
        bytes.extend(lifetime.to_be_bytes());
        bytes.extend(CLIENT.to_ipv6_mapped().octets());
        bytes.extend(nonce);
        bytes.extend([protocol, 0, 0, 0]);
        bytes.extend(port.to_be_bytes());
        bytes.extend(external.1.to_be_bytes());
        let address = Ipv4Addr::from_bits(external.0);
        bytes.extend(address.to_ipv6_mapped().octets());
        let Read::Ask(request) = server().read(&bytes, client(false), 0) else { panic!() };
        let Operation::Map(map) = &request.operation else { panic!() };
        prop_assert_eq!((map.protocol, map.port, map.nonce), (protocol, port, nonce));
        prop_assert_eq!(map.external, (external.0 != 0).then_some(address));
        prop_assert_eq!((map.external_port, map.lifetime), (external.1, lifetime));
        // And the answer says what was granted.
        let granted =
            Granted { external: address, external_port: 5, lifetime: 6, port, ports: 1 };
        let answer = request.grant(&bytes, &granted, &[], 7);
        prop_assert_eq!(&answer[24..40], &bytes[24..40]);
        prop_assert_eq!(&answer[40..42], &bytes[40..42]);
        prop_assert_eq!(&answer[42..44], &[0, 5]);
        prop_assert_eq!(&answer[4..12], &[0, 0, 0, 6, 0, 0, 0, 7]);
    }
}
