//! IP protocol numbers with names, and these names for users: in filters, requests, answers and
//! logs alike.
//!
//! Input and output agree: [`number`] accepts everything that [`named`] shows.

use core::fmt;

/// Internet Control Message Protocol (RFC 792).
pub const ICMP: u8 = 1;
/// Transmission Control Protocol.
pub const TCP: u8 = 6;
/// User Datagram Protocol.
pub const UDP: u8 = 17;
/// Datagram Congestion Control Protocol.
pub const DCCP: u8 = 33;
/// Generic Routing Encapsulation.
pub const GRE: u8 = 47;
/// Encapsulating Security Payload.
pub const ESP: u8 = 50;
/// Internet Control Message Protocol for IPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
/// Stream Control Transmission Protocol.
pub const SCTP: u8 = 132;
/// UDP with partial checksums (RFC 3828).
pub const UDP_LITE: u8 = 136;

const NAMES: [(u8, &str); 7] = [
    (TCP, "tcp"),
    (UDP, "udp"),
    (ICMP, "icmp"),
    (DCCP, "dccp"),
    (GRE, "gre"),
    (ESP, "esp"),
    (SCTP, "sctp"),
];

/// Text for users about the input of [`number`].
pub const CHOICES: &str = "tcp, udp, icmp, dccp, gre, esp, sctp or a number up to 255";

/// The number of a protocol, from its name or its digits.
pub fn number(text: &str) -> Option<u8> {
    if let Some((number, _)) = NAMES.iter().find(|(_, name)| *name == text) {
        return Some(*number);
    }
    // The standard library would also accept a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Shows a protocol to users: its name, or its number in digits if it has no name.
pub fn named(number: u8) -> Named {
    Named(number)
}

/// A protocol to show; made by [`named`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named(u8);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_shown_is_read_again() {
        for protocol in 0..=255 {
            assert_eq!(number(&named(protocol).to_string()), Some(protocol));
            assert_eq!(number(&protocol.to_string()), Some(protocol));
        }
    }

    #[test]
    fn names_are_those_that_are_offered() {
        let offered = CHOICES.strip_suffix(" or a number up to 255").unwrap();
        assert!(offered.split(", ").eq(NAMES.iter().map(|(_, name)| *name)));
        assert_eq!(named(UDP_LITE).to_string(), "136");
    }

    #[test]
    fn nothing_else_is_read() {
        for text in ["", "TCP", "tcp ", "+6", "-1", "256", "0x11", "1e1", "udplite", "any", "٦"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }
}
