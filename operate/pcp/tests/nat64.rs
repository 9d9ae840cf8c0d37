//! Messages of hosts of IPv6, for which a NAT64 translates: RFC 6887 with addresses of both
//! families, and the prefixes of RFC 7225, byte by byte.

use natgate_pcp::{
    Answer, Client, Granted, Map, Operation, Policy, Prefix64, Read, Request, ResultCode, Server,
    announcement,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const REMOTE: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0xc633, 0x6407);
const REMOTE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const EPOCH: u32 = 0x0102_0304;

fn prefix(text: &str, len: u8) -> Prefix64 {
    Prefix64::new(text.parse().unwrap(), len).expect("a permitted length")
}

/// Prefixes of each permitted length.
fn prefixes() -> Vec<Prefix64> {
    vec![
        prefix("64:ff9b::", 96),
        prefix("2001:db8::", 32),
        prefix("2001:db8:100::", 40),
        prefix("2001:db8:122::", 48),
        prefix("2001:db8:122:300::", 56),
        prefix("2001:db8:122:344::", 64),
    ]
}

fn read_of(address: IpAddr, may_speak_for_others: bool, bytes: &[u8]) -> Read {
    let all = prefixes();
    let prefixes = if address.is_ipv6() { &all[..] } else { &[] };
    let server = Server::new(Policy { lifetime: (120, 86_400), nat_pmp: true, port_set: 64 });
    server.read(bytes, Client { address, may_speak_for_others, prefixes }, EPOCH)
}

fn asked(bytes: &[u8]) -> Request {
    match read_of(CLIENT.into(), true, bytes) {
        Read::Ask(request) => request,
        other => panic!("{other:?} to {bytes:02x?}"),
    }
}

fn asked_map(bytes: &[u8]) -> Map {
    match asked(bytes).operation {
        Operation::Map(map) => map,
        other => panic!("{other:?}"),
    }
}

fn answered(address: impl Into<IpAddr>, bytes: &[u8]) -> Answer {
    match read_of(address.into(), true, bytes) {
        Read::Answer(answer) => answer,
        other => panic!("{other:?} to {bytes:02x?}"),
    }
}

fn code(bytes: &[u8]) -> ResultCode {
    ResultCode::ALL[usize::from(answered(CLIENT, bytes)[3])]
}

fn request(opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, opcode, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(CLIENT.octets());
    bytes
}

