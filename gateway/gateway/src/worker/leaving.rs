//! Frames of a batch that leave, by device.

use crate::counters::Origin;
use crate::link::Link;
use crate::router::Router;
use crate::wiring::side_of;
use arrayvec::ArrayVec;
use natgate_engine::{DropReason, Side};
use natgate_io::{BATCH, Batch, Frame, Transmit};

/// Frames of a batch in a row that have their headers and leave by one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    /// Number of the first of them in the batch.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) device: usize,
    /// True if they are replies of the gateway itself.
    pub(super) is_reply: bool,
}

/// Frames of a batch that leave. The frames of one device are the first of the batch.
pub(super) struct Leaving<'d> {
    /// Side that the batch came from.
    from: Side,
    /// Device of the first frames.
    device: usize,
    /// Number of these frames.
    count: usize,
    /// Those of them that are replies of the gateway itself: bit `i` stands for frame `i`.
    replies: u64,
    /// Frames for other devices.
    pub(super) others: Vec<(usize, Output<'d>)>,
}

impl<'d> Leaving<'d> {
    /// No frames.
    pub(super) fn new(from: Side) -> Self {
        Self { from, device: 0, count: 0, replies: 0, others: Vec::new() }
    }

    /// Adds finished frames of a batch; frames come in order of their numbers.
    pub(super) fn add(&mut self, router: &Router, frames: &mut Batch<'d>, finished: Finished) {
        let Finished { first, count, device, is_reply } = finished;
        if self.count == 0 {
            self.device = device;
        }
        if device != self.device {
            for frame in &mut frames[first..first + count] {
                let origin = self.origin(router, device, is_reply, frame);
                self.other(device).push(std::mem::take(frame), Some(origin));
            }
            return;
        }
        if self.count != first {
            (0..count).for_each(|place| frames.swap(self.count + place, first + place));
        }
        self.replies |= u64::from(is_reply) << self.count;
        self.count += count;
    }

    /// Origin of the packet in a finished frame. Translation changes no length, and bytes behind
    /// the packet have been cut off.
    fn origin(&self, router: &Router, device: usize, is_reply: bool, frame: &Frame<'_>) -> Origin {
        let side = side_of(device);
        let header_len = router.header_len(Link::new(side, frame.realm()));
        let len = frame.len().saturating_sub(header_len);
        if is_reply { Origin::replied(len) } else { Origin::forwarded(self.from, side, len) }
    }

    /// Sends the first frames of a batch, which leave by one device, and notes the losses.
    pub(super) fn transmit(
        &self,
        router: &mut Router,
        frames: &mut Batch<'d>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if self.count == 0 {
            return;
        }
        let frames = &mut frames[..self.count];
        let lost = transmitters[self.device].transmit(frames);
        if lost.count() == 0 {
            return;
        }
        for (number, frame) in frames.iter().enumerate().filter(|(place, _)| lost.contains(*place))
        {
            let is_reply = self.replies >> number & 1 == 1;
            let origin = self.origin(router, self.device, is_reply, frame);
            router.note_loss(Some(origin), DropReason::TransmitFull);
        }
    }

    /// Frames that leave by another device than the first.
    #[cold]
    fn other(&mut self, place: usize) -> &mut Output<'d> {
        let known = self.others.iter().position(|(known, _)| *known == place);
        let at = known.unwrap_or_else(|| {
            self.others.push((place, Output::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }
}

/// Frames that leave by one device.
#[derive(Debug, Default)]
pub(super) struct Output<'d> {
    pub(super) frames: Batch<'d>,
    pub(super) origins: ArrayVec<Option<Origin>, BATCH>,
}

impl<'d> Output<'d> {
    pub(super) fn push(&mut self, frame: Frame<'d>, origin: Option<Origin>) {
        self.frames.push(frame);
        self.origins.push(origin);
    }
}
