//! Load counters of a worker, readable by other threads at any time.

use crate::timing::{Timing, TimingNow};
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! load {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// Load counters of a worker. Only the worker writes them, once a turn. They share no cache
        /// line (nor the adjacent line, which is prefetched with it) with data that other threads
        /// write.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Load {
            $($(#[doc = $text])* pub(crate) $name: AtomicU64,)*
            /// Durations of turns.
            pub(crate) timing: Timing,
        }

        /// A [`Load`] at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LoadNow {
            $($(#[doc = $text])* pub $name: u64,)*
        }

        impl Load {
            /// Reads the counters.
            pub fn now(&self) -> LoadNow {
                LoadNow { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// Reads the durations of turns.
            pub fn timing(&self) -> TimingNow {
                self.timing.now()
            }
        }

        impl LoadNow {
            /// Names and values, in order.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

load! {
    /// Nanoseconds since the worker began.
    age_ns,
    /// Nanoseconds of turns in which packets came.
    busy_ns,
    /// Nanoseconds asleep.
    asleep_ns,
    /// Turns in which packets came.
    bursts,
    /// Frames that came from devices.
    frames,
    /// Most frames of one turn.
    largest_burst,
    /// Packets handed over to other workers.
    handed_over,
    /// Packets that found no room to be handed over.
    hand_over_full,
    /// Packets taken over from other workers.
    taken_over,
    /// External ports received from other workers, of each protocol.
    ports_borrowed,
    /// External ports given to other workers.
    ports_lent,
    /// Mappings of the worker.
    mappings,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_writer::add;

    #[test]
    fn what_is_added_is_read() {
        let load = Load::default();
        add(&load.frames, 3);
        add(&load.frames, 4);
        assert_eq!(load.now(), LoadNow { frames: 7, ..LoadNow::default() });
        assert!(load.now().each().any(|(name, value)| (name, value) == ("frames", 7)));
    }
}
