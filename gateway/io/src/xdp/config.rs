//! Memory of an AF_XDP device.

use crate::BATCH;

/// Sizes of the queues; a value out of range means the nearest in range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Frames that a receive queue holds, and that may wait to be sent: 256 to 16,384, rounded up
    /// to a power of two.
    pub frames: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { frames: 4096 }
    }
}

impl Config {
    /// Entries of each ring.
    pub(super) fn ring_len(&self) -> u32 {
        self.frames.clamp(256, 16_384).next_power_of_two() as u32
    }

    /// Most frames in use by a device of `queues` queues: those in each receive queue, a batch that
    /// is lent out, and those that wait to be sent.
    pub(super) fn frames_of(&self, queues: usize) -> usize {
        queues * self.ring_len() as usize + BATCH + self.ring_len() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_in_range() {
        let len = |frames| Config { frames }.ring_len();
        assert_eq!([0, 256, 300, 16_384, usize::MAX].map(len), [256, 256, 512, 16_384, 16_384]);
        assert_eq!(Config { frames: 256 }.frames_of(3), 4 * 256 + BATCH);
    }
}
