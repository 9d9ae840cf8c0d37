//! Division of a program into two halves. Packets of a batch run through the first half one after
//! the other. Then the data that the second half of each packet will read can be prefetched, and
//! the packets run through the second half. The result equals that of one packet after the other,
//! if neither half touches data that the other one changes.

use super::names::Names;
use crate::ir::{Expr, ExternCall, ObjectKind, Op, Program, Slot, Stmt, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Most statements that are examined, including called ones: a larger program is not divided.
const MOST_STATEMENTS: usize = 10_000;

/// Most slots: a larger program is not divided.
const MOST_SLOTS: usize = 2048;

/// The division.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Halves {
    /// Number of statements of main control in the first half.
    pub(super) cut: usize,
    /// Values that the second half needs from the first.
    handed_on: Live,
}

/// State that outlives a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Table(usize),
    Object(usize),
    /// Messages to the control plane.
    Messages,
}

/// State that statements touch, and true if they may change it.
type Touched = BTreeMap<Thing, bool>;

/// Values needed later: slots, and checksums by their objects' numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Live {
    slots: BTreeSet<Slot>,
    sums: BTreeSet<usize>,
}

impl Halves {
    /// Finds the division with the least work behind it; `None` if nothing in the second half is
    /// worth fetching. `names` must know the routines that may end their caller.
    pub(super) fn of(names: &Names<'_>) -> Option<Self> {
        let program = names.program;
        if program.slots.len() > MOST_SLOTS || !program.tables.iter().any(Table::is_fetched) {
            return None;
        }
        let mut look = Look { program, left: MOST_STATEMENTS };
        let [pre, main, deparser] = *program.controls else { return None };
        let [pre, main, deparser] =
            [pre, main, deparser].map(|routine| &*program.routines[routine].body);
        let mut before = look.touched(pre);
        for parser in &program.parsers {
            let states = parser.states.iter().map(|state| &*state.body);
            for block in states.chain([&*parser.init]) {
                merge(&mut before, &look.touched(block));
            }
        }
        let each: Vec<Touched> =
            main.iter().map(|stmt| look.touched(std::slice::from_ref(stmt))).collect();
        let ends = |block| names.block_stops(block) || returns(block);
        let mut cut = main.iter().position(|stmt| ends(std::slice::from_ref(stmt)))?;
        let mut behind = look.touched(deparser);
        each[cut..].iter().for_each(|touched| merge(&mut behind, touched));
        if !behind.keys().any(|thing| thing.is_fetched(program)) {
            return None;
        }
        // State touched before each of the statements.
        let firsts: Vec<Touched> = each[..cut]
            .iter()
            .map(|touched| {
                let first = before.clone();
                merge(&mut before, touched);
                first
            })
            .collect();
        let mut first = &before;
        while !is_apart(first, &behind) {
            cut = cut.checked_sub(1)?;
            first = &firsts[cut];
            merge(&mut behind, &each[cut]);
        }
        let handed_on = look.needed(&main[cut..], deparser);
        (look.left > 0).then_some(Self { cut, handed_on })
    }
}

impl Thing {
    /// True if it is a table that is worth fetching.
    fn is_fetched(&self, program: &Program) -> bool {
        matches!(self, Self::Table(table) if program.tables[*table].is_fetched())
    }
}

/// True if statements may leave their routine.
fn returns(block: &[Stmt]) -> bool {
    let returns_within = |stmt: &Stmt| stmt.blocks().into_iter().any(|block| returns(block));
    block.iter().any(|stmt| *stmt == Stmt::Return || returns_within(stmt))
}

fn merge(all: &mut Touched, more: &Touched) {
    more.iter().for_each(|(thing, is_changed)| *all.entry(*thing).or_default() |= is_changed);
}

fn is_apart(one: &Touched, other: &Touched) -> bool {
    let clashes = |(thing, is_changed): (&Thing, &bool)| {
        other.get(thing).is_some_and(|by_other| *is_changed || *by_other)
    };
    !one.iter().any(clashes)
}

/// Examines statements, including called ones, up to a limit.
struct Look<'p> {
    program: &'p Program,
    left: usize,
}

/// Values needed where a routine ends, and where main control ends.
#[derive(Clone, Copy)]
struct Ends<'l> {
    routine: &'l Live,
    control: &'l Live,
}

