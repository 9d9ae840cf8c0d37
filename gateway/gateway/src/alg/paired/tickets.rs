//! Packets that wait for the partner, and the tickets for which they wait.

use super::super::Stage;
use super::{Awaited, Paired, Waiting};
use natgate_engine::{Side, Timestamp};
use std::collections::hash_map::Entry;
use std::time::Duration;

/// Longest wait of a packet.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Most packets that wait, and their bytes.
const MOST_PACKETS: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// Most packets of one host inside.
const MOST_OF_HOST: usize = 32;

impl Stage {
    /// True if the packet in hand waits for the partner, and so do packets that it leads to.
    pub(crate) fn must_wait(&self) -> bool {
        self.paired.as_ref().is_some_and(|paired| paired.in_hand.is_some())
    }

    /// Keeps a translated packet that the packet in hand has become, or that it leads to. Without
    /// room it is dropped.
    pub(crate) fn keep(&mut self, now: Timestamp, to: (Side, u16), packet: &[u8]) {
        let Some(paired) = &mut self.paired else { return };
        let Some((ticket, host)) = paired.in_hand else { return };
        let bytes = paired.bytes + packet.len();
        let of_host = paired.packets.iter().filter(|one| one.host == host).count();
        let has_room = paired.packets.len() < MOST_PACKETS && of_host < MOST_OF_HOST;
        if has_room && bytes <= MOST_BYTES {
            paired.bytes = bytes;
            let packet = packet.to_vec();
            paired.packets.push_back(Waiting { ticket, host, since: now, to, packet });
        }
    }

    /// The packet in hand and all that it leads to has been kept or sent.
    pub(crate) fn let_go(&mut self) {
        if let Some(paired) = &mut self.paired {
            paired.in_hand = None;
        }
    }

    /// The next packet that waits no more: the side and realm to send it to, and its bytes. Packets
    /// that have waited too long are dropped.
    pub(crate) fn next_kept(&mut self, now: Timestamp) -> Option<((Side, u16), Vec<u8>)> {
        let paired = self.paired.as_mut()?;
        let Paired { packets, waits, bytes, .. } = paired;
        packets.retain(|one| {
            let stays = !waits.contains_key(&one.ticket) || now.since(one.since) <= LONGEST_WAIT;
            *bytes -= if stays { 0 } else { one.packet.len() };
            stays
        });
        let place = packets.iter().position(|one| !waits.contains_key(&one.ticket))?;
        let Waiting { to, packet, .. } = packets.remove(place)?;
        *bytes -= packet.len();
        Some((to, packet))
    }

    /// Drops the packets of some tickets.
    pub(crate) fn drop_kept(&mut self, tickets: &[u64]) {
        let Some(Paired { packets, bytes, .. }) = &mut self.paired else { return };
        packets.retain(|one| {
            let goes = tickets.contains(&one.ticket);
            *bytes -= if goes { one.packet.len() } else { 0 };
            !goes
        });
    }

    /// What new tickets wait for.
    pub(crate) fn new_tickets(&mut self) -> Vec<Awaited> {
        self.paired.as_mut().map_or(Vec::new(), |paired| std::mem::take(&mut paired.new))
    }

    /// One of the records that a ticket waits for has arrived, or cannot arrive.
    pub(crate) fn arrive(&mut self, ticket: u64) {
        let Some(paired) = &mut self.paired else { return };
        let Some((left, host)) = paired.waits.get_mut(&ticket) else { return };
        *left = left.saturating_sub(1);
        let (is_over, host) = (*left == 0, *host);
        if is_over {
            paired.waits.remove(&ticket);
            if let Entry::Occupied(mut of_host) = paired.of_hosts.entry(host) {
                *of_host.get_mut() -= 1;
                if *of_host.get() == 0 {
                    of_host.remove();
                }
            }
        }
    }
}
