//! The way of a batch of packets of both families through a worker.

use super::{Families, Passage};
use crate::worker::stages::{NO_VERDICTS, Packets, Stages};
use natgate_engine::{Side, Timestamp};
use natgate_io::{Frame, HEADROOM, Transmit};
use natgate_ipv6::softwire::PlainPacket;

impl Stages {
    /// Takes packets of either family through all stages. A gateway for IPv4 alone never comes
    /// here, and one for both always does.
    #[cold]
    #[inline(never)]
    pub(in crate::worker) fn carry_both(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        self.carry_families(now, from, packets, transmitters);
    }

    #[inline(never)]
    fn carry_families(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut families) = self.families.take() else { return };
        families.take_bindings();
        families.translator.give_plain(self.algs.is_some() || self.tunnel.is_some());
        let translator = &families.translator;
        // The question whose a packet is looks at the same lines of memory.
        translator.prepare(from, packets.frames.iter().map(|frame| frame.bytes()));
        let (mut claimed, mut rest) =
            packets.divide(|bytes, realm| translator.claims(from, realm, bytes));
        if from == Side::Inside && self.algs.is_some() {
            self.families = Some(families);
            self.carry_controls_of_hosts(now, &mut claimed, transmitters);
            let Some(taken) = self.families.take() else { return };
            families = taken;
        }
        if !claimed.is_empty() {
            let mut passage = Passage::new(self, &mut families, now, transmitters);
            passage.take_claimed(from, &mut claimed);
            passage.flush();
        }
        if self.algs.is_some() {
            self.families = Some(families);
            self.carry_controls(now, from, &mut rest, transmitters);
            let Some(taken) = self.families.take() else { return };
            families = taken;
        }
        let rest = self.carry_changed(&mut families, now, from, rest, transmitters);
        self.carry_rest(&mut families, now, from, rest, transmitters);
        let plain = std::iter::from_fn(|| families.translator.poll_plain());
        let plain: Vec<PlainPacket> = plain.collect();
        self.families = Some(families);
        if !plain.is_empty() {
            self.carry_plain(now, plain, transmitters);
        }
    }

    /// Takes packets of tunnels that came in pieces as if they had come whole: they may be of the
    /// other node of a pair, and gateways read them.
    #[cold]
    fn carry_plain(
        &mut self,
        now: Timestamp,
        packets: Vec<PlainPacket>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        for plain in packets {
            let mut buffer = [&[0; HEADROOM], plain.bytes()].concat();
            self.name_no_source((Side::Inside, 0), &mut buffer, HEADROOM);
            let end = buffer.len();
            let mut packets = Packets::one(Frame::of(&mut buffer, HEADROOM, end), 0);
            if self.tunnel.is_some() {
                self.pass_on(now, Side::Inside, &mut packets);
            }
            if packets.is_empty() {
                continue;
            }
            self.carry_both(now, Side::Inside, &mut packets, transmitters);
            if let Some(families) = &mut self.families {
                families.translator.count_beyond(&plain);
            }
        }
    }

    /// Takes the packets that the translator may have to change through all stages. Returns the
    /// others.
    fn carry_changed<'d>(
        &mut self,
        families: &mut Families,
        now: Timestamp,
        from: Side,
        mut packets: Packets<'d>,
        transmitters: &mut [&mut dyn Transmit],
    ) -> Packets<'d> {
        let translator = &families.translator;
        let may_change = |(bytes, _): (&[u8], u16)| translator.may_change(from, bytes);
        if !packets.views().any(may_change) {
            return packets;
        }
        let (mut changed, rest) = packets.divide(|bytes, _| translator.may_change(from, bytes));
        let mut passage = Passage::new(self, families, now, transmitters);
        passage.take_all(from, &mut changed);
        passage.flush();
        rest
    }

    /// Takes the packets of a batch that the engine takes together through all stages.
    fn carry_rest(
        &mut self,
        families: &mut Families,
        now: Timestamp,
        from: Side,
        mut rest: Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if !rest.is_empty() && self.captures.is_on() && !families.translator.realms().is_empty() {
            // A capture has packets to hosts with numbers as they leave.
            let mut passage = Passage::new(self, families, now, transmitters);
            passage.take_all(from, &mut rest);
            passage.flush();
        } else if !rest.is_empty() {
            let mut passage = Passage::new(self, families, now, transmitters);
            let mut verdicts = NO_VERDICTS;
            passage.stages.translate(now, from, &mut rest, &mut verdicts);
            passage.send_to_hosts(from, &mut rest, &mut verdicts);
            self.deliver(now, from, (&mut rest, &verdicts), transmitters);
        }
    }
}
