//! Views as bytes. Numbers are in little-endian order.
//!
//! The number of workers is the last byte. A node with one worker leaves it out: so it says what
//! earlier versions say, which have one worker.

use crate::ownership::{Claim, Holding, View};
use crate::sender::MOST_READERS;
use alloc::vec::Vec;

/// Bytes before the claims, and bytes of a claim.
const HEAD: usize = 28;
const CLAIM: usize = 9;

/// Most slices of a pair.
pub const MOST_SLICES: usize = 1024;

impl View {
    /// The view as bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + CLAIM * self.claims.len());
        bytes.extend(self.from.to_le_bytes());
        bytes.extend(self.to.to_le_bytes());
        bytes.extend(self.round.to_le_bytes());
        bytes.extend(self.answers.to_le_bytes());
        bytes.extend(self.shape.to_le_bytes());
        for Claim { epoch, holding } in &self.claims {
            bytes.extend(epoch.to_le_bytes());
            bytes.push(match holding {
                Holding::Nothing => 0,
                Holding::Mine => 1,
                Holding::Yours => 2,
                Holding::Theirs => 3,
            });
        }
        if self.workers > 1 {
            bytes.push(self.workers);
        }
        bytes
    }

    /// Reads a view. `None`: it is damaged.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (from, rest) = bytes.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        let (answers, rest) = rest.split_first_chunk()?;
        let (shape, rest) = rest.split_first_chunk()?;
        let (claims, odd) = rest.as_chunks::<CLAIM>();
        let workers = match odd {
            [] => 1,
            [workers] if (2..=MOST_READERS).contains(&usize::from(*workers)) => *workers,
            _ => return None,
        };
        if claims.len() > MOST_SLICES {
            return None;
        }
        let claim = |bytes: &[u8; CLAIM]| {
            let (epoch, holding) = bytes.split_first_chunk()?;
            let holding = match holding {
                [0] => Holding::Nothing,
                [1] => Holding::Mine,
                [2] => Holding::Yours,
                [3] => Holding::Theirs,
                _ => return None,
            };
            Some(Claim { epoch: u64::from_le_bytes(*epoch), holding })
        };
        Some(Self {
            from: u64::from_le_bytes(*from),
            to: u64::from_le_bytes(*to),
            round: u32::from_le_bytes(*round),
            answers: u32::from_le_bytes(*answers),
            shape: u32::from_le_bytes(*shape),
            workers,
            claims: claims.iter().map(claim).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn views_are_read_as_they_were_written() {
        let holdings = [Holding::Nothing, Holding::Mine, Holding::Yours, Holding::Theirs];
        let claims = holdings.map(|holding| Claim { epoch: 7 << 40, holding }).to_vec();
        let [from, to] = [1 << 33, 5];
        let view = View { from, to, round: 2, answers: 9, shape: 6, workers: 1, claims };
        let bytes = view.write();
        assert_eq!(View::read(&bytes), Some(view));
        for len in 0..bytes.len() {
            let is_whole = len >= HEAD && (len - HEAD).is_multiple_of(CLAIM);
            assert_eq!(View::read(&bytes[..len]).is_some(), is_whole, "{len}");
        }
        let mut wrong = bytes;
        wrong[HEAD + 8] = 4;
        assert_eq!(View::read(&wrong), None);
        assert_eq!(View::read(&vec![0; HEAD + CLAIM * (MOST_SLICES + 1)]), None);
    }

    #[test]
    fn a_view_tells_the_workers_if_there_are_several() {
        let claims = vec![Claim { epoch: 3, holding: Holding::Mine }];
        let one = View { from: 7, to: 5, round: 0, answers: 0, shape: 6, workers: 1, claims };
        let several = View { workers: 3, ..one.clone() };
        let bytes = several.write();
        assert_eq!(View::read(&bytes), Some(several));
        assert_eq!(bytes[..bytes.len() - 1], one.write(), "as a node with one worker");
        for wrong in [0, 1, 65, 255] {
            assert_eq!(View::read(&[one.write(), vec![wrong]].concat()), None, "{wrong}");
        }
        assert_eq!(View::read(&[one.write(), vec![2, 2]].concat()), None);
        let most = View { workers: 64, ..one };
        assert_eq!(View::read(&most.write()), Some(most));
    }
}
