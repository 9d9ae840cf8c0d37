//! ICMP errors that pass (specification, section 6). An error belongs to the session of its
//! embedded packet, which went the other way.

use crate::bytes::{check_error, ends, ip, set_embedded};
use crate::points::DecisionPoints as _;
use crate::{Model, Packet};
use natgate_engine::{Direction, DropReason, Side};

impl Model {
    pub(crate) fn error(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        check_error(&packet.bytes)?; // 6.1
        match packet.from {
            Side::Inside => self.error_outbound(packet)?,
            Side::Outside => self.error_inbound(packet)?,
        }
        if packet.direction == Direction::Hairpin {
            self.error_inbound(packet)?; // 6.12
        }
        Ok(())
    }

    /// 6.4 and 6.8, from inside.
    fn error_outbound(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        let embedded = &packet.bytes[ip(&packet.bytes).header_len() + 8..];
        let protocol = ip(embedded).protocol();
        let (internal, far) = ends(embedded, Side::Outside);
        let original = self.original_of(protocol, packet.realm, internal, far); // 13.14
        let remote = original.unwrap_or(far);
        let key = self.key_of(protocol, packet.realm, internal, remote);
        let mapping = self.mappings.get(&key).ok_or(DropReason::IcmpNoSession)?;
        let session = mapping.sessions.get(&remote).ok_or(DropReason::IcmpNoSession)?;
        if session.seen != far {
            return Err(DropReason::IcmpNoSession);
        }
        set_embedded(&mut packet.bytes, Side::Inside, mapping.external);
        self.edit_error(packet, Side::Inside, remote, None);
        Ok(())
    }

    /// 6.4 and 6.7, from outside.
    fn error_inbound(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        let embedded = &packet.bytes[ip(&packet.bytes).header_len() + 8..];
        let (external, remote) = ends(embedded, Side::Inside);
        let key = self.mapping_behind(ip(embedded).protocol(), external, remote);
        let key = key.ok_or(DropReason::IcmpNoSession)?;
        let session = self.mappings[&key].sessions.get(&remote);
        let seen = session.ok_or(DropReason::IcmpNoSession)?.seen;
        let sender = match packet.direction {
            Direction::Hairpin => seen.address,
            _ => packet.seen.address,
        };
        let as_is = sender.to_bits() == ip(&packet.bytes).source();
        self.enter(packet, key.realm, true, as_is)?;
        if self.drops_error(sender, key, seen) {
            return Err(DropReason::Rule);
        }
        set_embedded(&mut packet.bytes, Side::Outside, key.internal);
        self.edit_error(packet, Side::Outside, seen, Some(sender));
        Ok(())
    }
}
