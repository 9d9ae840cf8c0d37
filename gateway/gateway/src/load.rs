//! What a worker has done so far, for others to read at any time.

use crate::timing::{Timing, TimingNow};
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! load {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// What a worker has done so far. Only the worker itself writes, once a turn, so it shares
        /// no cache line (nor the next, which comes along) with what others write.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Load {
            $($(#[doc = $text])* pub(crate) $name: AtomicU64,)*
            /// How long things took.
            pub(crate) timing: Timing,
        }

        /// A [`Load`] at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LoadNow {
            $($(#[doc = $text])* pub $name: u64,)*
        }

        impl Load {
            /// What it is now.
            pub fn now(&self) -> LoadNow {
                LoadNow { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// How long things took until now.
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
    /// Nanoseconds since it began.
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
    /// Packets that were to be handed over when there was no room.
    hand_over_full,
    /// Packets taken over from other workers.
    taken_over,
    /// External ports that others gave it, of each protocol.
    ports_borrowed,
    /// External ports that it gave others.
    ports_lent,
    /// Mappings that it has.
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
