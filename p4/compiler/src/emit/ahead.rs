//! Prefetch ahead of packets: which lines of large tables, registers and counters are worth
//! fetching. For each place where a table is applied it finds what may be fetched behind it, so
//! that the prefetching run ends behind the last such place.

use super::names::Names;
use crate::ir::{ExternCall, ObjectKind, Op, Program, Stmt};
use std::collections::{BTreeMap, BTreeSet};

/// Smaller arrays stay in the caches, bytes.
const FEWEST_BYTES: u64 = 256 << 10;

/// Tables and arrays that are worth fetching.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Worth {
    /// Tables that may be large.
    tables: BTreeSet<usize>,
    /// True if there are arrays that are always large.
    arrays: bool,
}

impl Worth {
    fn with(&self, other: &Self) -> Self {
        let tables = self.tables.union(&other.tables).copied().collect();
        Self { tables, arrays: self.arrays || other.arrays }
    }

    fn table(number: usize) -> Self {
        Self { tables: BTreeSet::from([number]), arrays: false }
    }
}

/// Most statements that are examined, including called ones; the rest counts as unknown.
const MOST_STATEMENTS: usize = 100_000;

/// Tables and arrays worth fetching behind each statement, by the statement's address.
#[derive(Debug, Default)]
pub(super) struct Reach {
    behind: BTreeMap<*const Stmt, Worth>,
    seen: usize,
}

impl Reach {
    /// Examines the whole program.
    pub(super) fn of(program: &Program) -> Self {
        let mut reach = Self::default();
        // The deparser applies no tables, and all before main control is in the first half.
        if let Some(main) = program.controls.get(1) {
            let body = &program.routines[*main].body;
            reach.block(program, body, Worth::default());
            reach.settle(body, &BTreeSet::new());
        }
        reach
    }

    /// Tables and arrays to fetch behind a statement; empty if no tables are applied from there.
    pub(super) fn behind(&self, stmt: &Stmt) -> Worth {
        self.behind.get(&std::ptr::from_ref(stmt)).cloned().unwrap_or_default()
    }

    /// Removes tables that were applied before from what may be fetched behind each statement of
    /// main control. Returns all tables applied by the end. A second look-up in the same table is
    /// for an unusual case, and rarely happens.
    fn settle(&mut self, block: &[Stmt], before: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut before = before.clone();
        for stmt in block {
            let applied = match stmt {
                Stmt::If(_, yes, no) => {
                    let yes = self.settle(yes, &before);
                    &yes | &self.settle(no, &before)
                }
                Stmt::Switch(_, arms, default) => {
                    let default = self.settle(default, &before);
                    let arms = arms.iter().map(|(_, arm)| self.settle(arm, &before));
                    arms.fold(default, |all, arm| &all | &arm)
                }
                Stmt::Apply { table, .. } => BTreeSet::from([*table]),
                _ => BTreeSet::new(),
            };
            before.extend(applied);
            if let Some(known) = self.behind.get_mut(&std::ptr::from_ref(stmt)) {
                known.tables.retain(|table| !before.contains(table));
            }
        }
        before
    }

    /// Examines statements from the last to the first; returns what they and those behind them
    /// reach.
    fn block(&mut self, program: &Program, block: &[Stmt], behind: Worth) -> Worth {
        block.iter().rev().fold(behind, |behind, stmt| self.stmt(program, stmt, behind))
    }

    fn stmt(&mut self, program: &Program, stmt: &Stmt, behind: Worth) -> Worth {
        self.seen += 1;
        if self.seen > MOST_STATEMENTS {
            return behind;
        }
        // A routine with several callers may be followed by the statements behind any of them.
        let known = self.behind.entry(std::ptr::from_ref(stmt)).or_default();
        *known = known.with(&behind);
        match stmt {
            Stmt::If(_, yes, no) => {
                let yes = self.block(program, yes, behind.clone());
                yes.with(&self.block(program, no, behind))
            }
            Stmt::Switch(_, arms, default) => {
                let default = self.block(program, default, behind.clone());
                let arms = arms.iter();
                arms.fold(default, |all, (_, arm)| {
                    all.with(&self.block(program, arm, behind.clone()))
                })
            }
            Stmt::Call(routine, _) => self.block(program, &program.routines[*routine].body, behind),
            Stmt::Apply { table: number, .. } => {
                let table = &program.tables[*number];
                let mut worth = behind.clone();
                for action in &table.actions {
                    let routine = program.actions[*action].routine;
                    let body = &program.routines[routine].body;
                    worth = worth.with(&self.block(program, body, behind.clone()));
                }
                // The table's actions come behind the look-up, too.
                let known = self.behind.entry(std::ptr::from_ref(stmt)).or_default();
                *known = known.with(&worth);
                match table.is_fetched() {
                    true => worth.with(&Worth::table(*number)),
                    false => worth,
                }
            }
            Stmt::Extern(call) => behind.with(&array(program, call)),
            _ => behind,
        }
    }
}

/// True if a call reads or writes a large array.
fn array(program: &Program, call: &ExternCall) -> Worth {
    let (Op::Count(number) | Op::RegisterRead(number) | Op::RegisterWrite(number)) = call.op else {
        return Worth::default();
    };
    let bytes = match &program.objects[number].kind {
        ObjectKind::Counter { size, .. } => u64::from(*size) * 16,
        ObjectKind::Register { size, initial } => {
            let widest = initial.iter().map(|(ty, _)| u64::from(ty.width())).max().unwrap_or(0);
            u64::from(*size) * widest.div_ceil(8)
        }
        _ => 0,
    };
    Worth { tables: BTreeSet::new(), arrays: bytes > FEWEST_BYTES }
}

impl Names<'_> {
    /// An expression that is true if any of it is worth fetching now.
    pub(super) fn worth(&self, worth: &Worth) -> String {
        if worth.arrays {
            return "true".to_owned();
        }
        let tables = worth.tables.iter();
        let large: Vec<String> = tables
            .map(|table| format!("self.code.{}.is_large()", self.tables[*table].field))
            .collect();
        if large.is_empty() { "false".to_owned() } else { large.join(" || ") }
    }

    /// Statements of main control from one on; the prefetching run ends behind the last that is
    /// worth it.
    pub(super) fn marked(&self, block: &[Stmt], can_stop: bool) -> String {
        let (mut text, mut before) = (String::new(), Worth::default());
        for stmt in block {
            text += &self.block(std::slice::from_ref(stmt), can_stop);
            let behind = self.reach.behind(stmt);
            if can_stop && !behind.arrays && before != behind {
                text += &format!("self.pass.rest({})?;\n", self.worth(&behind));
            }
            before = behind;
        }
        text
    }
}
