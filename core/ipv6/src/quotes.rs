//! Packets from inside as received, as far as an own error of the engine quotes them. The engine
//! quotes the IPv4 packet that it got; the sender sent another one.

use alloc::vec::Vec;
use natgate_wire::ipv6::MIN_MTU;
use natgate_wire::{Icmp, Ipv4, icmpv6, ipv4, ipv6};

/// Longest quotation of an ICMPv6 error, bytes.
const LONGEST: usize = MIN_MTU - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;

/// Bytes of the IPv4 packet that every error quotes: the header, and eight behind it.
const HEAD: usize = ipv4::HEADER_LEN + 8;

/// The first bytes of an IPv4 packet.
pub(crate) type Head = [u8; HEAD];

/// A packet.
#[derive(Clone, Copy, Debug)]
struct Quote {
    from: usize,
    to: usize,
    /// First bytes of the IPv4 packet; `None`: all errors are about this packet.
    head: Option<Head>,
}

/// Packets that errors may be about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotes {
    bytes: Vec<u8>,
    quotes: Vec<Quote>,
}

impl Quotes {
    /// Forgets all packets.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.quotes.is_empty() {
            self.bytes.clear();
            self.quotes.clear();
        }
    }

    /// Adds a packet as received. `head`: first bytes of the IPv4 packet that the engine got;
    /// `None`: all errors are about this packet.
    pub(crate) fn add(&mut self, packet: &[u8], head: Option<Head>) {
        let from = self.bytes.len();
        self.bytes.extend(packet.iter().take(LONGEST));
        self.quotes.push(Quote { from, to: self.bytes.len(), head });
    }

    /// The packet that an ICMP error is about, as received.
    pub(crate) fn find(&self, error: &[u8]) -> Option<&[u8]> {
        let quoted = quoted(error);
        let is_it = |quote: &&Quote| quote.head.is_none_or(|head| quoted == Some(&head));
        let quote = self.quotes.iter().find(is_it)?;
        Some(&self.bytes[quote.from..quote.to])
    }
}

/// First bytes of the packet that an ICMP error quotes.
fn quoted(error: &[u8]) -> Option<&Head> {
    let header = Ipv4::new_checked(error).ok()?;
    let at = header.header_len();
    let message = Icmp::new_checked(error.get(at..usize::from(header.total_len()))?)?;
    let len = message.body().len();
    error.get(usize::from(header.total_len()) - len..)?.first_chunk()
}
