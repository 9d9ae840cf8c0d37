//! The owner's state of a stream, which it sends every second, and the partner's answer.
//!
//! The state has the origin of the records, the owner's arithmetic, and the last loss of requested
//! mappings. Nothing in a record refers to it but times, so a state that comes late, or before a
//! reload, changes the meaning of no record. The answer says what the partner refuses to copy,
//! which loss it has heard of, and the last one that it knows.

use super::refusal::Refusal;
use crate::alg::AlgSums;
use crate::pcp::Told;
use natgate_engine::Arithmetic;
use std::time::Duration;

/// Bytes of an origin, behind which there may be what is told of control flows.
const ORIGIN: usize = 17;

/// Age of a doubt that there is not.
const NO_DOUBT: u64 = u64::MAX;

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
    /// Time of sending, nanoseconds of the owner's monotonic scale. The lowest bit stands for
    /// `is_sure`.
    pub(super) sent: u64,
    /// True if the owner lets nothing of a control flow out before the partner has it.
    pub(super) is_sure: bool,
    /// What the owner tells of control flows. Versions of the link before 5 do not read it.
    pub(super) controls: Option<Controls>,
}

/// What an owner tells of control flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Controls {
    /// Time for which the owner has not known all of the slice.
    pub(super) doubt: Option<Duration>,
    /// Sums over the settings of its gateways. Versions of the link before 6 do not read them.
    pub(super) gateways: Option<AlgSums>,
}

impl Controls {
    fn write(&self, bytes: &mut Vec<u8>) {
        let age = self.doubt.map_or(NO_DOUBT, |age| age.as_nanos() as u64);
        bytes.extend(age.to_le_bytes());
        self.gateways.iter().flatten().for_each(|sum| bytes.extend(sum.to_le_bytes()));
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (age, rest) = bytes.split_first_chunk()?;
        let age = u64::from_le_bytes(*age);
        let gateways = if rest.is_empty() { None } else { Some(read_sums(rest)?) };
        Some(Self { doubt: (age != NO_DOUBT).then(|| Duration::from_nanos(age)), gateways })
    }
}

fn read_sums(bytes: &[u8]) -> Option<AlgSums> {
    let (sums, odd) = bytes.as_chunks();
    let sums: Vec<u32> = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
    sums.try_into().ok().filter(|_| odd.is_empty())
}

impl<'a> State<'a> {
    /// The state as bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        let sent = self.sent & !1 | u64::from(!self.is_sure);
        let mut bytes = Vec::from(sent.to_le_bytes());
        put_loss(self.epoch, &mut bytes);
        self.arithmetic.write(&mut bytes);
        bytes.extend(self.origin);
        self.controls.iter().for_each(|controls| controls.write(&mut bytes));
        bytes
    }

    /// Reads a state. `None`: it is damaged.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (sent, rest) = bytes.split_first_chunk()?;
        let (epoch, rest) = read_loss(rest)?;
        let (arithmetic, rest) = rest.split_at_checked(Arithmetic::LEN)?;
        let arithmetic = Arithmetic::read(arithmetic)?;
        let (origin, controls) = rest.split_at(rest.len().min(ORIGIN));
        let controls = match controls {
            [] => None,
            told => Some(Controls::read(told)?),
        };
        let sent = u64::from_le_bytes(*sent);
        Some(Self { origin, arithmetic, epoch, sent: sent & !1, is_sure: sent & 1 == 0, controls })
    }
}

/// The partner's answer to a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Mark of the loss that the state told; 0: none.
    pub(super) heard: u64,
    /// The last loss of requested mappings that the partner knows.
    pub(super) epoch: Option<Told>,
    /// What the partner refuses to copy.
    pub(super) refusal: Refusal,
}

impl Answer {
    /// The answer as bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::from(self.heard.to_le_bytes());
        put_loss(self.epoch, &mut bytes);
        bytes.extend(self.refusal.write());
        bytes
    }

    /// Reads an answer. `None`: it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (heard, rest) = bytes.split_first_chunk()?;
        let (epoch, rest) = read_loss(rest)?;
        Some(Self { heard: u64::from_le_bytes(*heard), epoch, refusal: Refusal::read(rest)? })
    }
}

