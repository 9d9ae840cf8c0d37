//! Packets that the engine has translated for hosts with numbers: the hosts of a batch are fetched
//! before its packets are converted.

use crate::batch::GROUP;
use crate::convert::Cut;
use crate::realms::{HostKind, HostRealms};
use crate::translator::Translator;
use alloc::vec::Vec;
use core::mem;
use natgate_engine::{DropReason, Packet, Side, Verdict};

/// Offset of the destination in the IPv4 header, bytes.
const DESTINATION: usize = 16;

impl Translator {
    /// Converts the packets of a batch that the engine has translated for hosts with numbers, as
    /// [`Translator::convert_to_host`] does with each. `results` gets the result of each such
    /// packet, and `None` for the others.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn convert_to_hosts(
        &mut self,
        packets: &mut [Packet<'_>],
        verdicts: &[Verdict],
        results: &mut [Option<Result<Option<Cut>, DropReason>>],
    ) {
        assert!(packets.len() == verdicts.len() && packets.len() == results.len());
        results.fill(None);
        let mut hashes = mem::take(&mut self.run.hashes);
        let both = packets.iter().zip(verdicts.iter().copied());
        self.approach_receivers(both, &mut hashes);
        for (at, packet) in packets.iter_mut().enumerate() {
            self.fetch_receivers(at, &hashes);
            let Some((kind, hash)) = hashes.get(at).copied().flatten() else { continue };
            let is_done = kind == HostKind::Nat64
                && self.nat64.as_ref().is_some_and(|it| it.pass_to_host(packet, hash));
            let realm = packet.realm();
            results[at] = Some(match is_done {
                true => Ok(None),
                false => self.convert_to_host(realm, packet),
            });
        }
        self.run.hashes = hashes;
    }

    /// Tells the kind and the hash of each packet's receiver, if it is a host with a number, and
    /// fetches the place of the number in the index.
    pub(crate) fn approach_receivers<'p, 'b: 'p>(
        &self,
        packets: impl Iterator<Item = (&'p Packet<'b>, Verdict)>,
        hashes: &mut Vec<Option<(HostKind, u64)>>,
    ) {
        hashes.clear();
        if self.realms.is_empty() {
            return;
        }
        let approach = |(packet, verdict)| {
            let (kind, number) = receiver_in(self.realms, packet, verdict)?;
            Some((kind, self.hosts(kind)?.approach_number(number)))
        };
        hashes.extend(packets.map(approach));
    }

    /// Fetches the hosts with the hashes of packets after a place, some at a time.
    #[inline]
    pub(crate) fn fetch_receivers(&self, at: usize, hashes: &[Option<(HostKind, u64)>]) {
        if !at.is_multiple_of(GROUP) {
            return;
        }
        let from = if at == 0 { 0 } else { at + GROUP };
        for (kind, hash) in hashes.iter().take(at + 2 * GROUP).skip(from).flatten() {
            if let Some(hosts) = self.hosts(*kind) {
                hosts.fetch_number(*hash);
            }
        }
    }
}

/// Kind and number of the host that a packet goes to, if the engine sends the packet to a realm of
/// numbers.
#[inline]
fn receiver_in(
    realms: HostRealms,
    packet: &Packet<'_>,
    verdict: Verdict,
) -> Option<(HostKind, u32)> {
    if verdict != Verdict::Forward(Side::Inside) {
        return None;
    }
    Some((realms.kind(packet.realm())?, receiver(packet.bytes())?))
}

/// The destination of an IPv4 packet.
#[inline]
pub(crate) fn receiver(packet: &[u8]) -> Option<u32> {
    let destination = packet.get(DESTINATION..)?.first_chunk();
    destination.map(|octets| u32::from_be_bytes(*octets))
}
