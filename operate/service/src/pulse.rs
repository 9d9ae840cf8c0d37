//! Progress of workers.
//!
//! Each worker has a count that moves with every turn of its loop, at least once a second even if
//! no packet comes. A check compares the counts with those of the last check at which all had
//! moved. The rate of checks does not matter: two checks within one turn are no false alarm.

/// The counts of workers at the last check at which all had moved.
#[derive(Debug, Default)]
pub struct Pulse {
    /// The count of each worker.
    seen: Vec<u64>,
}

impl Pulse {
    /// Checks the workers' counts. Workers that have joined begin at 0.
    ///
    /// # Errors
    /// The numbers of the workers whose counts have not moved.
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
