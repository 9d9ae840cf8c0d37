//! Packets of the gateway's own making to hosts of NAT64 and DS-Lite.

use super::{Passage, ROOM};
use crate::worker::stages::Stages;
use natgate_engine::{Packet, Side, Timestamp};
use natgate_io::{Frame, Transmit};

impl Stages {
    /// Sends an IPv4 packet of the engine's own to a host with a number in a realm.
    pub(in crate::worker) fn send_made_to_host(
        &mut self,
        now: Timestamp,
        (realm, packet): (u16, &[u8]),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut families) = self.families.take() else { return };
        let mut buffer = std::mem::take(&mut families.buffer);
        buffer[ROOM..ROOM + packet.len()].copy_from_slice(packet);
        let mut passage = Passage::new(self, &mut families, now, transmitters);
        passage.send_to_host(realm, &mut buffer, packet.len());
        families.buffer = buffer;
        self.families = Some(families);
    }

    /// Sends an ICMP error of the IPv4 router's to a host with a number in a realm.
    pub(in crate::worker) fn send_error_to_host(
        &mut self,
        now: Timestamp,
        (realm, error): (u16, &[u8]),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut families) = self.families.take() else { return };
        let mut buffer = std::mem::take(&mut families.buffer);
        buffer[ROOM..ROOM + error.len()].copy_from_slice(error);
        let mut packet = Packet::new(&mut buffer[..ROOM + error.len()], ROOM);
        if families.translator.convert_own_to_host(realm, &mut packet).is_ok() {
            let (start, end) = (packet.start(), packet.end());
            let mut passage = Passage::new(self, &mut families, now, transmitters);
            passage.send_error(Side::Inside, Frame::of(&mut buffer, start, end));
        }
        families.buffer = buffer;
        self.families = Some(families);
    }
}
