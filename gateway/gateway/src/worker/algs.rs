//! Application-level gateways at work.
//!
//! A worker has this part only if the configuration turns a protocol on. The engine takes a batch,
//! and stops before each packet that may be of a control flow. So other packets pay nothing.
//!
//! A capture, and a gateway for both families, need to know beforehand whose a packet is. Then the
//! packets of control flows are first taken out of the batch, one by one, in their order, and the
//! engine takes the other packets together. Packets of one flow all go one of the two ways, so
//! their order stays.
//!
//! Workers divide packets by the subscriber of their mapping before this stage. So both directions
//! of a control flow, and the expectations that it makes, are of one worker.

use super::families::{Families, Passage};
use super::stages::{NO_VERDICTS, Packets, Stages, seen};
use crate::alg::{AlgExpectation, Algs, Arrived, HostEnds, Stage, Taken};
use crate::counters::Origin;
use crate::link::Link;
use crate::tap::Moment;
use natgate_engine::{Packet, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Batch, Frame, HEADROOM, Transmit};
use natgate_ipv6::convert::Cut;
use natgate_ipv6::{Departure, Fate, HostName};
use natgate_payload::{Fate as AlgFate, Room};

const _: () = assert!(BATCH <= u64::BITS as usize);

/// Stops of the engine in a batch before the other packets of control flows are searched for.
const MANY_STOPS: u32 = 4;

/// The first packet, from a place on, of which a condition holds.
#[inline(always)]
fn first(frames: &Batch<'_>, start: usize, is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let later = frames.iter().enumerate().skip(start);
    later.filter(|(_, frame)| is_it(frame.bytes())).map(|(number, _)| number).next()
}

/// The first packet, from a place on, that is of a control flow.
#[inline]
fn first_claimed(stage: &Stage, from: Side, frames: &Batch<'_>, start: usize) -> Option<usize> {
    first(frames, start, |packet| stage.claims(from, packet))
}

impl Stages {
    /// Takes the packets of a batch through all stages. The engine stops at packets of control
    /// flows. What it has looked at beyond a packet, it looks at again. So after some stops, the
    /// other packets of control flows are searched for.
    #[inline(never)]
    pub(super) fn carry_to_controls(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let (all, mut next) = (packets.len(), 0);
        let mut verdicts = NO_VERDICTS;
        for stops in 0.. {
            let Some(algs) = &self.algs else { break };
            let stage = &algs.stage;
            let engine = &mut self.engine;
            if stops >= MANY_STOPS {
                let claimed = first_claimed(stage, from, &packets.frames, next).unwrap_or(all);
                let part = next..claimed;
                engine.process(now, from, &mut packets.frames[part.clone()], &mut verdicts[part]);
                next = claimed;
            } else {
                let has_stop = |packet: &[u8]| stage.has_stop(from, packet);
                let certain =
                    cfg!(debug_assertions).then(|| first(&packets.frames, next, has_stop));
                let (frames, verdicts) = (&mut packets.frames[next..], &mut verdicts[next..all]);
                let is_control = |packet: &[u8]| stage.claims(from, packet);
                next += engine.process_to_control(now, from, frames, verdicts, &is_control);
                debug_assert!(certain.flatten().is_none_or(|certain| next <= certain), "it stops");
            }
            if next >= all {
                break;
            }
            // An empty frame stays in the place of the packet. It is skipped, as its verdict says.
            let (mut frame, realm) = packets.take(next);
            if !self.bars(now, from, &mut frame) {
                self.carry_claimed(Arrived { now, from, realm }, frame.bytes(), transmitters);
            }
            next += 1;
        }
        self.admit_newcomers(now, from, &mut packets.frames, &mut verdicts[..all]);
        if verdicts[..all].contains(&Verdict::HandOver) {
            self.turn_over_some(now, packets, &mut verdicts);
        }
        self.deliver(now, from, (packets, &verdicts), transmitters);
    }

    /// Takes a packet of a control flow through all stages.
    #[cold]
    #[inline(never)]
    fn carry_claimed(
        &mut self,
        arrived: Arrived,
        packet: &[u8],
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if let Some(mut algs) = self.algs.take() {
            self.carry_control(&mut algs, arrived, packet, transmitters);
            self.algs = Some(algs);
        }
    }

    /// Takes the packets of control flows out of a batch, through all stages. Nearly all batches
    /// have none.
    #[inline(never)]
    pub(super) fn carry_controls(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(algs) = &self.algs else { return };
        if let Some(first) = first_claimed(&algs.stage, from, &packets.frames, 0) {
            self.carry_controls_from(first, (now, from), packets, transmitters);
        }
    }

