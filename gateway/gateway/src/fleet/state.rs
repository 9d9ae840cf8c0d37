//! The owner's state of a stream, which it sends every second: the origin of the records, its
//! arithmetic, and the last loss of requested mappings. Nothing in a record refers to it but times,
//! so a state that comes late, or before a reload, changes the meaning of no record.

use crate::pcp::Told;
use natgate_engine::Arithmetic;
use std::time::Duration;

/// Age of a loss that there has not been.
const NO_LOSS: u64 = u64::MAX;

/// A state as the owner sends it.
pub(super) struct State<'a> {
    /// Origin of the records.
    pub(super) origin: &'a [u8],
    /// Sums of what gives ports to subscribers.
    pub(super) arithmetic: Arithmetic,
    /// The last loss of requested mappings.
    pub(super) epoch: Option<Told>,
    /// Time of sending, nanoseconds of the owner's monotonic scale.
    pub(super) sent: u64,
}

impl<'a> State<'a> {
    /// The state as bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        let (age, mark) =
            self.epoch.map_or((NO_LOSS, 0), |(age, mark)| (age.as_nanos() as u64, mark));
        let mut bytes = Vec::new();
        [self.sent, age, mark].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        self.arithmetic.write(&mut bytes);
        bytes.extend(self.origin);
        bytes
    }

    /// Reads a state. `None`: it is damaged.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (sent, rest) = bytes.split_first_chunk()?;
        let (age, rest) = rest.split_first_chunk()?;
        let (mark, rest) = rest.split_first_chunk()?;
        let (arithmetic, origin) = rest.split_at_checked(Arithmetic::LEN)?;
        let (age, mark) = (u64::from_le_bytes(*age), u64::from_le_bytes(*mark));
        Some(Self {
            origin,
            arithmetic: Arithmetic::read(arithmetic)?,
            epoch: (age != NO_LOSS).then(|| (Duration::from_nanos(age), mark)),
            sent: u64::from_le_bytes(*sent),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        for epoch in [None, Some((Duration::from_secs(3), 7))] {
            let state =
                State { origin: b"origin", arithmetic: Arithmetic::default(), epoch, sent: 5 };
            let bytes = state.write();
            let read = State::read(&bytes).expect("whole");
            assert_eq!((read.origin, read.epoch, read.sent), (&b"origin"[..], epoch, 5));
            assert_eq!(read.arithmetic, state.arithmetic);
            for len in 0..bytes.len() - 6 {
                assert!(State::read(&bytes[..len]).is_none(), "{len}");
            }
        }
    }
}
