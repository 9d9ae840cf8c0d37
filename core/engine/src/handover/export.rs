//! The writing of records, some at a time.

use super::record::{
    HEAD, HOLD, HoldFields, Kind, LONGEST, MAPPING, MappingFields, OVERLOADS, PERMANENT, SESSION,
    STATIC, SessionFields, Writer, fingerprint, times_of,
};
use super::{KINDS, number_of};
use crate::DropReason;
use crate::config::Config;
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::external::HoldsCursor;
use crate::packet::{Direction, Outcome};
use crate::session::Parts;
use crate::sizes::Sizes;
use crate::table::SessionRef;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes that are enough for any record except a mapping and the first record.
const SMALL: usize = 16 << 10;

/// Result of a call of [`Engine::export`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The pass has more records.
    More,
    /// The pass has more records, and `out` has no room for them.
    Full,
    /// The pass is over.
    Done,
}

/// Stages of a pass, in order. Only the last pass has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Pass,
    Mappings,
    Held,
    Pairs,
    Blocks,
    Sequences,
    Counters,
    End,
    Over,
}

/// Progress of an export, and fingerprints of what has been written.
#[derive(Debug)]
pub struct Export {
    /// For each mapping's slot the fingerprint of its last record; 0: no record, or the record of
    /// its removal.
    marks: Vec<u64>,
    stage: Stage,
    is_last: bool,
    /// Position within the stage.
    next: u32,
    holds: HoldsCursor,
    /// Mappings written in this pass, removed ones included.
    written: u64,
    /// Mappings that this pass has visited.
    live: u64,
}

impl Export {
    /// Bytes of room that every call must find: enough for one record.
    pub const ROOM: usize = LONGEST + SMALL;

    /// Begins the export of an engine with a configuration. Takes eight bytes for each possible
    /// mapping.
    pub fn new(config: &Config) -> Self {
        let room = Sizes::new(config).room;
        Self {
            marks: vec![0; room.dynamic + room.fixed],
            stage: Stage::Begin,
            is_last: false,
            next: 0,
            holds: HoldsCursor::default(),
            written: 0,
            live: 0,
        }
    }

    /// Begins another pass over everything. During the last pass the engine must do nothing else.
    pub fn begin_pass(&mut self, is_last: bool) {
        self.is_last = is_last;
        (self.written, self.live) = (0, 0);
        if self.stage != Stage::Begin {
            self.enter(Stage::Pass);
        }
    }

    /// Mappings that this pass has written so far: new, changed and removed ones.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.next = 0;
    }
}

impl Engine {
    /// Appends records of the pass to `out` within its capacity. Looks at about `budget` mappings
    /// at most; each further session counts as one mapping.
    ///
    /// # Panics
    /// When `out` is empty and its capacity is less than [`Export::ROOM`].
    pub fn export(&self, export: &mut Export, out: &mut Vec<u8>, mut budget: u32) -> Exported {
        loop {
            if budget == 0 {
                return Exported::More;
            }
            if out.capacity() - out.len() < SMALL {
                return Exported::Full;
            }
            match export.stage {
                Stage::Begin => {
                    self.export_beginning(out);
                    export.enter(Stage::Pass);
                }
                Stage::Pass => {
                    let mut record = Writer::begin(out, Kind::Pass);
                    record.u64(self.now).u64(self.time_of(self.tick)).end();
                    self.external.begin_holds(&mut export.holds, self.tick);
                    export.enter(Stage::Mappings);
                }
                Stage::Mappings if export.next >= self.table.extent() => {
                    export.enter(Stage::Held);
                }
                Stage::Mappings => {
                    let slot = export.next;
                    let sessions = usize::from(self.table.mapping(slot).sessions);
                    let holds = self.holds_of(slot).count();
                    let room = out.capacity() - out.len();
                    if room < HEAD + MAPPING + sessions * SESSION + holds * HOLD {
                        assert!(!out.is_empty(), "there is room for any record");
                        return Exported::Full;
                    }
                    budget = budget.saturating_sub((sessions + holds).max(1) as u32);
                    self.export_mapping(export, slot, out);
                    export.next += 1;
                }
                Stage::Held => {
                    if !self.export_held(export, out) {
                        let next = if export.is_last { Stage::Pairs } else { Stage::Over };
                        export.enter(next);
                    }
                    budget -= 1;
                }
                Stage::Over => return Exported::Done,
                _ => {
                    self.export_rest(export, out);
                    budget -= 1;
                }
            }
        }
    }

