//! Packets of the program around the gateway: to its TCP port, and sent by the gateway's router.

use super::stages::{Output, Stages, transmitters};
use super::{LONGEST, Worker};
use crate::link::Link;
use crate::router::{Fate, Onward};
use natgate_engine::Timestamp;
use natgate_io::{Frame, HEADROOM, Transmit};
use std::net::Ipv4Addr;

impl Worker {
    /// True if a packet to an address would be sent at once. If only the neighbour's hardware
    /// address is missing, the router asks for it.
    pub fn is_reachable(&mut self, now: Timestamp, link: Link, to: Ipv4Addr) -> bool {
        if !self.devices[self.stages.cables.device_of(link)].link().up {
            return false;
        }
        let router = &mut self.stages.router;
        match router.onward(link, to, 0, false) {
            Onward::Hop { mac: Some(_), .. } => true,
            Onward::Hop { address, mac: None, .. } => {
                router.seek(now, link, address);
                false
            }
            Onward::NoRoute | Onward::Everybody => false,
        }
    }

    /// Sends a whole IP packet of the program by a link, untranslated.
    ///
    /// # Panics
    /// If the packet is longer than 65,535 bytes.
    pub fn send(&mut self, now: Timestamp, link: Link, packet: &[u8]) -> Fate {
        assert!(packet.len() <= LONGEST, "no packet is longer");
        let Self { stages, devices, scratch, .. } = self;
        scratch[HEADROOM..][..packet.len()].copy_from_slice(packet);
        stages.send_own(now, link, (scratch, packet.len()), &mut transmitters(devices))
    }

    /// Keeps packets to a TCP port of the gateway's own inside address for the program, up to 64 at
    /// a time.
    pub fn open_door(&mut self, port: u16) {
        self.stages.local_tcp.open(port);
    }

    /// True if such a packet waits.
    pub fn has_visitor(&self) -> bool {
        self.stages.local_tcp.has_next()
    }

    /// Returns the next packet to that port, from its IP header on.
    pub fn visitor(&mut self) -> Option<Vec<u8>> {
        self.stages.local_tcp.next()
    }

    /// Largest packet that leaves by a link in one piece, bytes.
    pub fn mtu(&self, link: Link) -> usize {
        self.stages.router.mtu(link)
    }

    /// The gateway's own address on a link.
    pub fn address(&self, link: Link) -> Ipv4Addr {
        self.stages.router.address(link)
    }
}

impl Stages {
    /// Sends a packet of `len` bytes that lies behind headroom.
    pub(super) fn send_own(
        &mut self,
        now: Timestamp,
        link: Link,
        (scratch, len): (&mut [u8], usize),
        transmitters: &mut [&mut dyn Transmit],
    ) -> Fate {
        let mut frame = Frame::of(scratch, HEADROOM, HEADROOM + len);
        if self.captures.is_on() {
            self.captures.leaving(now, link.side, frame.bytes());
        }
        let fate = self.router.send(now, link, &mut frame, None);
        if fate != Fate::Ready {
            return fate;
        }
        let mut output = Output::default();
        output.push(frame, None);
        let lost = self.send(&mut output, transmitters[self.cables.device_of(link)]);
        if lost.count() == 0 { Fate::Ready } else { Fate::Lost }
    }
}
