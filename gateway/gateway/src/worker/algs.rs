//! Application-level gateways at work.
//!
//! A worker has this part only if the configuration turns a protocol on. Packets of a batch that
//! may be of a control flow are taken out, one by one, in their order. The engine then takes the
//! other packets together. Packets of one flow all go one of the two ways, so their order stays.
//!
//! Workers divide packets by the subscriber of their mapping before this stage. So both directions
//! of a control flow, and the expectations that it makes, are of one worker.

use super::stages::{NO_VERDICTS, Packets, Stages, seen};
use crate::alg::{AlgExpectation, Algs, Arrived};
use crate::link::Link;
use crate::tap::Moment;
use natgate_engine::{Side, Timestamp, Verdict};
use natgate_io::{BATCH, Frame, HEADROOM, Transmit};

const _: () = assert!(BATCH <= u64::BITS as usize);

impl Stages {
    /// Takes the packets of control flows out of a batch, through all stages.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_controls(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut algs) = self.algs.take() else { return };
        let mut claimed = 0_u64;
        for number in 0..packets.len() {
            if algs.stage.claims(from, packets.frames[number].bytes()) {
                claimed |= 1 << number;
                let (frame, realm) = packets.take(number);
                let arrived = Arrived { now, from, realm };
                self.carry_control(&mut algs, arrived, frame.bytes(), transmitters);
            }
        }
        if claimed != 0 {
            let mut number = 0;
            packets.frames.retain(|_| {
                number += 1;
                claimed >> (number - 1) & 1 == 0
            });
        }
        self.algs = Some(algs);
    }

    /// Takes a packet of a control flow through all stages.
    fn carry_control(
        &mut self,
        algs: &mut Algs,
        arrived: Arrived,
        packet: &[u8],
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Arrived { now, realm, .. } = arrived;
        if self.captures.is_on() {
            self.captures.before(std::iter::once((packet, realm)));
        }
        algs.buffer[HEADROOM..][..packet.len()].copy_from_slice(packet);
        let engine = (&mut self.engine, self.router.losses_mut());
        let decided = algs.take(engine, arrived, packet.len());
        let (verdict, realm, len) = decided.unwrap_or((Verdict::Held, realm, packet.len()));
        let frame = Frame::of(&mut algs.buffer, HEADROOM, HEADROOM + len);
        self.send_control(arrived, Packets::one(frame, realm), verdict, transmitters);
        self.send_of_algs(algs, now, transmitters);
    }

    /// Sends a packet on which the engine has decided.
    fn send_control(
        &mut self,
        Arrived { now, from, .. }: Arrived,
        mut packet: Packets<'_>,
        verdict: Verdict,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let mut verdicts = NO_VERDICTS;
        verdicts[0] = verdict;
        if self.captures.is_on() {
            let moment = Moment { now, from, turned: false };
            self.captures.after(moment, seen(&packet, &verdicts));
        }
        if verdict == Verdict::HandOver {
            self.turn_over_some(now, &mut packet, &mut verdicts);
        }
        let realm = packet.frames[0].realm();
        match verdicts[0] {
            Verdict::Forward(side) if self.is_of_hosts(side, realm) => {
                self.send_made_to_host(now, packet.frames[0].bytes(), transmitters);
            }
            _ => self.deliver(now, from, (&mut packet, &verdicts), transmitters),
        }
    }

    /// Sends the framework's own packets.
    fn send_of_algs(
        &mut self,
        algs: &mut Algs,
        now: Timestamp,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Algs { stage, buffer, .. } = algs;
        while let Some((side, realm, len)) = stage.poll_transmit(
            &mut self.engine,
            now,
            &mut buffer[HEADROOM..],
            self.router.losses_mut(),
        ) {
            self.send_own(now, Link::new(side, realm), (buffer, len), transmitters);
        }
    }

    /// Forgets old control flows and expectations.
    pub(super) fn sweep_algs(&mut self, now: Timestamp) {
        if let Some(algs) = &mut self.algs {
            algs.stage.sweep(&mut self.engine, now);
            self.algs_aside.put(&mut self.algs);
        }
    }

    /// Returns the expectations that packets have made.
    pub(super) fn expectations_made(&mut self) -> impl Iterator<Item = AlgExpectation> + '_ {
        let algs = self.algs.iter_mut();
        algs.flat_map(|algs| std::iter::from_fn(|| algs.stage.poll_expectation()))
    }
}
