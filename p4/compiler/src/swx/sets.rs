//! Slots that routines access, and slots that can share a location.
//!
//! The language copies between its parts: headers and metadata from parser to controls, arguments
//! into and out of controls. If a copy cannot be distinguished from its source, both share a
//! location.

use crate::ir::{Block, Expr, ExprKind, Next, Program, Slot, Stmt};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Slots that statements read and write, called routines included.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    pub(super) reads: BTreeSet<Slot>,
    pub(super) writes: BTreeSet<Slot>,
    routines: BTreeSet<usize>,
}

/// Slots of a program: accesses, and groups that share a location.
pub(super) struct Sets<'p> {
    program: &'p Program,
    routines: BTreeMap<usize, Rc<Touched>>,
    /// Parent of each slot on the path to the representative of its group.
    parents: Vec<Slot>,
    /// Slots that only one routine reads, and that are written right before its calls.
    params: BTreeMap<Slot, usize>,
}

impl<'p> Sets<'p> {
    pub(super) fn new(program: &'p Program) -> Self {
        let parents = (0..program.slots.len() as Slot).collect();
        let (routines, params) = (BTreeMap::new(), BTreeMap::new());
        let mut sets = Self { program, routines, parents, params };
        let shared = &program.metadata;
        for alike in [&shared.input_ports, &shared.timestamps, &shared.parser_errors] {
            alike.iter().for_each(|slot| sets.unite(alike[0], *slot));
        }
        for part in 1..4 {
            for (from, to, size) in shared.handed_on(part) {
                (0..size as Slot).for_each(|offset| sets.unite(from + offset, to + offset));
            }
        }
        sets.unite_arguments();
        sets
    }

    /// Representative of a slot's group.
    pub(super) fn root(&self, slot: Slot) -> Slot {
        let mut at = slot;
        while self.parents[at as usize] != at {
            at = self.parents[at as usize];
        }
        at
    }

    /// True if a slot is a parameter of a routine and is not accessed elsewhere.
    pub(super) fn is_param(&self, routine: usize, slot: Slot) -> bool {
        self.params.get(&slot) == Some(&routine)
    }

    fn unite(&mut self, one: Slot, other: Slot) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one.max(other) as usize] = one.min(other);
    }

    /// Slots that a routine accesses, called routines included.
    pub(super) fn routine(&mut self, number: usize) -> Rc<Touched> {
        if let Some(known) = self.routines.get(&number) {
            return Rc::clone(known);
        }
        let mut touched = Touched::default();
        touched.routines.insert(number);
        let program = self.program;
        self.block(&program.routines[number].body, &mut touched);
        let touched = Rc::new(touched);
        self.routines.insert(number, Rc::clone(&touched));
        touched
    }

    fn call(&mut self, routine: usize, into: &mut Touched) {
        let inner = self.routine(routine);
        into.reads.extend(&inner.reads);
        into.writes.extend(&inner.writes);
        into.routines.extend(&inner.routines);
    }

    pub(super) fn block(&mut self, block: &'p Block, into: &mut Touched) {
        for stmt in block {
            own(self.program, stmt, &mut |slot, writes| {
                let set = if writes { &mut into.writes } else { &mut into.reads };
                set.insert(slot);
            });
            match stmt {
                Stmt::Call(routine, _) => self.call(*routine, into),
                Stmt::Apply { table, .. } => {
                    for action in &self.program.tables[*table].actions {
                        self.call(self.program.actions[*action].routine, into);
                    }
                }
                Stmt::Parse(parser) => self.parser(*parser, into),
                _ => {}
            }
            stmt.blocks().into_iter().for_each(|block| self.block(block, into));
        }
    }

    fn parser(&mut self, number: usize, into: &mut Touched) {
        let program = self.program;
        let parser = &program.parsers[number];
        self.block(&parser.init, into);
        for state in &parser.states {
            self.block(&state.body, into);
            if let Next::Select(keys, _) = &state.next {
                for key in keys {
                    key.slots(&mut |slot| {
                        into.reads.insert(slot);
                    });
                }
            }
        }
    }

    /// Merges parameters of controls with their arguments, if the control cannot access the
    /// argument otherwise and no other code accesses the parameter.
    fn unite_arguments(&mut self) {
        let program = self.program;
        // Values handed on between parts are accessed in each of them.
        let all = 0..program.slots.len() as Slot;
        let roots: Vec<Slot> = all.map(|slot| self.root(slot)).collect();
        let root = |slot: Slot| roots[slot as usize] as usize;
        let mut counts = vec![0_usize; roots.len()];
        let mut sites = Vec::new();
        let states = program.parsers.iter().flat_map(|parser| &parser.states);
        let bodies = program.routines.iter().map(|routine| &routine.body);
        for block in bodies.chain(states.map(|state| &state.body)) {
            count(program, block, &mut |slot| counts[root(slot)] += 1);
            calls(block, &mut sites);
        }
        let listed = program.tables.iter().flat_map(|table| &table.actions);
        let listed: BTreeSet<usize> =
            listed.map(|action| program.actions[*action].routine).collect();
        let mut of_routine: BTreeMap<usize, Vec<Site<'p>>> = BTreeMap::new();
        sites.iter().for_each(|site| of_routine.entry(site.0).or_default().push(*site));
        for (routine, sites) in of_routine {
            let inner = self.routine(routine);
            let mut inside = vec![0_usize; roots.len()];
            for routine in &inner.routines {
                let body = &program.routines[*routine].body;
                count(program, body, &mut |slot| inside[root(slot)] += 1);
            }
            let mut written: BTreeMap<Slot, usize> = BTreeMap::new();
            for (param, _) in sites.iter().flat_map(|(_, given, _)| *given) {
                *written.entry(*param).or_default() += 1;
            }
            for (param, times) in written {
                if counts[root(param)] == inside[root(param)] + times {
                    self.params.insert(param, routine);
                }
            }
            let &[(_, given, taken)] = &sites[..] else { continue };
            if listed.contains(&routine) {
                continue;
            }
            // A parameter, its argument, and 1 if the argument gets the value back.
            let pairs: Vec<(Slot, Slot, usize)> = given
                .iter()
                .filter_map(|(param, value)| match value.kind {
                    ExprKind::Slot(arg) => Some((*param, arg)),
                    _ => None,
                })
                .map(|(param, arg)| {
                    let back = taken
                        .iter()
                        .filter(|(to, value)| *to == arg && value.kind == ExprKind::Slot(param));
                    (param, arg, back.count())
                })
                .filter(|(param, _, back)| *back == 1 || !inner.writes.contains(param))
                .collect();
            let touched: BTreeSet<Slot> =
                inner.reads.union(&inner.writes).map(|slot| self.root(*slot)).collect();
            let args: BTreeSet<Slot> = pairs.iter().map(|(_, arg, _)| self.root(*arg)).collect();
            let is_apart = args.len() == pairs.len()
                && pairs.iter().all(|(param, arg, back)| {
                    // No other code writes or reads the parameter.
                    let uses = inside[root(*param)] + 1 + back;
                    counts[root(*param)] == uses && !touched.contains(&self.root(*arg))
                });
            if is_apart {
                pairs.iter().for_each(|(param, arg, _)| self.unite(*param, *arg));
            }
        }
    }
}