    fn export_beginning(&self, out: &mut Vec<u8>) {
        let mut record = Writer::begin(out, Kind::Begin);
        record.u64(self.base()).u64(self.started().0).u64(self.now);
        record.u8(number_of(self.config.mapping));
        self.services.key().into_iter().for_each(|word| _ = record.u64(word));
        record.u16(self.config.realms.len() as u16);
        for realm in &self.config.realms {
            // A removed realm has no mappings.
            let name = if realm.gone { "" } else { &realm.name[..] };
            let name = &name.as_bytes()[..name.len().min(255)];
            record.u8(name.len() as u8).put(name);
        }
        record.u8(self.config.timeout_sets.len() as u8);
        for set in &self.config.timeout_sets {
            times_of(set).into_iter().for_each(|time| _ = record.u64(time));
        }
        record.end();
    }

    fn export_mapping(&self, export: &mut Export, slot: u32, out: &mut Vec<u8>) {
        // There may be more slots than the configuration says, if pools have been removed since the
        // start. Mappings in such slots are written in every pass.
        let mut none = u64::MAX;
        let mark = export.marks.get_mut(slot as usize).unwrap_or(&mut none);
        if !self.table.is_live(slot) {
            if core::mem::take(mark) != 0 {
                Writer::begin(out, Kind::Gone).u32(slot).end();
                export.written += 1;
            }
            return;
        }
        export.live += 1;
        let start = out.len();
        let mut record = Writer::begin(out, Kind::Mapping);
        self.write_mapping(slot, &self.mapping_fields(slot), &mut record);
        let now = fingerprint(record.end());
        if now == *mark {
            out.truncate(start);
        } else {
            *mark = now;
            export.written += 1;
        }
    }

    /// Begins the record of a mapping, and writes these fields of its own, its sessions and holds.
    pub(super) fn write_mapping(&self, slot: u32, fields: &MappingFields, record: &mut Writer<'_>) {
        fields.write(record);
        for session in self.table.sessions(slot) {
            self.session_fields(slot, session).write(record);
        }
        if fields.holds > 0 {
            self.holds_of(slot).for_each(|hold| hold.write(record));
        }
    }

    pub(super) fn mapping_fields(&self, slot: u32) -> MappingFields {
        let mapping = self.table.mapping(slot);
        let Internal { host, port } = mapping.internal();
        let External { index, port: external_port } = mapping.external();
        let overloads = !mapping.is_static() && mapping.shares_internal();
        MappingFields {
            number: slot,
            protocol: mapping.protocol,
            flags: [
                (mapping.is_static(), STATIC),
                (mapping.is_permanent(), PERMANENT),
                (overloads, OVERLOADS),
            ]
            .into_iter()
            .fold(0, |all, (is_so, flag)| if is_so { all | flag } else { all }),
            realm: host.realm(),
            internal: AddressPort::new(host.address(), port),
            external: AddressPort::new(self.external.address(index), external_port),
            timeouts: mapping.timeouts(),
            created: self.time_of(self.created(mapping)),
            remote: mapping.first.remote(),
            sessions: mapping.sessions,
            holds: if mapping.is_explicit() { self.holds_of(slot).count() as u16 } else { 0 },
        }
    }

