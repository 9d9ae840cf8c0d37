//! Queues of an interface that a device serves, and sending for a device without queues.

use super::transmit;
use crate::packet::Outlet;
use crate::{Frame, Lost};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Queues of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Queues in a range.
    Range(Range<u32>),
    /// Queues of one of several workers. The queues are divided evenly: the first workers have one
    /// more, or one while others have none.
    Worker {
        number: usize,
        count: usize,
    },
}

impl Part {
    /// Range of the part in an interface of `queues` queues; `None` if the interface lacks some of
    /// them.
    pub(super) fn of(&self, queues: u32) -> Option<Range<u32>> {
        match self {
            Self::All => Some(0..queues),
            Self::Range(range) => (!range.is_empty() && range.end <= queues).then(|| range.clone()),
            Self::Worker { number, count } => {
                let before = |number: usize| (queues as usize * number).div_ceil(*count) as u32;
                Some(before(*number)..before(number + 1))
            }
        }
    }

    /// Largest number of queues of the part.
    pub(super) fn most(&self, queues: u32) -> usize {
        self.of(queues).map_or(0, |range| range.len())
    }
}

/// Sender of a device that exists.
#[derive(Debug)]
pub(super) enum Sending {
    /// The rings of the first of the device's queues.
    Rings(transmit::Sender),
    /// A packet socket, if the device serves no queue: AF_XDP permits one sender for each queue,
    /// and the queue's device is that sender.
    Packets(Outlet),
}

impl Sending {
    pub(super) fn transmit(&mut self, frames: &[Frame<'_>], counts: &mut transmit::Counts) -> Lost {
        match self {
            Self::Rings(sender) => sender.transmit(frames, counts),
            Self::Packets(outlet) => {
                let (lost, sent) = outlet.transmit(frames);
                counts.sent += sent.sent;
                counts.full += sent.full;
                counts.refused += sent.refused;
                lost
            }
        }
    }

    /// Makes the kernel send the remaining frames.
    pub(super) fn push(&mut self, longest: usize, counts: &mut transmit::Counts) {
        if let Self::Rings(sender) = self {
            sender.longest = longest;
            sender.push(counts);
        }
    }

    pub(super) fn zero_copy(&self) -> bool {
        matches!(self, Self::Rings(sender) if sender.zero_copy)
    }

    pub(super) fn close(self) {
        if let Self::Rings(sender) = self {
            sender.close();
        }
    }

    /// Descriptor of a device that receives nothing: never readable; in error when the device is
    /// down or gone.
    pub(super) fn quiet_descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Rings(_) => None,
            Self::Packets(outlet) => Some(outlet.descriptor()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shared_out_evenly_and_none_is_forgotten() {
        for (queues, count) in [(1, 1), (1, 2), (2, 2), (3, 2), (8, 3), (2, 5), (256, 64)] {
            let part = |number| Part::Worker { number, count }.of(queues).expect("a range");
            let mut next = 0;
            let mut lens = Vec::new();
            for number in 0..count {
                assert_eq!(part(number).start, next);
                next = part(number).end;
                lens.push(part(number).len());
            }
            assert_eq!(next, queues);
            assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1, "{lens:?}");
            assert!(lens[0] > 0, "the first has some");
        }
    }

    #[test]
    fn queues_that_are_not_there_are_not_had() {
        assert_eq!(Part::All.of(3), Some(0..3));
        assert_eq!(Part::Range(1..3).of(3), Some(1..3));
        assert_eq!(Part::Range(1..4).of(3), None);
        assert_eq!(Part::Range(2..2).of(3), None);
    }
}