impl Look<'_> {
    fn is_over(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    fn touched(&mut self, block: &[Stmt]) -> Touched {
        let mut all = Touched::new();
        self.touch(block, &mut all);
        all
    }

    fn touch(&mut self, block: &[Stmt], all: &mut Touched) {
        for stmt in block {
            if self.is_over() {
                return;
            }
            match stmt {
                Stmt::Call(routine, _) => self.touch(&self.program.routines[*routine].body, all),
                Stmt::Apply { table: number, .. } => {
                    let table = &self.program.tables[*number];
                    *all.entry(Thing::Table(*number)).or_default() |= table.remembers();
                    for action in &table.actions {
                        let routine = self.program.actions[*action].routine;
                        self.touch(&self.program.routines[routine].body, all);
                    }
                }
                Stmt::Extern(call) => {
                    if let Some((thing, is_changed)) = asked(call) {
                        *all.entry(thing).or_default() |= is_changed;
                    }
                }
                _ => {}
            }
            stmt.blocks().into_iter().for_each(|block| self.touch(block, all));
        }
    }

    /// Values that the rest of main control and the deparser need.
    fn needed(&mut self, rest: &[Stmt], deparser: &[Stmt]) -> Live {
        let nothing = Live::default();
        let ends = Ends { routine: &nothing, control: &nothing };
        let mut end = self.live(deparser, nothing.clone(), ends);
        let mut handed_on = BTreeSet::new();
        for (from, to, size) in self.program.metadata.handed_on(3) {
            let places = 0..size as Slot;
            handed_on.extend(places.filter(|at| end.slots.remove(&(to + at))).map(|at| from + at));
        }
        end.slots.extend(handed_on);
        self.live(rest, end.clone(), Ends { routine: &end, control: &end })
    }

    /// Values needed before statements, given those needed behind them.
    fn live(&mut self, block: &[Stmt], behind: Live, ends: Ends<'_>) -> Live {
        block.iter().rev().fold(behind, |behind, stmt| self.live_before(stmt, behind, ends))
    }

    fn live_before(&mut self, stmt: &Stmt, mut behind: Live, ends: Ends<'_>) -> Live {
        if self.is_over() {
            return behind;
        }
        match stmt {
            Stmt::Assign(pairs) => {
                pairs.iter().for_each(|(slot, _)| behind.written(*slot));
                pairs.iter().for_each(|(_, value)| behind.read(value));
            }
            Stmt::If(condition, yes, no) => {
                let mut both = self.live(yes, behind.clone(), ends);
                both.with(self.live(no, behind, ends));
                both.read(condition);
                return both;
            }
            Stmt::Switch(on, arms, default) => {
                let mut all = self.live(default, behind.clone(), ends);
                for (_, arm) in arms {
                    all.with(self.live(arm, behind.clone(), ends));
                }
                all.read(on);
                return all;
            }
            Stmt::Call(routine, copies) => {
                let copied = |mut behind: Live| {
                    for (slot, value) in copies.iter().rev() {
                        behind.written(*slot);
                        behind.read(value);
                    }
                    behind
                };
                let (routine, control) = (*routine, copied(ends.control.clone()));
                let behind = copied(behind);
                let ends = Ends { routine: &behind, control: &control };
                let body = &self.program.routines[routine].body;
                return self.live(body, behind.clone(), ends);
            }
            Stmt::Apply { table, hit, action } => {
                let table = &self.program.tables[*table];
                [hit, action].into_iter().for_each(|slot| behind.written(*slot));
                let ends = Ends { routine: &behind, control: ends.control };
                let mut all = Live::default();
                for action in table.actions.iter().map(|number| &self.program.actions[*number]) {
                    let body = &self.program.routines[action.routine].body;
                    let mut before = self.live(body, behind.clone(), ends);
                    action.params.iter().for_each(|(_, slot, _)| before.written(*slot));
                    all.with(before);
                }
                table.keys.iter().for_each(|key| all.read(&key.expr));
                return all;
            }
            Stmt::Return => return ends.routine.clone(),
            Stmt::Exit => return ends.control.clone(),
            Stmt::Extern(call) => behind.asked(call),
            Stmt::Emit(header) => {
                behind.slots.insert(header.valid);
                behind.slots.extend(header.fields.iter().map(|(slot, _)| *slot));
            }
            // Parsers come before all this.
            Stmt::Parse(_)
            | Stmt::Extract(_)
            | Stmt::Lookahead(_)
            | Stmt::Advance(_)
            | Stmt::Verify(..) => {}
        }
        behind
    }
}

impl Live {
    fn with(&mut self, other: Self) {
        self.slots.extend(other.slots);
        self.sums.extend(other.sums);
    }

    fn written(&mut self, slot: Slot) {
        self.slots.remove(&slot);
    }

    fn read(&mut self, expr: &Expr) {
        expr.slots(&mut |slot| {
            self.slots.insert(slot);
        });
    }

    fn asked(&mut self, call: &ExternCall) {
        call.results.iter().for_each(|slot| self.written(*slot));
        match call.op {
            Op::ChecksumClear(number) | Op::ChecksumSetState(number) => {
                self.sums.remove(&number);
            }
            Op::ChecksumAdd(number)
            | Op::ChecksumSubtract(number)
            | Op::ChecksumGet(number)
            | Op::ChecksumState(number) => {
                self.sums.insert(number);
            }
            _ => {}
        }
        call.args.iter().for_each(|arg| self.read(arg));
    }
}