fn put_loss(loss: Option<Told>, bytes: &mut Vec<u8>) {
    let (age, mark) = loss.map_or((NO_LOSS, 0), |(age, mark)| (age.as_nanos() as u64, mark));
    bytes.extend(age.to_le_bytes());
    bytes.extend(mark.to_le_bytes());
}

fn read_loss(bytes: &[u8]) -> Option<(Option<Told>, &[u8])> {
    let (age, rest) = bytes.split_first_chunk()?;
    let (mark, rest) = rest.split_first_chunk()?;
    let (age, mark) = (u64::from_le_bytes(*age), u64::from_le_bytes(*mark));
    Some(((age != NO_LOSS).then(|| (Duration::from_nanos(age), mark)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        for (epoch, is_sure) in [(None, true), (Some((Duration::from_secs(3), 7)), false)] {
            let arithmetic = Arithmetic::default();
            let (origin, doubt) = (&[7; ORIGIN], epoch.map(|(age, _)| age));
            let gateways = Some(std::array::from_fn(|place| place as u32));
            let controls = (!is_sure).then_some(Controls { doubt, gateways });
            let state = State { origin, arithmetic, epoch, sent: 5, is_sure, controls };
            let bytes = state.write();
            let read = State::read(&bytes).expect("whole");
            assert_eq!((read.origin, read.epoch, read.sent), (&origin[..], epoch, 4));
            assert_eq!((read.is_sure, read.controls), (is_sure, controls));
            assert_eq!(read.arithmetic, state.arithmetic);
            let told = controls.map_or(0, |_| 8 + size_of::<AlgSums>());
            let rest = ORIGIN + told;
            let cut = |len| State::read(&bytes[..bytes.len() - len]);
            let controls = cut(told.saturating_sub(8)).expect("without sums").controls;
            assert!(controls.is_none_or(|controls| controls.gateways.is_none()));
            assert!((1..told).filter(|len| told - len != 8).all(|len| cut(len).is_none()));
            for len in 0..bytes.len() - rest {
                assert!(State::read(&bytes[..len]).is_none(), "{len}");
            }
            let refusal = Refusal { without_realm: 7, ..Refusal::default() };
            let answer = Answer { heard: 9, epoch, refusal };
            let bytes = answer.write();
            assert_eq!(Answer::read(&bytes), Some(answer));
            assert!((0..bytes.len()).all(|len| Answer::read(&bytes[..len]).is_none()));
        }
    }

    /// What a version of the link reads and writes behind the origin stays as it is.
    #[test]
    fn states_of_each_version_have_their_bytes() {
        let doubt = Some(Duration::from_nanos(0x0102));
        let gateways = Some(std::array::from_fn(|place| place as u32 + 1));
        let alone = [2_u8, 1, 0, 0, 0, 0, 0, 0];
        let mut with_sums = alone.to_vec();
        for place in 0..size_of::<AlgSums>() / 4 {
            with_sums.extend([place as u8 + 1, 0, 0, 0]);
        }
        let of_versions = [
            (4, None, vec![]),
            (5, Some(Controls { doubt, gateways: None }), alone.to_vec()),
            (6, Some(Controls { doubt, gateways }), with_sums),
        ];
        let head = 24 + Arithmetic::LEN + ORIGIN;
        for (version, controls, bytes) in of_versions {
            let (origin, arithmetic) = (&[7; ORIGIN][..], Arithmetic::default());
            let state = State { origin, arithmetic, epoch: None, sent: 4, is_sure: true, controls };
            let written = state.write();
            assert_eq!(written[..8], [4, 0, 0, 0, 0, 0, 0, 0], "{version}");
            assert_eq!(written[8..24], [[255_u8; 8], [0; 8]].concat(), "{version}");
            assert_eq!(written[head - ORIGIN..head], *origin, "{version}");
            assert_eq!(written[head..], bytes, "{version}");
            assert_eq!(State::read(&written).expect("whole").controls, controls, "{version}");
        }
    }
}
