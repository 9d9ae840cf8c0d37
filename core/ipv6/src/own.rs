//! The own addresses of the gateway; packets that it refuses, and its own errors about them.

use crate::convert::{ErrorMessage, Refusal};
use crate::translator::{Fate, Translator};
use natgate_engine::{Direction, Packet, Side, Timestamp};
use natgate_wire::Ipv6;

impl Translator {
    /// Counts a packet of `len` bytes as dropped, and sends the error that its refusal asks for.
    pub(crate) fn refuse(
        &mut self,
        now: Timestamp,
        from: Side,
        packet: &Packet<'_>,
        len: usize,
        Refusal { reason, error }: Refusal,
    ) -> Fate {
        self.counters.count_drop(Direction::forwarded(from, from.other()), reason, len);
        if let Some(message) = error {
            self.send_error(now, from, packet.bytes(), message);
        }
        Fate::Nothing
    }

    /// Sends an error about a packet as received, to the side that it came from.
    pub(crate) fn send_error(
        &mut self,
        now: Timestamp,
        from: Side,
        packet: &[u8],
        message: ErrorMessage,
    ) {
        //= rfc7915#section-4.4-configure
        //= rfc7915#section-5.4-configure
        if !self.sends_errors(from) {
            self.errors.suppressed += 1;
            return;
        }
        if packet.first().is_some_and(|first| first >> 4 == 6) {
            let source = self.own_ipv6(from);
            self.errors.send_ipv6(now.0, from, source, message, packet);
            return;
        }
        match self.error_source_ipv4(from) {
            Some(source) => {
                let mtu = self.mtus[from as usize];
                self.errors.send_ipv4(now.0, (from, mtu), source, message, packet);
            }
            None => self.errors.suppressed += 1,
        }
    }

    /// Counts a packet to an address of the gateway's as dropped, and sends the error that its
    /// refusal asks for.
    #[cold]
    pub(crate) fn refuse_own(
        &mut self,
        (now, from, direction): (Timestamp, Side, Direction),
        packet: &[u8],
        Refusal { reason, error }: Refusal,
    ) {
        self.counters.count_drop(direction, reason, packet.len());
        if let Some(message) = error {
            self.answer_own(now, from, packet, message);
        }
    }

    /// True if an own address tells the senders of a side what it does not understand. The ends of
    /// tunnels answer nobody outside.
    pub(crate) fn is_answering(&self, from: Side, address: u128) -> bool {
        from == Side::Inside || self.own_addresses().contains(&Some(address))
    }

    /// Sends an ICMPv6 error about a packet, from the address that the packet went to.
    //= rfc4443#section-2.2-a
    pub(crate) fn answer_own(
        &mut self,
        now: Timestamp,
        from: Side,
        packet: &[u8],
        message: ErrorMessage,
    ) {
        let Ok(header) = Ipv6::new_header_checked(packet) else { return };
        let own = header.destination();
        match self.sends_errors(from) {
            _ if !self.is_answering(from, own) => {}
            true => self.errors.send_ipv6(now.0, from, Some(own), message, packet),
            false => self.errors.suppressed += 1,
        }
    }

    /// True if a packet that came in on a side is for the gateway itself. From outside, the ends of
    /// tunnels are own addresses: what is routed to them would come back as a customer's.
    pub(crate) fn is_local(&self, from: Side, destination: u128) -> bool {
        let is_end = || {
            let softwires = self.softwires.as_ref();
            let is_end = softwires.is_some_and(|softwires| softwires.is_tunnel_end(destination));
            is_end || self.is_aftr(destination)
        };
        self.own_addresses().contains(&Some(destination)) || from == Side::Outside && is_end()
    }

    /// Own addresses, inside and outside.
    #[inline]
    pub(crate) fn own_addresses(&self) -> [Option<u128>; 2] {
        self.settings.own_addresses()
    }

    /// True if errors of the gateway's own are sent to a side.
    pub(crate) fn sends_errors(&self, side: Side) -> bool {
        match side {
            Side::Inside => self.settings.inside.icmp_errors,
            Side::Outside => self.settings.outside.icmp_errors,
        }
    }

    /// The source of ICMPv6 errors that leave by a side.
    pub(crate) fn own_ipv6(&self, side: Side) -> Option<u128> {
        let [inside, outside] = self.own_addresses();
        match side {
            Side::Inside => inside.or(outside),
            Side::Outside => outside.or(inside),
        }
    }

    /// The source of ICMP errors that leave by a side.
    pub(crate) fn error_source_ipv4(&self, side: Side) -> Option<u32> {
        let siit = self.settings.siit.as_ref();
        let stand_in = match side {
            Side::Inside => Some(crate::nat64::DUMMY),
            Side::Outside => siit.and_then(|siit| Some(siit.icmp_source_ipv4.first()?.to_bits())),
        };
        self.own_ipv4[side as usize].or(stand_in)
    }
}
