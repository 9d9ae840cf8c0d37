//! Fetches the lines of memory that the packets of a batch will need.
//!
//! The packets of a batch wait for memory together: first for the lines of keys, then for the
//! values.

use super::Softwires;
use super::bindings::{BindingTable, Wanted};
use super::tunnel::IPV4;
use crate::translator::Translator;
use natgate_engine::{Side, prefetch};
use natgate_wire::{ipv4, ipv6};

/// Offsets of the source and the destination in the IPv4 header, and of the ports behind it.
const ADDRESS: [usize; 2] = [12, 16];
const PORT: [usize; 2] = [ipv4::HEADER_LEN, ipv4::HEADER_LEN + 2];
/// Offset of the source in the IPv6 header.
const SOURCE_IPV6: usize = 8;
/// First byte of an IPv4 packet without options.
const PLAIN: u8 = 0x45;

/// Address and port of the customer's end of a packet, if it has the usual form. A wrong guess
/// costs a fetch in vain.
#[inline]
fn customer(from: Side, packet: &[u8]) -> Option<(u32, u16)> {
    let (end, packet) = match from {
        Side::Outside => (1, packet),
        Side::Inside => {
            let is_tunneled = packet.first()? >> 4 == 6 && *packet.get(6)? == IPV4;
            (0, packet.get(ipv6::HEADER_LEN..).filter(|_| is_tunneled)?)
        }
    };
    let headers = packet.first_chunk::<{ ipv4::HEADER_LEN + 4 }>().filter(|all| all[0] == PLAIN)?;
    let address = headers[ADDRESS[end]..][..4].try_into().ok()?;
    let port = headers[PORT[end]..][..2].try_into().ok()?;
    Some((u32::from_be_bytes(address), u16::from_be_bytes(port)))
}

impl Softwires {
    /// The place in the bindings that a packet will be looked up at.
    #[inline]
    fn wanted(&self, from: Side, packet: &[u8]) -> Option<(&BindingTable, Wanted)> {
        let bindings = &self.lw4o6.as_ref()?.bindings;
        let (ipv4, port) = customer(from, packet)?;
        let psid = bindings.sets(ipv4).set_of(port).filter(|_| bindings.may_have(ipv4))?;
        Some((bindings, bindings.wanted(ipv4, psid)))
    }
}

/// The IPv4 and the IPv6 address by which the rule of a packet's customer is found.
#[inline]
fn ruled(from: Side, packet: &[u8]) -> (Option<u32>, Option<u128>) {
    let customer = customer(from, packet).map(|(ipv4, _)| ipv4);
    let is_translated = from == Side::Inside && customer.is_none();
    let source = packet.get(SOURCE_IPV6..).and_then(|bytes| bytes.first_chunk());
    (customer, source.filter(|_| is_translated).map(|octets| u128::from_be_bytes(*octets)))
}

/// Packets that wait for memory together.
const GROUP: usize = 64;

/// Does a first step for each item, then a second step with the results of the first one, in
/// groups.
#[inline(always)]
fn in_two_steps<I, R: Copy>(
    mut items: impl Iterator<Item = I>,
    first: impl Fn(I) -> Option<R>,
    second: impl Fn(R),
) {
    let mut results = [None; GROUP];
    loop {
        let mut count = 0;
        for (result, item) in results.iter_mut().zip(items.by_ref().take(GROUP)) {
            *result = first(item);
            count += 1;
        }
        results[..count].iter().flatten().for_each(|result| second(*result));
        if count < GROUP {
            return;
        }
    }
}

impl Translator {
    /// Starts to fetch what the packets of a batch need, which came in on a side. Call it before
    /// [`Translator::claims`], which looks at the same memory.
    #[inline]
    pub fn prepare<'p>(&self, from: Side, packets: impl Iterator<Item = &'p [u8]> + Clone) {
        let Some(softwires) = &self.softwires else { return };
        if softwires.lw4o6.is_some() {
            let approach = |packet| {
                let (bindings, wanted) = softwires.wanted(from, packet)?;
                bindings.prefetch_key(wanted);
                Some((bindings, wanted))
            };
            in_two_steps(packets.clone(), approach, |(bindings, wanted)| {
                bindings.prefetch_value(wanted);
            });
        }
        let domains = &softwires.domains;
        if !domains.is_empty() {
            let approach = |packet| {
                let (ipv4, ipv6) = ruled(from, packet);
                let ipv4 = ipv4.filter(|ipv4| domains.may_have(*ipv4));
                let hashes = domains.hashes(ipv4, ipv6);
                domains.approach(hashes);
                Some(hashes)
            };
            in_two_steps(packets, approach, |hashes| {
                for place in domains.fetch(hashes).into_iter().flatten() {
                    prefetch(&softwires.counters, place + 1);
                }
            });
        }
    }
}
