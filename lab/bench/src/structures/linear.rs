//! The paper's baseline: an array of records, searched from the first.

use super::Structure;
use super::record::{External, Key, Record};
use crate::memory::touched;

pub(super) struct Linear(Vec<Record>);

impl Structure for Linear {
    fn with_capacity(sessions: usize) -> Self {
        Self(touched(sessions, Record::default()))
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        if let Some(external) = self.0.iter_mut().find_map(|record| record.refresh(key, now)) {
            return external;
        }
        let external = make();
        self.0.push(Record::new(key, external, now));
        external
    }
}