/// State that a call touches, and true if it may change it.
fn asked(call: &ExternCall) -> Option<(Thing, bool)> {
    match call.op {
        Op::Count(number) | Op::Meter(number) | Op::RegisterWrite(number) | Op::Random(number) => {
            Some((Thing::Object(number), true))
        }
        Op::RegisterRead(number) => Some((Thing::Object(number), false)),
        Op::Digest(_) => Some((Thing::Messages, true)),
        // The tables that get entries are known from elsewhere; checksums belong to the packet.
        Op::AddEntry(_)
        | Op::SetExpireTime
        | Op::RestartTimer
        | Op::PacketLength
        | Op::Drop
        | Op::SendToPort
        | Op::Hash(_)
        | Op::ChecksumClear(_)
        | Op::ChecksumAdd(_)
        | Op::ChecksumSubtract(_)
        | Op::ChecksumGet(_)
        | Op::ChecksumState(_)
        | Op::ChecksumSetState(_) => None,
    }
}

impl Names<'_> {
    /// Fields of a packet's slots that the second half needs, with their types.
    fn kept(&self, live: &Live) -> Vec<(String, String)> {
        let places = live.slots.iter().map(|slot| self.place(*slot));
        let wanted: BTreeSet<&str> =
            places.filter_map(|place| place.strip_prefix("self.v.")?.split('.').next()).collect();
        let fields = self.fields.iter().filter(|(field, _)| wanted.contains(&**field)).cloned();
        let is_sum = |number: &usize| self.program.objects[*number].kind == ObjectKind::Checksum;
        let sums = live.sums.iter().filter(|number| is_sum(number));
        fields.chain(sums.map(|number| (self.checksum_field(*number), "u16".to_owned()))).collect()
    }

    /// Code for a packet's state between the halves, and for running packets through them.
    pub(super) fn in_halves(&self, ty: &str) -> String {
        let Some((halves, _)) = &self.halves else { return String::new() };
        let kept = self.kept(&halves.handed_on);
        let each = |show: fn(&str, &str) -> String| -> String {
            kept.iter().map(|(field, ty)| show(field, ty)).collect()
        };
        format!(
            "/// What the second half needs to know of a packet that has been through the first.
            #[derive(Debug, Default)]
            pub struct PacketState {{ taken: ReadPosition, port: Option<u32>, {} }}
            impl {ty} {{
                /// A packet at the beginning of the second half.
                #[inline(always)]
                fn resume<'r, P: Pass>(&'r mut self, world: &'r mut World, packet: &'r [u8], \
                kept: &PacketState, head: &'r mut Vec<u8>, pass: P) -> Run<'r, P> {{
                    let mut run = self.run(world, packet, head, pass);
                    run.input.resume(kept.taken);
                    run.port = kept.port;
                    {}
                    run
                }}
            }}
            impl Halves for {ty} {{
                type PacketState = PacketState;
                #[inline(always)]
                fn begin(&mut self, world: &mut World, port: u32, packet: &[u8], \
                kept: &mut PacketState) {{
                    let mut head = Vec::new();
                    let mut run = self.run(world, packet, &mut head, Work);
                    run.begin(port);
                    kept.taken = run.input.so_far();
                    kept.port = run.port;
                    {}
                }}
                #[inline(always)]
                fn fetch(&mut self, world: &mut World, packet: &[u8], kept: &PacketState, \
                found: u32) -> bool {{
                    self.resume(world, packet, kept, &mut Vec::new(), Ahead::new(found)).finish()
                }}
                #[inline(always)]
                fn finish(&mut self, world: &mut World, packet: &[u8], kept: &PacketState, \
                head: &mut Vec<u8>) -> Verdict {{
                    let mut run = self.resume(world, packet, kept, head, Work);
                    run.finish();
                    Verdict {{ port: run.port, taken: run.input.taken() }}
                }}
            }}\n",
            each(|field, ty| format!("{field}: {ty},\n")),
            each(|field, _| format!("run.v.{field} = kept.{field};\n")),
            each(|field, _| format!("kept.{field} = run.v.{field};\n")),
        )
    }

    /// Code of the function that processes a batch of frames, if division is worth it.
    pub(super) fn forwards_all(&self) -> String {
        if self.halves.is_none() {
            return String::new();
        }
        let tables = self.program.tables.iter().zip(&self.tables);
        let large: Vec<String> = tables
            .filter(|(table, _)| table.is_fetched())
            .map(|(_, names)| format!("self.{}.is_large()", names.field))
            .collect();
        format!(
            "fn forward_all(&mut self, world: &mut World, port: u32, frames: &mut [Frame<'_>], \
             fates: &mut [Fate]) {{
                if {} {{
                    in_halves(self, world, port, frames, fates);
                }} else {{
                    one_by_one(self, world, port, frames, fates);
                }}
            }}\n",
            large.join(" || ")
        )
    }
}
