//! One TCP port of the gateway's own inside address for the program around the gateway, which has a
//! TCP stack of its own. No packet from outside gets there.

use crate::pcp::Admission;
use natgate_wire::{Ipv4, protocol};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Most packets that wait for the program.
const ROOM: usize = 64;

/// The TCP port, closed at first.
#[derive(Debug, Default)]
pub(crate) struct LocalTcpPort {
    port: Option<u16>,
    packets: VecDeque<Vec<u8>>,
}

impl LocalTcpPort {
    /// Opens the port.
    pub(crate) fn open(&mut self, port: u16) {
        self.port = Some(port);
    }

    /// True if a packet waits.
    pub(crate) fn has_next(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Returns the oldest packet that waits.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.packets.pop_front()
    }

    /// Takes a packet from realm 0 to the gateway itself, if it is for the port. `own` is the
    /// gateway's address in realm 0.
    pub(crate) fn take(&mut self, packet: &[u8], own: Option<Ipv4Addr>) -> Admission {
        if !self.port.is_some_and(|port| is_for(port, own, packet)) {
            return Admission::NoRequest;
        }
        if self.packets.len() == ROOM {
            return Admission::Refused;
        }
        self.packets.push_back(packet.to_vec());
        Admission::Waiting
    }
}

/// True if a packet is whole, of TCP, and for this port of this address.
fn is_for(port: u16, own: Option<Ipv4Addr>, packet: &[u8]) -> bool {
    let Ok(ip) = Ipv4::new_checked(packet) else { return false };
    !ip.is_fragment()
        && ip.protocol() == protocol::TCP
        && own.is_some_and(|own| own.to_bits() == ip.destination())
        && ip.payload().get(2..4) == Some(&port.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// First bytes of a segment.
    fn segment() -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let mut ip = Ipv4::init(&mut bytes[..], 20);
        ip.set_total_len(40);
        ip.set_ttl(64);
        ip.set_protocol(protocol::TCP);
        ip.set_source(0x0a00_0005);
        ip.set_destination(OWN.to_bits());
        ip.fill_checksum();
        bytes[22..24].copy_from_slice(&9464_u16.to_be_bytes());
        bytes
    }

    #[test]
    fn what_is_for_the_port_waits_and_no_more_than_there_is_room_for() {
        let mut port = LocalTcpPort::default();
        assert_eq!(port.take(&segment(), Some(OWN)), Admission::NoRequest, "it is closed");
        port.open(9464);
        let with = |at: usize, value: u8| {
            let mut bytes = segment();
            bytes[at] = value;
            bytes
        };
        for (at, value) in [(6, 0x20), (9, protocol::UDP), (19, 2), (23, 1)] {
            assert_eq!(port.take(&with(at, value), Some(OWN)), Admission::NoRequest, "byte {at}");
        }
        assert_eq!(port.take(&segment(), None), Admission::NoRequest);
        for _ in 0..ROOM {
            assert_eq!(port.take(&segment(), Some(OWN)), Admission::Waiting);
            assert!(port.has_next());
        }
        assert_eq!(port.take(&segment(), Some(OWN)), Admission::Refused);
        assert_eq!(port.next(), Some(segment()));
        assert_eq!(port.take(&segment(), Some(OWN)), Admission::Waiting);
    }
}
