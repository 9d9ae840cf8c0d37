//! All addresses, cut into runs by the prefixes of a table: addresses in a row with one longest
//! prefix. A look-up gives the whole run, so that it answers for further addresses, too.

use natgate_engine::Prefix;
use prefix_trie::PrefixMap;
use std::net::Ipv4Addr;

/// The longest prefix of an address: its length, and its target.
pub(super) type Best<T> = Option<(u8, T)>;

/// The runs of a table of prefixes.
#[derive(Debug)]
pub(super) struct Runs<T> {
    /// First address of each run, ascending. The first one is 0.
    first: Vec<u32>,
    /// Longest prefix of each run.
    best: Vec<Best<T>>,
}

impl<T: Copy> Runs<T> {
    /// Most prefixes that are laid out as runs.
    const MOST: usize = 1 << 14;

    /// Lays out a table; `None`: it has too many prefixes.
    pub(super) fn of(table: &PrefixMap<(u32, u8), T>) -> Option<Self> {
        if table.len() > Self::MOST {
            return None;
        }
        let mut runs = Self { first: vec![0], best: vec![None] };
        // Prefixes that contain the present address, the shortest first, with their last addresses.
        let mut open: Vec<(u32, (u8, T))> = Vec::new();
        for ((first, len), target) in table.iter() {
            runs.close(&mut open, Some(first));
            let last = Prefix::new(Ipv4Addr::from_bits(first), len).last();
            open.push((last, (len, *target)));
            runs.begin(first, Some((len, *target)));
        }
        runs.close(&mut open, None);
        Some(runs)
    }

    /// Ends the open prefixes that end before an address; `None`: all.
    fn close(&mut self, open: &mut Vec<(u32, (u8, T))>, before: Option<u32>) {
        while let Some((last, _)) =
            open.pop_if(|(last, _)| before.is_none_or(|before| *last < before))
        {
            if let Some(after) = last.checked_add(1) {
                self.begin(after, open.last().map(|(_, best)| *best));
            }
        }
    }

    /// Begins a run at an address, which is not before the first one of the latest run.
    fn begin(&mut self, first: u32, best: Best<T>) {
        if self.first.last() == Some(&first) {
            self.first.pop();
            self.best.pop();
        }
        self.first.push(first);
        self.best.push(best);
    }

    /// Has a run begin at an address.
    pub(super) fn cut(&mut self, at: u32) {
        if let Err(place) = self.first.binary_search(&at) {
            self.first.insert(place, at);
            self.best.insert(place, self.best[place - 1]);
        }
    }

    /// The run of an address: its first and its last address, and its longest prefix.
    pub(super) fn find(&self, address: u32) -> (u32, u32, Best<T>) {
        let after = self.first.partition_point(|first| *first <= address);
        let last = self.first.get(after).map_or(u32::MAX, |next| next - 1);
        (self.first[after - 1], last, self.best[after - 1])
    }
}