fn map(lifetime: u32) -> Vec<u8> {
    let mut bytes = request(1, lifetime);
    bytes.extend([9; 12]);
    bytes.extend([17, 0, 0, 0]);
    bytes.extend(5000_u16.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend([0; 16]);
    bytes
}

fn peer(remote: Ipv6Addr) -> Vec<u8> {
    let mut bytes = map(600);
    bytes[1] = 2;
    bytes.extend(443_u16.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(remote.octets());
    bytes
}

fn option(code: u8, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![code, 0];
    bytes.extend((contents.len() as u16).to_be_bytes());
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn filter(len: u8, remote: Ipv6Addr) -> Vec<u8> {
    option(3, &[&[0, len, 0, 53][..], &remote.octets()].concat())
}

/// The question for prefixes: ::/96, as RFC 7225 section 4.3 has it.
fn question() -> Vec<u8> {
    option(129, &[&[0, 12][..], &[0; 12]].concat())
}

fn granted() -> Granted {
    Granted { external: EXTERNAL, external_port: 2000, lifetime: 600, port: 5000, ports: 1 }
}

/// The options with the prefixes of [`prefixes`].
fn told() -> Vec<u8> {
    let rows: [(&str, &str); 6] = [
        ("000c", "0064ff9b0000000000000000"),
        ("0004", "20010db80000000000000000"),
        ("0005", "20010db80100000000000000"),
        ("0006", "20010db80122000000000000"),
        ("0007", "20010db80122030000000000"),
        ("0008", "20010db80122034400000000"),
    ];
    let hex = |text: &str| -> Vec<u8> {
        let pairs = (0..text.len()).step_by(2);
        pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    rows.iter().flat_map(|(len, both)| option(129, &[hex(len), hex(both)].concat())).collect()
}

#[test]
fn a_mapping_has_an_ipv4_address_outside() {
    let request = asked(&map(600));
    assert_eq!((request.host, request.is_third_party), (CLIENT.into(), false));
    let answer = request.grant(&map(600), &granted(), &prefixes(), EPOCH);
    let mut expected = map(600);
    expected[1] = 0x81;
    expected[8..12].copy_from_slice(&EPOCH.to_be_bytes());
    expected[12..24].fill(0);
    expected[42..44].copy_from_slice(&2000_u16.to_be_bytes());
    expected[44..60].copy_from_slice(&EXTERNAL.to_ipv6_mapped().octets());
    assert_eq!(answer[..], expected, "nobody asked for prefixes");
}

//= test rfc6887#section-8.2-mismatch
#[test]
fn the_source_is_the_client() {
    let mut other = map(600);
    other[23] = 6;
    assert_eq!(code(&other), ResultCode::AddressMismatch);
    other[8..24].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 5).to_ipv6_mapped().octets());
    assert_eq!(code(&other), ResultCode::AddressMismatch);
}

#[test]
fn another_host_is_of_the_same_family() {
    let host: Ipv6Addr = "2001:db8:2::9".parse().unwrap();
    let bytes = [map(600), option(1, &host.octets())].concat();
    assert_eq!(asked(&bytes).host, host);
    let mapped = Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped();
    assert_eq!(
        code(&[map(600), option(1, &mapped.octets())].concat()),
        ResultCode::MalformedOption
    );
    let own = [map(600), option(1, &CLIENT.octets())].concat();
    assert_eq!(code(&own), ResultCode::MalformedRequest);
}

//= test rfc6887#section-13.3-prefix
#[test]
fn remote_hosts_are_named_in_either_family() {
    let with = |len, remote| asked_map(&[map(600), filter(len, remote)].concat()).filters.add;
    let of = |filters: arrayvec::ArrayVec<natgate_pcp::Filter, 8>| {
        (filters[0].address, filters[0].prefix_len, filters[0].port)
    };
    assert_eq!(of(with(128, REMOTE)), (REMOTE.into(), 128, 53));
    let shorter: Ipv6Addr = "64:ff9b::c633:6400".parse().unwrap();
    assert_eq!(of(with(120, REMOTE)), (shorter.into(), 120, 53));
    assert_eq!(of(with(128, REMOTE4.to_ipv6_mapped())), (REMOTE4.into(), 32, 53));
    for (len, remote) in [(129, REMOTE), (95, REMOTE4.to_ipv6_mapped())] {
        assert_eq!(code(&[map(600), filter(len, remote)].concat()), ResultCode::MalformedOption);
    }
    for (remote, expected) in
        [(REMOTE, IpAddr::from(REMOTE)), (REMOTE4.to_ipv6_mapped(), REMOTE4.into())]
    {
        let Operation::Peer(asked) = asked(&peer(remote)).operation else { panic!() };
        assert_eq!(asked.remote, (expected, 443));
    }
}

//= test rfc7225#section-4.1-format
//= test rfc7225#section-4.1-response
//= test rfc7225#section-4.2-suffix
//= test rfc7225#section-4.2-multiple
#[test]
fn prefixes_are_told_when_asked_for() {
    for lifetime in [600, 0] {
        let bytes = [map(lifetime), question()].concat();
        let answer = asked(&bytes).grant(&bytes, &granted(), &prefixes(), EPOCH);
        assert_eq!((answer[3], &answer[60..]), (0, &told()[..]));
    }
    let bytes = [request(0, 0), question()].concat();
    let answer = answered(CLIENT, &bytes);
    assert_eq!((answer[..4].to_vec(), &answer[24..]), (vec![2, 0x80, 0, 0], &told()[..]));
    assert_eq!(answered(CLIENT, &request(0, 0)).len(), 24, "nobody asked");
    assert_eq!(announcement(EPOCH, &prefixes())[24..], told(), "an announcement to all");
    // A list of no IPv4 prefixes may stand in the question.
    let with_list = option(129, &[&[0, 12][..], &[0; 12], &[0, 0]].concat());
    assert_eq!(answered(CLIENT, &[request(0, 0), with_list].concat())[24..], told());
}

//= test rfc7225#section-4.1-once
#[test]
fn a_question_is_asked_once_and_in_form() {
    let wrong: [Vec<u8>; 4] = [
        [question(), question()].concat(),
        option(129, &[0; 14]),
        option(129, &[0, 12, 0, 0]),
        option(129, &[&[0, 13][..], &[0; 12]].concat()),
    ];
    for options in wrong {
        assert_eq!(code(&[map(600), options.clone()].concat()), ResultCode::MalformedOption);
        assert_eq!(code(&[request(0, 0), options].concat()), ResultCode::MalformedOption);
    }
    // A PEER request has no such option: it is ignored.
    let bytes = [peer(REMOTE), question()].concat();
    assert_eq!(asked(&bytes).grant(&bytes, &granted(), &prefixes(), EPOCH).len(), 80);
}

//= test rfc7225#section-4.2-none
#[test]
fn without_a_nat64_there_are_no_prefixes() {
    let client = Ipv4Addr::new(10, 0, 0, 5);
    let mut bytes = [request(0, 0), question()].concat();
    bytes[8..24].copy_from_slice(&client.to_ipv6_mapped().octets());
    assert_eq!(answered(client, &bytes).len(), 24);
}

#[test]
fn as_many_prefixes_are_told_as_fit() {
    let many = prefixes().repeat(20);
    let bytes = [map(600), question()].concat();
    let answer = asked(&bytes).grant(&bytes, &granted(), &many, EPOCH);
    assert_eq!((answer[3], answer.len()), (0, 60 + 52 * 20));
}

#[test]
fn nat_pmp_is_of_ipv4_only() {
    let answer = answered(CLIENT, &[0, 0]);
    assert_eq!((answer[0], answer[3]), (2, ResultCode::UnsupportedVersion as u8));
}

#[test]
fn other_lengths_are_no_prefixes() {
    let permitted: Vec<u8> =
        (0..=128).filter(|len| Prefix64::new(CLIENT, *len).is_some()).collect();
    assert_eq!(permitted, [32, 40, 48, 56, 64, 96]);
}
