//! Hairpinned packets when several engines share the work: one engine has the sender, another or
//! the same has the receiver. The sender's engine translates the sender's endpoint and returns
//! [`Verdict::HandOver`]; the receiver's engine translates the other endpoint here. Each such
//! packet takes both steps, even in a single engine, so that no engine needs to know the others'
//! state.

use super::Engine;
use super::plan::Plan;
use crate::Timestamp;
use crate::packet::{Direction, Packet, Side, Verdict};
use crate::parse::parse_turned;
use natgate_wire::{Delta, Ipv4};

impl Engine {
    /// Takes packets for which an engine of the same configuration returned [`Verdict::HandOver`],
    /// and sends them on to their receivers. The packets' realm is the realm of their sender.
    ///
    /// # Panics
    /// When the slices differ in length or hold more than [`Engine::MAX_BATCH`].
    pub fn process_turned(
        &mut self,
        now: Timestamp,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        assert!(packets.len() == verdicts.len() && packets.len() <= Self::MAX_BATCH);
        self.observe(now);
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            *verdict = self.complete_turned(packet);
        }
    }

    fn complete_turned(&mut self, packet: &mut Packet<'_>) -> Verdict {
        give_back_hop(packet.bytes_mut());
        let mut headers = match parse_turned(packet.bytes()) {
            Ok(headers) => headers,
            Err(reason) => {
                let fate = (Direction::Hairpin, Err(reason));
                return self.settle(packet, packet.len(), fate, 0);
            }
        };
        (headers.realm, headers.turned) = (packet.realm(), true);
        let from = Side::Inside;
        let mut plan = Plan::new(Direction::Hairpin, headers.realm);
        self.decide((packet.bytes(), &mut headers), from, &mut plan, |it| it.take_turned());
        self.carry_out(packet.bytes_mut(), &mut headers, from, &mut plan);
        self.settle(packet, packet.len(), (plan.direction, plan.fate), plan.leaving)
    }
}

/// Increments the TTL, which the sender's engine has decremented: a packet takes one hop.
fn give_back_hop(bytes: &mut [u8]) {
    let Ok(mut packet) = Ipv4::new_header_checked(bytes) else { return };
    let (old, protocol) = (packet.ttl(), u16::from(packet.protocol()));
    let new = old.saturating_add(1);
    packet.set_ttl(new);
    let words = (u16::from(old) << 8 | protocol, u16::from(new) << 8 | protocol);
    packet.update_checksum(Delta::NONE.replace_u16(words.0, words.1));
}