/// Calls, with the assignments before and after each.
type Site<'p> = (usize, &'p [(Slot, Expr)], &'p [(Slot, Expr)]);

fn calls<'p>(block: &'p Block, into: &mut Vec<Site<'p>>) {
    for (number, stmt) in block.iter().enumerate() {
        if let Stmt::Call(routine, taken) = stmt {
            let given = match number.checked_sub(1).map(|before| &block[before]) {
                Some(Stmt::Assign(pairs)) => &pairs[..],
                _ => &[],
            };
            into.push((*routine, given, taken));
        }
        stmt.blocks().into_iter().for_each(|block| calls(block, into));
    }
}

/// Visits every slot that statements read or write, without called routines.
fn count(program: &Program, block: &Block, visit: &mut dyn FnMut(Slot)) {
    for stmt in block {
        own(program, stmt, &mut |slot, _| visit(slot));
        stmt.blocks().into_iter().for_each(|block| count(program, block, visit));
    }
}

/// Visits the slots that a statement itself reads and writes, without nested statements.
fn own(program: &Program, stmt: &Stmt, visit: &mut impl FnMut(Slot, bool)) {
    let assign = |pairs: &[(Slot, Expr)], visit: &mut dyn FnMut(Slot, bool)| {
        for (slot, value) in pairs {
            visit(*slot, true);
            value.slots(&mut |slot| visit(slot, false));
        }
    };
    match stmt {
        Stmt::Assign(pairs) | Stmt::Call(_, pairs) => assign(pairs, visit),
        Stmt::If(on, ..) | Stmt::Switch(on, ..) | Stmt::Advance(on) => {
            on.slots(&mut |slot| visit(slot, false));
        }
        Stmt::Apply { table, hit, action } => {
            for key in &program.tables[*table].keys {
                key.expr.slots(&mut |slot| visit(slot, false));
            }
            visit(*hit, true);
            visit(*action, true);
        }
        Stmt::Extract(header) => {
            visit(header.valid, true);
            header.fields.iter().for_each(|(slot, _)| visit(*slot, true));
        }
        Stmt::Emit(header) => {
            visit(header.valid, false);
            header.fields.iter().for_each(|(slot, _)| visit(*slot, false));
        }
        Stmt::Lookahead(fields) => fields.iter().for_each(|(slot, _)| visit(*slot, true)),
        Stmt::Verify(condition, error) => {
            condition.slots(&mut |slot| visit(slot, false));
            error.slots(&mut |slot| visit(slot, false));
        }
        Stmt::Extern(call) => {
            call.args.iter().for_each(|arg| arg.slots(&mut |slot| visit(slot, false)));
            call.results.iter().for_each(|slot| visit(*slot, true));
        }
        Stmt::Parse(_) | Stmt::Return | Stmt::Exit => {}
    }
}