    /// Takes the packets of control flows out of a batch, of which the first one is known.
    #[cold]
    #[inline(never)]
    fn carry_controls_from(
        &mut self,
        first: usize,
        (now, from): (Timestamp, Side),
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut algs) = self.algs.take() else { return };
        let (mut claimed, mut next) = (0_u64, Some(first));
        while let Some(number) = next {
            claimed |= 1 << number;
            let (mut frame, realm) = packets.take(number);
            let arrived = Arrived { now, from, realm };
            if !self.bars(now, from, &mut frame) {
                self.carry_control(&mut algs, arrived, frame.bytes(), transmitters);
            }
            // The packet may have named flows that later packets belong to.
            next = first_claimed(&algs.stage, from, &packets.frames, number + 1);
        }
        let mut number = 0;
        packets.frames.retain(|_| {
            number += 1;
            claimed >> (number - 1) & 1 == 0
        });
        self.algs = Some(algs);
    }

    /// Takes the packets of control flows of hosts with numbers out of a batch, through all stages.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_controls_of_hosts(
        &mut self,
        now: Timestamp,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut algs) = self.algs.take() else { return };
        packets.frames.retain(|frame| {
            let claims = |families: &Families| {
                algs.stage.claims_of_host(&families.translator, frame.bytes())
            };
            let is_claimed = self.families.as_deref().is_some_and(claims);
            if is_claimed {
                self.carry_control_of_host(&mut algs, now, frame.bytes(), transmitters);
            }
            !is_claimed
        });
        self.algs = Some(algs);
    }

    /// Takes a packet of a control flow of a host with a number through all stages.
    fn carry_control_of_host(
        &mut self,
        algs: &mut Algs,
        now: Timestamp,
        packet: &[u8],
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut families) = self.families.take() else { return };
        let mut passage = Passage::new(self, &mut families, now, transmitters);
        passage.take_control(algs, packet);
        self.families = Some(families);
        self.send_of_algs(algs, now, transmitters);
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
        let translator = self.families.as_deref().map(|families| &families.translator);
        let tools = (&mut self.engine, translator, self.router.losses_mut());
        let decided = algs.take(tools, arrived, packet.len());
        let (mut verdict, realm, len) = decided.unwrap_or((Verdict::Held, realm, packet.len()));
        if let (Verdict::Forward(side), true) = (verdict, algs.stage.must_wait()) {
            algs.stage.keep(now, (side, realm), &algs.buffer[HEADROOM..HEADROOM + len]);
            verdict = Verdict::Held;
        }
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
                let own = (realm, packet.frames[0].bytes());
                self.send_made_to_host(now, own, transmitters);
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
            if stage.must_wait() {
                stage.keep(now, (side, realm), &buffer[HEADROOM..HEADROOM + len]);
            } else {
                self.send_made(now, (side, realm), (buffer, len), transmitters);
            }
        }
        stage.let_go();
    }

    /// Sends a packet of `len` bytes behind headroom that is translated.
    fn send_made(
        &mut self,
        now: Timestamp,
        (side, realm): (Side, u16),
        (buffer, len): (&mut [u8], usize),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if self.is_of_hosts(side, realm) {
            let packet = &buffer[HEADROOM..HEADROOM + len];
            self.send_made_to_host(now, (realm, packet), transmitters);
        } else {
            self.send_own(now, Link::new(side, realm), (buffer, len), transmitters);
        }
    }

    /// Sends the packets of control flows that have waited for the partner of a pair.
    pub(super) fn send_kept(&mut self, now: Timestamp, transmitters: &mut [&mut dyn Transmit]) {
        let Some(mut algs) = self.algs.take() else { return };
        let Algs { stage, buffer } = &mut *algs;
        while let Some((to, packet)) = stage.next_kept(now) {
            buffer[HEADROOM..][..packet.len()].copy_from_slice(&packet);
            self.send_made(now, to, (buffer, packet.len()), transmitters);
        }
        self.algs = Some(algs);
    }

    /// Forgets old control flows and expectations.
    pub(super) fn sweep_algs(&mut self, now: Timestamp) {
        if let Some(algs) = &mut self.algs {
            algs.stage.sweep(&mut self.engine, now);
            self.algs_aside.put(&mut self.algs);
        }
    }

    /// Returns the expectations that packets have made.
    pub(super) fn expectations_made(
        &mut self,
    ) -> impl Iterator<Item = (AlgExpectation, Option<HostName>)> + '_ {
        let Self { algs, families, .. } = self;
        let made =
            algs.iter_mut().flat_map(|algs| std::iter::from_fn(|| algs.stage.poll_expectation()));
        made.map(|made| {
            let families = families.as_deref();
            let name =
                |families: &Families| families.translator.host(made.realm, made.internal.address);
            (made, families.and_then(name))
        })
    }
}

