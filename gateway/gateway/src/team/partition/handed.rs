//! Export and adoption of the partition at a take-over. By arithmetic two processes have the same
//! partition at the start, but ports change hands, and workers that join get some of the
//! subscribers.

use super::{BUCKETS, Owners, Partition, Row, WORDS};
use crate::team::Division;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Partition {
    /// Runs of words that a worker owns of each address; possibly none.
    pub(in crate::team) fn all_owned(
        &self,
        worker: usize,
    ) -> impl Iterator<Item = (Ipv4Addr, Vec<Range<usize>>)> {
        let of = move |row: &Row| (Ipv4Addr::from_bits(row.address), row.owners.stretches(worker));
        self.rows.iter().map(of)
    }

    /// Exports the partition for the same number of workers in another process. `None` if a worker
    /// has joined since the start, and hosts of static mappings have owners that differ from the
    /// arithmetic.
    pub(crate) fn division(&self) -> Option<Division> {
        if self.has_grown && !self.hosts.is_empty() {
            return None;
        }
        let buckets = (0..BUCKETS).map(|bucket| self.buckets.of(bucket));
        let buckets = buckets.map(|(owner, former)| (owner as u8, former)).collect();
        let address = |(address, owners): (u32, &Arc<Owners>)| {
            let mut runs: Vec<(u16, u8)> = Vec::new();
            for word in 0..WORDS {
                let owner = owners.of(word) as u8;
                match runs.last_mut() {
                    Some((words, last)) if *last == owner => *words += 1,
                    _ => runs.push((1, owner)),
                }
            }
            (address, runs)
        };
        let rows = self.rows.iter().map(|row| (row.address, &row.owners));
        // The configuration of the other process may have them again.
        let all = rows.chain(self.left.each());
        Some(Division { buckets, addresses: all.map(address).collect() })
    }

    /// Adopts the partition of another process; addresses unknown there keep their owners. `None`
    /// if the number of workers differs, or the division is invalid.
    pub(crate) fn adopt(&self, division: &Division) -> Option<()> {
        let is_one = |owner: u8| usize::from(owner) < self.workers;
        let of_buckets = &division.buckets;
        let all = if self.workers == 64 { u64::MAX } else { (1 << self.workers) - 1 };
        let are_good = of_buckets.len() == BUCKETS
            && of_buckets.iter().all(|&(owner, former)| is_one(owner) && former & !all == 0);
        are_good.then_some(())?;
        for (_, runs) in &division.addresses {
            let words: usize = runs.iter().map(|&(words, _)| usize::from(words)).sum();
            (words == WORDS && runs.iter().all(|&(_, owner)| is_one(owner))).then_some(())?;
        }
        for (bucket, &(owner, former)) in of_buckets.iter().enumerate() {
            self.buckets.owners[bucket].store(owner, Ordering::Release);
            self.buckets.former[bucket].store(former, Ordering::Release);
        }
        for (address, runs) in &division.addresses {
            let mut first = 0;
            for &(words, owner) in runs {
                let words = first..first + usize::from(words);
                first = words.end;
                self.give(Ipv4Addr::from_bits(*address), words, owner.into());
            }
            if let (Some(row), [_]) = (self.row(*address), &runs[..]) {
                row.owners.split.store(false, Ordering::Relaxed);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{AddressRange, Config, PoolConfig};

    fn config() -> Config {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        Config {
            pools: vec![PoolConfig { addresses, ..PoolConfig::default() }],
            ..Config::default()
        }
    }

    fn owned(partition: &Partition) -> Vec<Vec<(Ipv4Addr, Vec<Range<usize>>)>> {
        (0..partition.workers).map(|worker| partition.all_owned(worker).collect()).collect()
    }

    #[test]
    fn another_process_has_what_changed_hands() {
        let (old, address) =
            (Partition::new(&config(), None, 2, None), Ipv4Addr::new(203, 0, 113, 1));
        old.give(address, 20..30, 1);
        old.give(address, 900..903, 0);
        let new = Partition::new(&config(), None, 2, None);
        assert_ne!(owned(&new), owned(&old));
        new.adopt(&old.division().unwrap()).unwrap();
        assert_eq!(owned(&new), owned(&old));
        // A worker that joins gets subscribers that the others may still have.
        let more = Partition::new(&config(), None, 3, Some(&old));
        more.welcome();
        let new = Partition::new(&config(), None, 3, None);
        new.adopt(&more.division().unwrap()).unwrap();
        let buckets =
            |of: &Partition| (0..BUCKETS).map(|one| of.buckets.of(one)).collect::<Vec<_>>();
        assert_eq!((owned(&new), buckets(&new)), (owned(&more), buckets(&more)));
    }

    #[test]
    fn what_cannot_be_is_not_adopted() {
        let (old, new) =
            (Partition::new(&config(), None, 3, None), Partition::new(&config(), None, 2, None));
        let before = owned(&new);
        assert_eq!(new.adopt(&old.division().unwrap()), None, "there is no third worker");
        assert_eq!(new.adopt(&Division::default()), None);
        let mut short = new.division().unwrap();
        short.addresses[0].1[0].0 -= 1;
        assert_eq!(new.adopt(&short), None);
        assert_eq!(owned(&new), before);
    }
}