    /// The holds on a mapping. A mapping without a request has none.
    pub(super) fn holds_of(&self, slot: u32) -> impl Iterator<Item = HoldFields> + '_ {
        let mapping = self.table.mapping(slot);
        let host = mapping.is_explicit().then(|| mapping.host());
        let all = host.into_iter().flat_map(|host| self.holds.of_subscriber(host));
        let of_mapping = all.map(|hold| self.holds.get(hold)).filter(move |hold| hold.slot == slot);
        of_mapping.take(usize::from(u16::MAX)).map(|hold| HoldFields {
            remote: hold.remote,
            nonce: hold.nonce,
            until: self.time_of(hold.until),
            filters: hold.filters,
        })
    }

    fn session_fields(&self, slot: u32, at: SessionRef) -> SessionFields {
        let session = self.table.session(at);
        let remote = session.remote();
        let Parts { expects, window, scales, state, known } = session.parts();
        SessionFields {
            remote,
            seen: self.seen(slot, remote),
            expires: self.time_of(session.expires),
            packets_out: session.packets_out,
            packets_in: session.packets_in,
            expects,
            window,
            scales,
            state,
            known,
            inbound: u8::from(self.table.is_inbound(at)),
        }
    }

    /// Writes the next held port. Returns `false` if the pass has no more held ports to write.
    fn export_held(&self, export: &mut Export, out: &mut Vec<u8>) -> bool {
        let Some(held) = self.external.next_held(&mut export.holds) else { return false };
        if let Some((protocol, index, port, tick)) = held {
            let mut record = Writer::begin(out, Kind::Held);
            record.u8(protocol).endpoint(AddressPort::new(self.external.address(index), port));
            record.u64(self.time_of(tick)).end();
        }
        true
    }

    /// Writes one item of a stage that only the last pass has.
    fn export_rest(&self, export: &mut Export, out: &mut Vec<u8>) {
        let at = export.next;
        export.next += 1;
        match export.stage {
            Stage::Pairs => match self.subscribers.pair_at(at) {
                None => export.enter(Stage::Blocks),
                Some(None) => {}
                Some(Some((host, index))) => {
                    let mut record = Writer::begin(out, Kind::Pair);
                    record.host(host).u32(self.external.address(index)).end();
                }
            },
            Stage::Blocks => match self.external.owned_block(at) {
                None => export.enter(Stage::Sequences),
                Some(None) => {}
                Some(Some((host, index, (first, last)))) => {
                    let mut record = Writer::begin(out, Kind::Block);
                    record.host(host).u32(self.external.address(index)).u16(first).u16(last).end();
                }
            },
            Stage::Sequences => {
                if at == 0 {
                    let mut record = Writer::begin(out, Kind::Rounds);
                    self.identifications.rounds().iter().for_each(|round| _ = record.put(round));
                    record.end();
                }
                match (self.external.address_at(at), self.identifications.sequence(at)) {
                    (Some(address), Some((key, position, used))) => {
                        let mut record = Writer::begin(out, Kind::Sequence);
                        record.u32(address).put(&key).u16(position);
                        // 0: never used.
                        used.iter().for_each(|used| _ = record.u64(used.map_or(0, |used| used.0)));
                        record.end();
                    }
                    _ => export.enter(Stage::Counters),
                }
            }
            Stage::Counters => {
                self.export_counters(out);
                export.enter(Stage::End);
            }
            _ => {
                Writer::begin(out, Kind::End).u64(export.live).end();
                export.enter(Stage::Over);
            }
        }
    }

    fn export_counters(&self, out: &mut Vec<u8>) {
        let mut write = |parts: [&str; 3], value: u64| {
            if value == 0 {
                return;
            }
            let mut record = Writer::begin(out, Kind::Counter);
            record.u64(value);
            for part in parts {
                record.u8(part.len() as u8).put(part.as_bytes());
            }
            record.end();
        };
        let counters = &self.counters;
        for direction in Direction::ALL {
            for outcome in Outcome::ALL {
                let (way, end) = (direction as usize, outcome as usize);
                let names = [direction.name(), outcome.name()];
                write(["packets", names[0], names[1]], counters.packets[way][end]);
                write(["bytes", names[0], names[1]], counters.bytes[way][end]);
            }
        }
        for reason in DropReason::ALL {
            write(["drops", reason.name(), ""], counters.drops[*reason as usize]);
        }
        for (kind, name) in KINDS.into_iter().enumerate() {
            write(["made", name, ""], self.made[kind]);
            write(["gone", name, ""], self.gone[kind]);
        }
        for (name, value) in [
            ("portless", counters.portless),
            ("generated", counters.generated),
            ("errors_suppressed", counters.errors_suppressed),
            ("events_lost", counters.events_lost),
            ("clock_backwards", counters.clock_backwards),
        ] {
            write([name, "", ""], value);
        }
    }
}
