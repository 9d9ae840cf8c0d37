//! Which queues of an interface a device serves, and how it sends when that is none.

use super::transmit;
use crate::packet::Outlet;
use crate::{Frame, Lost};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Queues of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// These.
    Range(Range<u32>),
    /// Those of one of several workers, among whom the queues are shared out evenly: the first have
    /// one more, or one while others have none.
    Worker {
        number: usize,
        count: usize,
    },
}

impl Part {
    /// Which those are of an interface with so many; `None`: it has not all of them.
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

    /// The most queues that those can be.
    pub(super) fn most(&self, queues: u32) -> usize {
        self.of(queues).map_or(0, |range| range.len())
    }
}

/// What sends to a device that is there.
#[derive(Debug)]
pub(super) enum Sending {
    /// The rings of the first of its queues.
    Rings(transmit::Sender),
    /// A packet socket, where no queue is ours: each has one sender in AF_XDP, who serves it.
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

    /// Has the kernel send what is left.
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

    /// A descriptor that is never readable, where nothing is received; in error when the device is
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
