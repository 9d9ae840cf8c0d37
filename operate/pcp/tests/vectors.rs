//! Messages as the RFCs' diagrams have them, byte by byte, and what is answered to them.

use natgate_pcp::{
    Client, Granted, Map, Operation, Policy, Read, Refusal, Request, ResultCode, Server, Silence,
    announcement, nat_pmp_announcement,
};
use std::net::Ipv4Addr;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const EPOCH: u32 = 0x0102_0304;
const NONCE: [u8; 12] = *b"twelve bytes";

fn server() -> Server {
    Server::new(Policy { lifetime: (120, 86_400), nat_pmp: true, port_set: 64 })
}

/// The client, as the server sees it.
fn client(may_speak_for_others: bool) -> Client<'static> {
    Client { address: CLIENT.into(), may_speak_for_others, prefixes: &[] }
}

fn v4(address: Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

/// RFC 6887 figure 2.
fn request(opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, opcode, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(v4(CLIENT));
    bytes
}

/// RFC 6887 figure 9.
fn map(protocol: u8, port: u16, external: (Ipv4Addr, u16), lifetime: u32) -> Vec<u8> {
    let mut bytes = request(1, lifetime);
    bytes.extend(NONCE);
    bytes.extend([protocol, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(external.1.to_be_bytes());
    bytes.extend(v4(external.0));
    bytes
}

/// RFC 6887 figure 11.
fn peer(protocol: u8, port: u16, remote: (Ipv4Addr, u16), lifetime: u32) -> Vec<u8> {
    let mut bytes = map(protocol, port, (Ipv4Addr::UNSPECIFIED, 0), lifetime);
    bytes[1] = 2;
    bytes.extend(remote.1.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(v4(remote.0));
    bytes
}

/// RFC 6887 figures 4, 13, 14 and 15; RFC 7753 figure 1.
fn option(code: u8, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![code, 0];
    bytes.extend((contents.len() as u16).to_be_bytes());
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn third_party(host: Ipv4Addr) -> Vec<u8> {
    option(1, &v4(host))
}

fn prefer_failure() -> Vec<u8> {
    option(2, &[])
}

fn filter(prefix_len: u8, remote: Ipv4Addr, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    option(3, &[&[0, prefix_len, high, low][..], &v4(remote)].concat())
}

fn port_set(size: u16, first: u16, parity: bool) -> Vec<u8> {
    let ([a, b], [c, d]) = (size.to_be_bytes(), first.to_be_bytes());
    option(130, &[a, b, c, d, u8::from(parity)])
}

fn any() -> (Ipv4Addr, u16) {
    (Ipv4Addr::UNSPECIFIED, 0)
}

fn read(bytes: &[u8]) -> Read {
    server().read(bytes, client(false), EPOCH)
}

fn asked(bytes: &[u8]) -> Request {
    match server().read(bytes, client(true), EPOCH) {
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

/// The code of an error that is answered without asking anybody.
fn refused(bytes: &[u8]) -> ResultCode {
    refused_by(bytes, false)
}

fn refused_by(bytes: &[u8], may_speak_for_others: bool) -> ResultCode {
    match server().read(bytes, client(may_speak_for_others), EPOCH) {
        Read::Answer(answer) => {
            let code = ResultCode::ALL[usize::from(answer[3])];
            assert_error(bytes, &answer, code, code.lifetime());
            code
        }
        other => panic!("{other:?} to {bytes:02x?}"),
    }
}

fn assert_error(request: &[u8], answer: &[u8], code: ResultCode, lifetime: u32) {
    assert_eq!(answer[..2], [2, request[1] | 0x80], "version, opcode with R");
    assert_eq!(answer[2..4], [0, code as u8]);
    assert_eq!(answer[4..8], lifetime.to_be_bytes());
    assert_eq!(answer[8..12], EPOCH.to_be_bytes());
    assert!(answer.len().is_multiple_of(4) && answer.len() <= 1100);
    let copied = request.len().min(1100);
    if copied > 24 {
        assert_eq!(answer[24..copied], request[24..copied], "all else is a copy");
        assert!(answer[copied..].iter().all(|byte| *byte == 0));
    }
}

//= test rfc6887#section-8.2-two-octets
//= test rfc6887#section-8.2-response
//= test rfc6887#section-8.2-header
#[test]
fn what_gets_no_answer() {
    let silence = |bytes: &[u8]| match read(bytes) {
        Read::Silence(why) => why,
        other => panic!("{other:?} to {bytes:02x?}"),
    };
    assert_eq!(silence(&[]), Silence::Short);
    assert_eq!(silence(&[2]), Silence::Short);
    assert_eq!(silence(&request(1, 3600)[..23]), Silence::Short);
    assert_eq!(silence(&request(0x80, 0)), Silence::Response);
    assert_eq!(silence(&request(0x81, 0)), Silence::Response);
    assert_eq!(silence(&[0, 128]), Silence::Response);
    assert_eq!(silence(&[0, 1, 0, 0, 0, 80]), Silence::Short);
}

//= test rfc6887#section-8.2-version
//= test rfc6887#section-9-version
#[test]
fn another_version_is_answered_with_ours() {
    for version in [1, 3, 255] {
        let mut bytes = map(6, 80, any(), 3600);
        bytes[0] = version;
        assert_eq!(refused(&bytes), ResultCode::UnsupportedVersion);
    }
    // Even an answer to a short request has a header.
    assert_eq!(refused(&[9, 1]), ResultCode::UnsupportedVersion);
    // If NAT-PMP is not spoken, its clients can read why.
    let alone = Server::new(Policy { lifetime: (120, 86_400), nat_pmp: false, port_set: 1 });
    let Read::Answer(answer) = alone.read(&[0, 0], client(false), EPOCH) else { panic!() };
    assert_eq!(answer[..4], [2, 128, 0, 1]);
}

//= test rfc6887#section-8.2-error
//= test rfc6887#section-7.3-error
//= test rfc6887#section-8.2-length
//= test rfc6887#section-8.2-opcode
//= test rfc6887#section-7.2-unparsed
#[test]
fn what_cannot_be_read() {
    let whole = map(6, 80, any(), 3600);
    assert_eq!(refused(&whole[..56]), ResultCode::MalformedRequest, "too short for MAP");
    assert_eq!(refused(&whole[..58]), ResultCode::MalformedRequest, "not a multiple of four");
    let peer = peer(6, 80, (EXTERNAL, 80), 3600);
    assert_eq!(refused(&peer[..60]), ResultCode::MalformedRequest, "too short for PEER");
    let mut long = whole.clone();
    long.resize(1104, 0);
    assert_eq!(refused(&long), ResultCode::MalformedRequest, "too long");
    assert_eq!(refused(&request(3, 0)), ResultCode::UnsupportedOpcode);
    assert_eq!(refused(&request(127, 0)), ResultCode::UnsupportedOpcode);
    // The last 96 bits of the client's address come back from what could not be read, and from
    // nothing else.
    let Read::Answer(answer) = read(&whole[..56]) else { panic!() };
    assert_eq!(answer[12..24], whole[12..24]);
    let Read::Answer(answer) = read(&request(3, 0)) else { panic!() };
    assert_eq!(answer[12..24], [0; 12]);
}

//= test rfc6887#section-8.2-mismatch
//= test rfc6887#section-14.1.1-mismatch
#[test]
fn a_nat_between_is_noticed() {
    for mut bytes in [map(6, 80, any(), 3600), request(0, 0)] {
        bytes[23] ^= 1;
        assert_eq!(refused(&bytes), ResultCode::AddressMismatch);
        bytes[23] ^= 1;
        bytes[18] = 0;
        assert_eq!(refused(&bytes), ResultCode::AddressMismatch, "no IPv4 address");
    }
}

//= test rfc6887#section-14.1.2-success
//= test rfc6887#section-14.1.3-success
//= test rfc6887#section-7.2-response
//= test rfc6887#section-7.2-reserved
#[test]
fn announce_is_answered_with_the_epoch() {
    let Read::Answer(answer) = read(&request(0, 7)) else { panic!() };
    let mut expected = vec![2, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    expected.extend([0; 12]);
    assert_eq!(answer[..], expected);
    assert_eq!(announcement(EPOCH, &[])[..], expected);
}

//= test rfc6887#section-11.1-assigned
//= test rfc6887#section-11.3-copied
//= test rfc6887#section-8.2-success
#[test]
fn map_is_granted() {
    let mut bytes = map(17, 50_000, (EXTERNAL, 6000), 3600);
    bytes[37..40].fill(0xff);
    let request = asked(&bytes);
    assert_eq!((request.host, request.is_third_party), (CLIENT.into(), false));
    let map = asked_map(&bytes);
    assert_eq!((map.protocol, map.port, map.nonce), (17, 50_000, NONCE));
    assert_eq!((map.external, map.external_port), (Some(EXTERNAL), 6000));
    assert_eq!((map.lifetime, map.ports, map.prefer_failure), (3600, 1, false));
    let granted =
        Granted { external: EXTERNAL, external_port: 6001, lifetime: 1800, port: 50_000, ports: 1 };
    let mut expected = vec![2, 0x81, 0, 0, 0, 0, 7, 8, 1, 2, 3, 4];
    expected.extend([0; 12]);
    expected.extend(NONCE);
    expected.extend([17, 0, 0, 0, 0xc3, 0x50, 0x17, 0x71]);
    expected.extend(v4(EXTERNAL));
    assert_eq!(request.grant(&bytes, &granted, &[], EPOCH)[..], expected);
    let refusal = Refusal { code: ResultCode::NotAuthorized, lifetime: 99 };
    let answer = request.refuse(&bytes, refusal, EPOCH);
    assert_error(&bytes, &answer, ResultCode::NotAuthorized, 99);
    assert_eq!(answer[12..24], [0; 12]);
}

//= test rfc6887#section-15-bounds
#[test]
fn lifetimes_are_bounded() {
    let lifetime = |lifetime| asked_map(&map(6, 80, any(), lifetime)).lifetime;
    assert_eq!(
        [1, 119, 120, 86_400, 86_401, u32::MAX].map(lifetime),
        [120, 120, 120, 86_400, 86_400, 86_400]
    );
}

//= test rfc6887#section-11.3-protocol-zero
//= test rfc6887#section-15.1-protocol-zero
//= test rfc6887#section-11.3-wildcard
//= test rfc6887#section-11.3-dmz
#[test]
fn all_ports_and_all_protocols() {
    assert_eq!(refused(&map(0, 80, any(), 3600)), ResultCode::MalformedRequest);
    assert_eq!(refused(&map(0, 80, any(), 0)), ResultCode::MalformedRequest);
    assert_eq!(refused(&map(6, 0, any(), 3600)), ResultCode::UnsupportedProtocol);
    assert_eq!(refused(&map(0, 0, any(), 3600)), ResultCode::UnsupportedProtocol);
    let operation = asked(&map(0, 0, any(), 0)).operation;
    assert!(matches!(operation, Operation::Unmap(unmap) if unmap.protocol == 0), "{operation:?}");
}

//= test rfc6887#section-15.1-suggested
#[test]
fn a_deletion_repeats_what_was_suggested() {
    let bytes = map(6, 80, (EXTERNAL, 6000), 0);
    let request = asked(&bytes);
    assert!(matches!(request.operation, Operation::Unmap(_)));
    let granted = Granted { external: EXTERNAL, external_port: 9, lifetime: 0, port: 80, ports: 1 };
    let answer = request.grant(&bytes, &granted, &[], EPOCH);
    assert_eq!(answer[24..], bytes[24..]);
    assert_eq!(answer[3..8], [0, 0, 0, 0, 0]);
}

//= test rfc6887#section-12.3-remote
//= test rfc6887#section-12.3-copied
//= test rfc6887#section-12.1-prefer-failure
#[test]
fn peer_is_granted() {
    let remote = (Ipv4Addr::new(198, 51, 100, 7), 443);
    let bytes = peer(6, 4000, remote, 3600);
    let request = asked(&bytes);
    let Operation::Peer(asked) = request.operation else { panic!("{:?}", request.operation) };
    assert_eq!((asked.protocol, asked.port, asked.remote), (6, 4000, (remote.0.into(), remote.1)));
    assert_eq!((asked.external, asked.external_port, asked.lifetime), (None, 0, 3600));
    let granted =
        Granted { external: EXTERNAL, external_port: 7000, lifetime: 60, port: 4000, ports: 1 };
    let answer = request.grant(&bytes, &granted, &[], EPOCH);
    assert_eq!(answer.len(), 80);
    assert_eq!(answer[42..44], 7000u16.to_be_bytes());
    assert_eq!(answer[44..60], v4(EXTERNAL));
    assert_eq!(answer[60..], bytes[60..]);

    let failing = [bytes.clone(), prefer_failure()].concat();
    assert_eq!(refused(&failing), ResultCode::MalformedRequest);
    let filtering = [bytes.clone(), filter(128, remote.0, 1)].concat();
    assert_eq!(refused(&filtering), ResultCode::MalformedOption);
    let mut other = bytes;
    other[64] = 0x20;
    assert_eq!(refused(&other), ResultCode::MalformedRequest, "a remote that is not of IPv4");
}

/// Bits that mean nothing may be anything in a request, and are zeros in the answer.
//= test rfc6887#section-7.1-reserved
//= test rfc6887#section-7.3-reserved
//= test rfc6887#section-11.1-reserved
//= test rfc6887#section-12.1-reserved
#[test]
fn what_is_reserved_is_not_looked_at() {
    let remote = (Ipv4Addr::new(198, 51, 100, 7), 443);
    let options = [filter(128, remote.0, 443), third_party(Ipv4Addr::new(10, 0, 0, 9))].concat();
    let clean = [map(6, 80, any(), 3600), options].concat();
    let mut dirty = clean.clone();
    for at in [2, 3, 37, 38, 39, 61, 64, 85] {
        dirty[at] = 0xff;
    }
    let granted =
        Granted { external: EXTERNAL, external_port: 1, lifetime: 3600, port: 80, ports: 1 };
    assert_eq!(asked(&dirty), asked(&clean));
    let answer = asked(&dirty).grant(&dirty, &granted, &[], EPOCH);
    assert_eq!(answer, asked(&clean).grant(&clean, &granted, &[], EPOCH));
    assert_eq!(answer[60..], clean[60..], "options come back as they are written rightly");

    let clean = peer(6, 80, remote, 3600);
    let mut dirty = clean.clone();
    for at in [2, 3, 37, 38, 39, 62, 63] {
        dirty[at] = 0xff;
    }
    assert_eq!(asked(&dirty), asked(&clean));
    let answer = asked(&dirty).grant(&dirty, &granted, &[], EPOCH);
    assert_eq!(answer, asked(&clean).grant(&clean, &granted, &[], EPOCH));
}

/// Nothing but zeros is no wish, also as an address of IPv6.
#[test]
fn zeros_are_no_wish() {
    let mut bytes = peer(6, 80, (Ipv4Addr::new(198, 51, 100, 7), 443), 3600);
    bytes[44..60].fill(0);
    let Operation::Peer(peer) = asked(&bytes).operation else { panic!() };
    assert_eq!((peer.external, peer.external_port, peer.impossible), (None, 0, false));
    bytes[44] = 0x20;
    let Operation::Peer(peer) = asked(&bytes).operation else { panic!() };
    assert!(peer.impossible, "an address that cannot be had");
}

//= test rfc6887#section-7.3-structure
//= test rfc6887#section-7.3-contents
//= test rfc6887#section-7.3-mandatory
//= test rfc6887#section-7.3-optional
//= test rfc6887#section-7.3-answer
#[test]
fn options_that_are_not_known() {
    let plain = map(6, 80, any(), 3600);
    let with = |option: Vec<u8>| [plain.clone(), option].concat();
    assert_eq!(refused(&with(option(4, &[]))), ResultCode::UnsupportedOption);
    assert_eq!(refused(&with(option(127, b"x"))), ResultCode::UnsupportedOption);
    assert_eq!(refused(&with(vec![200, 0, 0, 5, 0, 0, 0, 0])), ResultCode::MalformedOption);
    // A known option, of a length that it does not have.
    assert_eq!(refused(&with(option(3, &[0; 16]))), ResultCode::MalformedOption);
    assert_eq!(refused_by(&with(option(1, &[0; 4])), true), ResultCode::MalformedOption);
    // An unreadable list is refused before an unknown option.
    let both = [option(4, &[]), vec![128, 0, 0xff, 0xff]].concat();
    assert_eq!(refused(&with(both)), ResultCode::MalformedOption);
    let ignored = with([option(128, b"12345"), option(255, &[])].concat());
    let request = asked(&ignored);
    let granted =
        Granted { external: EXTERNAL, external_port: 1, lifetime: 3600, port: 80, ports: 1 };
    assert_eq!(request.grant(&ignored, &granted, &[], EPOCH).len(), 60);
}

//= test rfc6887#section-13.1-prohibited
//= test rfc6887#section-13.1-unauthorized
//= test rfc6887#section-13.1-same
//= test rfc6887#section-7.3-once
#[test]
fn speaking_for_others() {
    let plain = map(6, 80, any(), 3600);
    let host = Ipv4Addr::new(10, 0, 0, 9);
    let bytes = [plain.clone(), third_party(host)].concat();
    assert_eq!(refused(&bytes), ResultCode::UnsupportedOption);
    let request = asked(&bytes);
    assert_eq!((request.host, request.is_third_party), (host.into(), true));
    let granted =
        Granted { external: EXTERNAL, external_port: 1, lifetime: 3600, port: 80, ports: 1 };
    assert_eq!(request.grant(&bytes, &granted, &[], EPOCH)[60..], third_party(host));
    let own = [plain.clone(), third_party(CLIENT)].concat();
    assert_eq!(refused_by(&own, true), ResultCode::MalformedRequest);
    let twice = [bytes, third_party(host)].concat();
    assert_eq!(refused_by(&twice, true), ResultCode::MalformedOption);
    let cut = [plain, option(1, &[1, 2, 3])].concat();
    assert_eq!(refused_by(&cut, true), ResultCode::MalformedOption);
    let announce = [self::request(0, 0), third_party(host)].concat();
    assert_eq!(refused_by(&announce, true), ResultCode::MalformedOption);
}

//= test rfc6887#section-13.2-port
//= test rfc6887#section-11.3-senseless
#[test]
fn prefer_failure_needs_a_port() {
    let with = |mut bytes: Vec<u8>, times| {
        (0..times).for_each(|_| bytes.extend(prefer_failure()));
        bytes
    };
    assert!(asked_map(&with(map(6, 80, (EXTERNAL, 80), 3600), 1)).prefer_failure);
    assert_eq!(refused(&with(map(6, 80, any(), 3600), 1)), ResultCode::MalformedOption);
    assert_eq!(refused(&with(map(6, 80, (EXTERNAL, 80), 0), 1)), ResultCode::MalformedOption);
    assert_eq!(refused(&with(map(6, 80, (EXTERNAL, 80), 9), 2)), ResultCode::MalformedOption);
    let mut other = with(map(6, 80, (EXTERNAL, 80), 3600), 1);
    other[44] = 0x20;
    assert!(asked_map(&other).impossible, "an external address that is not of IPv4");
    let mut hint = map(6, 80, (EXTERNAL, 80), 3600);
    hint[44] = 0x20;
    assert!(!asked_map(&hint).impossible, "a wish does no harm");
}

//= test rfc6887#section-13.3-delete
//= test rfc6887#section-13.3-remove
//= test rfc6887#section-13.3-prefix
//= test rfc6887#section-13.3-limit
//= test rfc6887#section-7.3-order
#[test]
fn filters() {
    let plain = map(6, 80, any(), 3600);
    let remote = Ipv4Addr::new(198, 51, 100, 7);
    let with = |options: &[Vec<u8>]| [plain.clone(), options.concat()].concat();
    let filters = asked_map(&with(&[filter(120, remote, 443), filter(128, remote, 0)])).filters;
    assert!(!filters.replace);
    let told: Vec<_> = filters.add.iter().map(|f| (f.address, f.prefix_len, f.port)).collect();
    assert_eq!(told, [(Ipv4Addr::new(198, 51, 100, 0).into(), 24, 443), (remote.into(), 32, 0)]);
    // Filters that came before the removal are removed, too.
    let none = filter(0, Ipv4Addr::UNSPECIFIED, 0);
    let filters = asked_map(&with(&[filter(128, remote, 1), none, filter(96, remote, 0)])).filters;
    assert!(filters.replace);
    assert_eq!(filters.add.len(), 1);
    assert_eq!((filters.add[0].address, filters.add[0].prefix_len), (any().0.into(), 0));
    for wrong in [95, 129, 255, 1] {
        let bytes = with(&[filter(wrong, remote, 0)]);
        assert_eq!(refused(&bytes), ResultCode::MalformedOption, "prefix length {wrong}");
    }
    assert_eq!(refused(&with(&[option(3, &[0; 8])])), ResultCode::MalformedOption);
    let many: Vec<_> = (0..9).map(|port| filter(128, remote, port + 1)).collect();
    assert_eq!(refused(&with(&many)), ResultCode::ExcessiveRemotePeers);
    asked_map(&with(&many[..8]));
    let delete = [map(6, 80, any(), 0), filter(128, remote, 0)].concat();
    assert_eq!(refused(&delete), ResultCode::MalformedOption);
}

//= test rfc7753#section-4.2-prefer-failure
//= test rfc7753#section-4.2-once
//= test rfc7753#section-4.2-size
//= test rfc7753#section-4.2-range
//= test rfc7753#section-4.2-first
//= test rfc7753#section-6.1-configurable
//= test rfc7753#section-4.2-single
#[test]
fn port_sets() {
    // RFC 7753 section 5.1, with this server's limit.
    let bytes = [map(17, 50_000, any(), 3600), port_set(100, 50_000, true)].concat();
    let map_asked = asked_map(&bytes);
    assert_eq!(map_asked.ports, 64);
    let request = asked(&bytes);
    let grant = |port, ports| {
        let granted =
            Granted { external: EXTERNAL, external_port: 37_056, lifetime: 3600, port, ports };
        request.grant(&bytes, &granted, &[], EPOCH)
    };
    assert_eq!(grant(50_000, 32)[60..], [130, 0, 0, 5, 0, 32, 0xc3, 0x50, 1, 0, 0, 0]);
    assert_eq!(grant(50_000, 1).len(), 60, "a single port is no set");
    // An answer about another mapping that the request meets names that mapping's first port.
    let other = grant(50_040, 3);
    assert_eq!(other[40..42], 50_040u16.to_be_bytes());
    assert_eq!(other[60..], [130, 0, 0, 5, 0, 3, 0xc3, 0x78, 1, 0, 0, 0]);

    let set = |options: &[Vec<u8>]| [map(17, 50_000, (EXTERNAL, 9), 9), options.concat()].concat();
    let one = port_set(8, 50_000, false);
    assert_eq!(refused(&set(&[one.clone(), one.clone()])), ResultCode::MalformedOption);
    assert_eq!(refused(&set(&[one, prefer_failure()])), ResultCode::MalformedOption);
    assert_eq!(refused(&set(&[port_set(0, 50_000, false)])), ResultCode::MalformedOption);
    assert_eq!(refused(&set(&[option(130, &[0; 4])])), ResultCode::MalformedOption);
    let end = [map(17, 65_530, any(), 9), port_set(0xffff, 65_530, false)].concat();
    assert_eq!(asked_map(&end).ports, 6, "no port is beyond the last");
}

#[test]
fn the_longest_answer_fits() {
    let mut bytes = map(6, 80, any(), 3600);
    let remote = Ipv4Addr::new(198, 51, 100, 7);
    // Removals are as many as fit, for each takes the place of all before.
    while bytes.len() + 24 <= 1088 {
        bytes.extend(filter(0, remote, 0));
    }
    bytes.extend(port_set(2, 80, false));
    assert!(bytes.len() <= 1100);
    let request = asked(&bytes);
    let granted =
        Granted { external: EXTERNAL, external_port: 1, lifetime: 3600, port: 80, ports: 2 };
    let answer = request.grant(&bytes, &granted, &[], EPOCH);
    assert_eq!((answer[3], answer.len()), (0, bytes.len()));
}

//= test rfc6887#section-7.4-lifetimes
#[test]
fn errors_last_as_their_causes_do() {
    let short: Vec<_> = ResultCode::ALL.into_iter().filter(|code| code.lifetime() == 30).collect();
    assert_eq!(
        short,
        [
            ResultCode::NetworkFailure,
            ResultCode::NoResources,
            ResultCode::UserExceededQuota,
            ResultCode::CannotProvideExternal,
        ]
    );
    let others = ResultCode::ALL.into_iter().filter(|code| code.lifetime() == 1800);
    assert_eq!(others.count(), 9);
    let numbers = ResultCode::ALL.map(|code| code as u8);
    assert_eq!(numbers.to_vec(), (0..14).collect::<Vec<u8>>());
}

//= test rfc6886#section-3.2
//= test rfc6886#section-3.2-error
//= test rfc6886#section-3.2.1
//= test rfc6886#section-3.3-epoch
#[test]
fn nat_pmp_tells_the_address() {
    let request = asked(&[0, 0]);
    assert_eq!(request.operation, Operation::Address);
    let granted = Granted { external: EXTERNAL, external_port: 0, lifetime: 0, port: 0, ports: 1 };
    let expected = [0, 128, 0, 0, 1, 2, 3, 4, 203, 0, 113, 1];
    assert_eq!(request.grant(&[0, 0], &granted, &[], EPOCH)[..], expected);
    assert_eq!(nat_pmp_announcement(EXTERNAL, EPOCH)[..], expected);
    let refusal = Refusal::new(ResultCode::NetworkFailure);
    assert_eq!(request.refuse(&[0, 0], refusal, EPOCH)[..], [0, 128, 0, 3, 1, 2, 3, 4, 0, 0, 0, 0]);
}

//= test rfc6886#section-3.3-lifetime
//= test rfc6886#section-3.3-alone
//= test rfc6886#section-3.3-source
//= test rfc6886#section-3.3-reserved
//= test rfc6886#section-3.4-delete
//= test rfc6886#section-3.4-answer
//= test rfc6886#section-3.4-all
//= test rfc6886#section-3.5-fields
#[test]
fn nat_pmp_maps() {
    let bytes = [0, 2, 0, 0, 0, 80, 0x1f, 0x90, 0, 0, 0, 60];
    let map = asked_map(&bytes);
    assert_eq!((map.protocol, map.port, map.external_port), (6, 80, 8080));
    assert_eq!(asked(&bytes).host, CLIENT);
    let mut reserved = bytes;
    reserved[2..4].fill(0xff);
    assert_eq!(asked(&reserved), asked(&bytes));
    assert_eq!(asked_map(&[0, 1, 0, 0, 0, 80, 0, 0, 0, 0, 0, 60]).protocol, 17);
    // Never more than was asked for.
    assert_eq!(map.lifetime, 60);
    let request = asked(&bytes);
    let granted =
        Granted { external: EXTERNAL, external_port: 8081, lifetime: 60, port: 80, ports: 1 };
    assert_eq!(
        request.grant(&bytes, &granted, &[], EPOCH)[..],
        [0, 130, 0, 0, 1, 2, 3, 4, 0, 80, 0x1f, 0x91, 0, 0, 0, 60]
    );
    let refusal = Refusal::new(ResultCode::UserExceededQuota);
    assert_eq!(
        request.refuse(&bytes, refusal, EPOCH)[..],
        [0, 130, 0, 4, 1, 2, 3, 4, 0, 80, 0, 0, 0, 0, 0, 0]
    );
    let delete = [0, 1, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0];
    let request = asked(&delete);
    assert!(matches!(request.operation, Operation::Unmap(one) if one.protocol == 17));
    // Also where sessions go on by it for a while.
    for lifetime in [0, 300] {
        let gone = Granted { lifetime, ..granted };
        assert_eq!(
            request.grant(&delete, &gone, &[], EPOCH)[..],
            [0, 129, 0, 0, 1, 2, 3, 4, 0, 80, 0, 0, 0, 0, 0, 0]
        );
    }
    let all = asked(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(all.operation, Operation::UnmapAll { protocol: 17 });
}

//= test rfc6886#section-3.5-response
//= test rfc6886#section-3.5-opcode
#[test]
fn nat_pmp_knows_three_opcodes() {
    let Read::Answer(answer) = read(&[0, 3, 9, 9, 1, 2]) else { panic!() };
    assert_eq!(answer[..], [0, 131, 0, 5, 1, 2]);
    assert!(matches!(read(&[0, 131, 0, 0]), Read::Silence(Silence::Response)));
}
