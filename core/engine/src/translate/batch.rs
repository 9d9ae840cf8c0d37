//! A batch of packets on its way through the stages.
//!
//! Four stages look at one group of packets after the other, each stage a group behind the one
//! before, so that the lines that a stage needs come from memory while other groups are looked at:
//!
//! 1. read the headers, and fetch the line of the index or of the external port;
//! 2. find the mapping's slot there, and fetch the mapping's line;
//! 3. of packets without a mapping, fetch what a new mapping will touch;
//! 4. translate.
//!
//! A stage fetches for its whole group at once, in a loop of few instructions: a processor has
//! several lines on their way only if it meets the loads close together.

use super::Engine;
use super::parsed::ParsedHeaders;
use super::quick::{self, NewFlow, Round, Tally};
use crate::packet::{Packet, Side, Verdict};
use alloc::vec;
use alloc::vec::Vec;

/// Packets that a stage looks at before the next has its turn. While the walks through the page
/// tables hit the caches, a short group keeps its own lines there. From [`LARGE`] mappings on they
/// miss: then more of them have to be on their way at a time.
const GROUP: usize = 8;
const LARGE_GROUP: usize = 16;
const LARGE: usize = 1 << 24;

/// Says whether a packet is of a control flow.
type Stops<'s> = &'s dyn Fn(&[u8]) -> bool;

/// Results of the stages for the packets of a batch. The space is kept from batch to batch, because
/// to make it anew takes longer than a packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspace {
    headers: Vec<ParsedHeaders>,
    flows: Vec<NewFlow>,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let (headers, flows) = (ParsedHeaders::OTHER, NewFlow::NONE);
        Self { headers: vec![headers; Engine::MAX_BATCH], flows: vec![flows; Engine::MAX_BATCH] }
    }
}

impl Engine {
    /// Translates a batch that came in on one side, as far as to a packet of a control flow, about
    /// which `stops` is asked. Returns the number of packets that are translated.
    pub(crate) fn take_batch(
        &mut self,
        from: Side,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        stops: Option<Stops<'_>>,
    ) -> usize {
        let is_large = self.table.count_dynamic_mappings() >= LARGE;
        match (from, is_large) {
            (Side::Inside, false) => {
                self.take_groups::<quick::Inside, GROUP>(packets, verdicts, stops)
            }
            (Side::Outside, false) => {
                self.take_groups::<quick::Outside, GROUP>(packets, verdicts, stops)
            }
            (Side::Inside, true) => {
                self.take_groups::<quick::Inside, LARGE_GROUP>(packets, verdicts, stops)
            }
            (Side::Outside, true) => {
                self.take_groups::<quick::Outside, LARGE_GROUP>(packets, verdicts, stops)
            }
        }
    }

    #[inline(never)]
    fn take_groups<F: quick::From, const GROUP: usize>(
        &mut self,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        stops: Option<Stops<'_>>,
    ) -> usize {
        let round = self.round::<F>();
        let mut tally = Tally::default();
        let mut workspace = core::mem::take(&mut self.workspace);
        let (all, mut taken) = (packets.len(), packets.len());
        let headers = &mut workspace.headers[..all];
        let flows = &mut workspace.flows[..all];
        // Stage n takes the packets from `ends[n]` to `ends[n - 1]`.
        let mut ends = [0; 5];
        // True if the group that comes to stage three, or to stage four, seems to begin flows.
        let (mut begins, mut began) = (false, false);
        while ends[3] < all {
            ends = [all.min(ends[0] + GROUP), ends[0], ends[1], ends[2], ends[3]];
            let [first, second, third, fourth, done] = ends;
            self.read_group::<F>(&packets[second..first], &mut headers[second..first]);
            let news = self.approach_group::<F>(
                &round,
                &mut headers[third..second],
                &mut flows[third..second],
            );
            if begins {
                self.prepare(&round, &headers[fourth..third], &mut flows[fourth..third]);
            }
            let group = &headers[done..fourth];
            let flows = began.then(|| &flows[done..fourth]);
            let packets = (&mut packets[done..fourth], &mut verdicts[done..fourth]);
            let finished =
                self.finish_group::<F>((&round, stops), (group, flows), packets, &mut tally);
            if finished < group.len() {
                taken = done + finished;
                break;
            }
            (begins, began) = (news, begins);
        }
        self.workspace = workspace;
        self.count_quick::<F>(tally, taken);
        taken
    }

    #[inline(always)]
    fn read_group<F: quick::From>(&self, packets: &[Packet<'_>], headers: &mut [ParsedHeaders]) {
        for (packet, headers) in packets.iter().zip(&mut *headers) {
            self.read::<F>(packet, headers);
        }
        headers.iter().for_each(|headers| self.fetch_place::<F>(headers));
    }

    /// Returns true if a packet seems to begin a flow.
    #[inline(always)]
    fn approach_group<F: quick::From>(
        &self,
        round: &Round,
        headers: &mut [ParsedHeaders],
        flows: &mut [NewFlow],
    ) -> bool {
        let mut news = false;
        for (headers, flow) in headers.iter_mut().zip(flows) {
            news |= self.approach::<F>(round, headers, flow);
        }
        headers.iter().for_each(|headers| self.fetch_mapping(headers));
        news
    }

    /// `flows`: what stage three found out, if the group seemed to begin flows. Returns the number
    /// of packets that are finished.
    #[inline(always)]
    fn finish_group<F: quick::From>(
        &mut self,
        (round, stops): (&Round, Option<Stops<'_>>),
        (headers, flows): (&[ParsedHeaders], Option<&[NewFlow]>),
        (packets, verdicts): (&mut [Packet<'_>], &mut [Verdict]),
        tally: &mut Tally,
    ) -> usize {
        let all = packets.len();
        let places = packets.iter_mut().zip(verdicts).zip(headers).enumerate();
        for (at, ((packet, verdict), headers)) in places {
            if self.quick::<F>(round, headers, packet, tally) {
                *verdict = Verdict::Forward(F::SIDE.other());
                continue;
            }
            let flow = flows.map(|flows| &flows[at]);
            match self.take_other::<F>((round, stops), (headers, flow), packet, tally) {
                Some(other) => *verdict = other,
                None => return at,
            }
        }
        all
    }

    /// Translates a packet that cannot go as one of an established session; `flow`: what stage
    /// three found out about it. `None`: the batch stops at this packet.
    #[inline(never)]
    fn take_other<F: quick::From>(
        &mut self,
        (round, stops): (&Round, Option<Stops<'_>>),
        (headers, flow): (&ParsedHeaders, Option<&NewFlow>),
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> Option<Verdict> {
        if F::SIDE == Side::Inside
            && headers.is_new()
            && let Some(flow) = flow
            && let Some(verdict) = self.quick_new(round, headers, flow, packet, tally)
        {
            return Some(verdict);
        }
        if stops.is_some_and(|stops| self.may_be_control(packet) && stops(packet.bytes())) {
            return None;
        }
        tally.others += 1;
        Some(self.complete(F::SIDE, packet))
    }
}