/// Keeps a packet to the outside, or its fragments.
fn keep_some(stage: &mut Stage, now: Timestamp, packet: &[u8], cut: Option<Cut>) {
    let to = (Side::Outside, 0);
    let Some(cut) = cut else { return stage.keep(now, to, packet) };
    let mut fragments = cut.fragments(packet);
    let mut buffer = vec![0; cut.limit];
    while let Some(len) = fragments.write_next(&mut buffer) {
        stage.keep(now, to, &buffer[..len]);
    }
}

impl Passage<'_, '_, '_, '_> {
    /// Takes a packet of a call of PPTP in a tunnel, which the engine does not see. False: the
    /// packet is something else.
    fn take_call(&mut self, Algs { stage, buffer }: &mut Algs, packet: &[u8]) -> bool {
        let Self { stages, families, now, .. } = self;
        let (engine, translator, now) = (&mut stages.engine, &mut families.translator, *now);
        if !stage.has_tunneled_call((&*engine, &*translator), now, packet) {
            return false;
        }
        buffer[HEADROOM..][..packet.len()].copy_from_slice(packet);
        let mut inner = Packet::new(&mut buffer[..HEADROOM + packet.len()], HEADROOM);
        if !translator.take_out_of_tunnel(now, &mut inner) {
            return false;
        }
        let (start, len, realm) = (inner.start(), inner.len(), inner.realm());
        let mut room = Room::new(&mut buffer[start..], len);
        let arrived = Arrived { now, from: Side::Inside, realm };
        let losses = stages.router.losses_mut();
        let taken = stage.take_call_of(engine, arrived, (&mut room, packet.len()), losses);
        let end = start + room.bytes().len();
        let is_sent = matches!(taken, Some(Taken::Decided(..)));
        if stages.captures.is_on() {
            let verdict = if is_sent { Verdict::Forward(Side::Outside) } else { Verdict::Held };
            let moment = Moment { now, from: Side::Inside, turned: false };
            stages.captures.after(moment, std::iter::once((&buffer[start..end], verdict)));
        }
        if is_sent {
            let origin = Origin::forwarded(Side::Inside, Side::Outside, packet.len());
            let frame = Frame::of(buffer, start, end);
            self.send_now((Side::Outside, 0), frame, Some(origin));
        }
        self.settle();
        true
    }

    /// Takes a packet of a control flow from inside.
    fn take_control(&mut self, algs: &mut Algs, packet: &[u8]) {
        let before = self.sum();
        let is_watched = self.stages.captures.is_on();
        if is_watched {
            self.stages.captures.before(std::iter::once((packet, 0)));
        }
        if self.take_call(algs, packet) {
            return;
        }
        let Algs { stage, buffer } = algs;
        buffer[HEADROOM..][..packet.len()].copy_from_slice(packet);
        let ends = HostEnds::read(&self.families.translator, packet);
        let mut packet = Packet::new(&mut buffer[..HEADROOM + packet.len()], HEADROOM);
        let Self { stages, families, now, .. } = self;
        let (engine, translator) = (&mut stages.engine, &mut families.translator);
        let fate = translator.take(engine, *now, Side::Inside, &mut packet);
        let (start, mut end) = (packet.start(), packet.end());
        let mut is_held = false;
        if let (Fate::Send(Departure { side: Side::Outside, cut, .. }), Some(ends)) = (fate, ends) {
            let mut room = Room::new(&mut buffer[start..], end - start);
            let edited = stage.edit_of_host(engine, translator, *now, ends, &mut room);
            end = start + room.bytes().len();
            is_held = edited == AlgFate::Held;
            if !is_held && stage.must_wait() {
                keep_some(stage, *now, &buffer[start..end], cut);
                is_held = true;
            }
        }
        if is_watched {
            let verdict = if is_held { Verdict::Held } else { self.verdict(fate, &before) };
            let moment = Moment { now: self.now, from: Side::Inside, turned: false };
            self.stages.captures.after(moment, std::iter::once((&buffer[start..end], verdict)));
        }
        if let (Fate::Send(departure), false) = (fate, is_held) {
            let Departure { side, realm, cut, counted: (direction, outcome, len), .. } = departure;
            let origin = Some(Origin { direction, outcome, len });
            match cut {
                Some(cut) => self.send_cut((side, realm), cut, &buffer[start..end], origin),
                None => self.send_now((side, realm), Frame::of(buffer, start, end), origin),
            }
        }
        if let Fate::HandOver(realm) = fate {
            self.turn_over_made(realm, &buffer[start..end]);
        }
        self.settle();
    }
}
