//! The sweep after a reconfiguration: every mapping is checked once, some at a time, and a mapping
//! that may not stay ends with its sessions. A packet for a mapping has it checked before its turn.

use super::{Departure, Permits};
use crate::endpoint::AddressPort;
use crate::engine::Engine;
use crate::timeouts::SETS;

/// Most mappings that one call of [`Engine::advance`] checks while full batches come, and while no
/// packets come. In between, it checks the more mappings the fewer packets come.
const ASKED_IN_BUSY_TIME: u32 = 32;
const ASKED_IN_IDLE_TIME: u32 = 512;
/// The count of a removal among these.
const REMOVAL: u32 = 8;
/// Slots of the table that one call looks at for each mapping that it may check.
const SLOTS_EACH: u32 = 4;
/// Each call forgets one in this number of the packets that came lately.
const FORGETTING: u32 = 8;

/// Mappings that a call checks if so many packets came lately.
fn asked_a_call(packets: u32) -> u32 {
    let full = Engine::MAX_BATCH as u32;
    let fewer = (ASKED_IN_IDLE_TIME - ASKED_IN_BUSY_TIME) * packets.min(full) / full;
    ASKED_IN_IDLE_TIME - fewer
}

/// Result of the check of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It stays.
    Stays,
    /// It has been removed.
    Gone,
    /// It may not stay, and some of its sessions have been removed. The others are still there.
    Going,
}

/// Progress of the checks since the last reconfiguration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    /// Conditions for mappings to stay. They are kept until the next reconfiguration.
    pub(super) permits: Option<Permits>,
    /// New number of each earlier set of timeouts.
    pub(super) sets: [u8; SETS],
    /// The next slot to look at, and the slot after the last.
    next: u32,
    end: u32,
    /// Packets that came before the last call, as far as they are not forgotten.
    lately: u32,
    /// Packets that have come since.
    taken: u32,
    pub(super) stayed: u64,
    pub(super) removed: [u64; Departure::ALL.len()],
}

impl Sweep {
    /// True if every mapping has been checked.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.end
    }

    /// Notes that a batch of packets has come.
    #[inline(always)]
    pub(crate) fn note_packets(&mut self, packets: u32) {
        self.taken = self.taken.saturating_add(packets);
    }
}

impl Engine {
    pub(super) fn begin_sweep(&mut self, permits: Permits) {
        self.table.begin_epoch();
        self.strangers = true;
        let end = self.table.extent();
        self.sweep = Sweep { permits: Some(permits), end, ..Sweep::default() };
        if end == 0 {
            self.end_sweep();
        }
    }

    fn end_sweep(&mut self) {
        // A host with a record now has mappings that may stay, so it is a subscriber, or rules
        // translate it.
        self.strangers = false;
    }

    /// Checks some of the mappings that have not been checked. Returns true if none is left.
    pub(crate) fn sweep_some(&mut self) -> bool {
        if self.sweep.is_done() {
            return true;
        }
        let lately = self.sweep.lately.min(Self::MAX_BATCH as u32);
        let lately = lately - lately.div_ceil(FORGETTING);
        self.sweep.lately = lately.max(core::mem::take(&mut self.sweep.taken));
        let most = asked_a_call(self.sweep.lately);
        let until = self.sweep.end.min(self.sweep.next + most * SLOTS_EACH);
        let mut asked = 0;
        while self.sweep.next < until && asked < most {
            let slot = self.sweep.next;
            if self.table.is_unasked(slot) {
                if !self.has_room_for_events() {
                    break;
                }
                let sessions = u32::from(self.table.mapping(slot).sessions);
                match self.ask_some(slot) {
                    Checked::Stays => asked += 1,
                    Checked::Gone => asked += REMOVAL + sessions,
                    Checked::Going => break,
                }
            }
            self.sweep.next += 1;
        }
        if self.sweep.is_done() {
            self.end_sweep();
        }
        self.sweep.is_done()
    }

    /// Checks an unchecked mapping. Removes it with its sessions if it may not stay. Returns true
    /// if it stays.
    #[cold]
    pub(crate) fn ask(&mut self, slot: u32) -> bool {
        self.keep_all_events(true);
        let mut checked = self.ask_some(slot);
        while checked == Checked::Going {
            checked = self.ask_some(slot);
        }
        self.keep_all_events(false);
        checked == Checked::Stays
    }

    /// [`Engine::ask`] in steps: a mapping with many sessions that may not stay loses some of them,
    /// and is unchecked as before.
    #[cold]
    pub(crate) fn ask_some(&mut self, slot: u32) -> Checked {
        let permits = self.sweep.permits.as_ref().expect("mappings are asked of a configuration");
        let realm = self.table.mapping(slot).host().realm();
        let why = self.judge(permits, self.rules_of(realm), slot, |asked, index| {
            let (host, AddressPort { port, .. }) = (asked.internal.host, asked.external);
            self.external.allows(asked.protocol, index, port, host)
        });
        match why {
            None => {
                self.sweep.stayed += 1;
                let answers = self.first_answers(slot);
                let mapping = self.table.mapping(slot);
                let (host, set) =
                    (mapping.host(), self.sweep.sets[usize::from(mapping.timeouts())]);
                if let Some(record) = self.subscribers.find(host) {
                    self.subscribers.settle(record);
                }
                self.table.set_timeouts(slot, set);
                self.table.set_asked(slot);
                self.set_answers(slot, answers);
                Checked::Stays
            }
            Some(_) if !self.discard_some(slot) => Checked::Going,
            Some(why) => {
                self.sweep.removed[why as usize] += 1;
                Checked::Gone
            }
        }
    }
}
