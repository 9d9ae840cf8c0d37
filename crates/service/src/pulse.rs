//! Whether all workers make progress.
//!
//! Each worker has a count that moves with every turn of its loop, at least once a second even if no packet
//! comes. Who looks remembers the counts as of the last time that all had moved, and says so again when all
//! have moved since. How often one looks does not matter then: looking twice within a turn is no false alarm.

/// What was seen of the workers.
#[derive(Debug, Default)]
pub struct Pulse {
    /// By worker, as of the last time that all had moved.
    seen: Vec<u64>,
}

impl Pulse {
    /// Looks at the workers' counts; those that have not moved since the last time that all had are
    /// `Err`. Workers that have joined begin at 0.
    ///
    /// # Errors
    /// The numbers of those that have not moved.
    pub fn look(&mut self, counts: &[u64]) -> Result<(), Vec<usize>> {
        self.seen.resize(counts.len(), 0);
        let pairs = self.seen.iter().zip(counts).enumerate();
        let still: Vec<usize> =
            pairs.filter(|(_, (seen, now))| seen == now).map(|(worker, _)| worker).collect();
        if !still.is_empty() {
            return Err(still);
        }
        self.seen.copy_from_slice(counts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_must_move() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.look(&[5, 7]), Ok(()));
        assert_eq!(pulse.look(&[6, 8]), Ok(()));
        assert_eq!(pulse.look(&[6, 9]), Err(vec![0]));
        assert_eq!(pulse.look(&[6, 9]), Err(vec![0]), "what moved once need not move again");
        assert_eq!(pulse.look(&[7, 9]), Ok(()));
    }

    #[test]
    fn a_worker_that_hangs_is_no_progress_however_often_one_looks() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.look(&[1]), Ok(()));
        for _ in 0..1000 {
            assert_eq!(pulse.look(&[1]), Err(vec![0]));
        }
        assert_eq!(pulse.look(&[2]), Ok(()));
    }

    #[test]
    fn who_joins_must_move_too() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.look(&[1]), Ok(()));
        assert_eq!(pulse.look(&[2, 0]), Err(vec![1]));
        assert_eq!(pulse.look(&[2, 4]), Ok(()));
        assert_eq!(pulse.look(&[]), Ok(()), "nobody is left to hang");
    }
}
