//! RFC 4884: extensions after the quotation of an ICMP error. A NAT must not change extensions.

use crate::common::*;
use crate::exchange::*;
use natgate_engine::Side;
use natgate_wire::{checksum, protocol};

/// Least length of a quotation before an extension, bytes.
const QUOTED: usize = 128;

/// An extension structure of one object: the labels that MPLS routers report (RFC 4950).
fn extension() -> Vec<u8> {
    let mut bytes = vec![0x20, 0, 0, 0, 0, 12, 1, 1, 0, 0x3e, 0x81, 1, 0, 0x11, 0x21, 1];
    let sum = checksum::checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// An error with an extension, from a place, and the packet that it quotes.
fn extended(exchange: &Exchange, place: Place, error: (u8, u8), word: [u8; 4]) -> Vec<u8> {
    let mut quoted = exchange.about(place);
    let to = source(&quoted);
    quoted.resize(QUOTED.max(quoted.len()), 0);
    quoted.extend(extension());
    error_with((place.address(), &to), error, word, &quoted)
}

/// An exchange of packets longer than the least quotation before an extension.
fn long_exchange() -> Exchange {
    Exchange::shaped(&config(), protocol::UDP, |packet| {
        let (from, to) = ends(packet);
        udp_with(&from, &to, &[0xa5; 400])
    })
}

//= test rfc4884#section-6-original
#[test]
fn section_6_of_a_long_quotation_only_the_headers_change() {
    for place in Place::ALL {
        let mut exchange = long_exchange();
        let (about, original) = (exchange.about(place), exchange.original(place));
        let to = source(&about);
        let quoted = [&about[..QUOTED], &extension()].concat();
        let error = error_with((place.address(), &to), (11, 0), [0, 32, 0, 0], &quoted);
        let told = exchange.forward(place, &error);
        ends(&told);
        assert_eq!(told[28..][..QUOTED], original[..QUOTED], "{place:?}");
        assert_eq!(told[28 + 28..], quoted[28..], "behind the headers nothing changes");
    }
}

//= test rfc4884#section-6-original
#[test]
fn section_6_extensions_stay_as_they_are() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            for error in ERRORS {
                let sent = extended(&exchange, place, error, [0, 32, 0, 0]);
                let told = exchange.forward(place, &sent);
                ends(&told);
                assert_eq!(told.len(), sent.len());
                let extension_at = 28 + QUOTED;
                assert_eq!(told[extension_at..], sent[extension_at..], "{protocol} {place:?}");
                assert_eq!(checksum::checksum(&told[extension_at..]), 0);
            }
        }
    }
}

//= test rfc4884#section-6-length
#[test]
fn section_6_the_length_of_the_quotation_stays() {
    // Beside the length, an error has no other field, the next MTU, or a pointer. Extensions
    // from before the RFC have no length.
    let cases = [
        ((11, 0), [0, 32, 0, 0]),
        ((3, 4), [0, 32, 5, 0]),
        ((12, 0), [20, 32, 0, 0]),
        ((11, 0), [0, 33, 0, 0]),
        ((11, 0), [0, 0, 0, 0]),
        ((11, 0), [0xff; 4]),
    ];
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            for (error, word) in cases {
                let sent = extended(&exchange, place, error, word);
                let told = exchange.forward(place, &sent);
                ends(&told);
                assert_eq!(told[24..28], word, "{error:?} {protocol} {place:?}");
                let about_len = exchange.about(place).len();
                assert_eq!(told[28..][..about_len], exchange.original(place));
            }
        }
    }
}

//= test rfc4884#section-4-length
#[test]
fn section_4_own_errors_have_no_extension_and_say_so() {
    let mut lab = Lab::new(&config());
    lab.refused(Side::Inside, &with_ttl(&udp_with("10.0.0.5:4000", REMOTE, &[0xa5; 1000]), 1));
    let (_, _, told) = lab.sent.pop().unwrap();
    assert_eq!(told[24..28], [0; 4]);
}
