//! Executing statements on a packet.

use super::bits::{Cursor, Writer};
use super::execute::World;
use super::externs;
use super::interpreter::Interpreter;
use super::table::Entry;
use crate::ast::Binary;
use crate::fold;
use crate::ir::{
    self, Expr, ExprKind, MOST_STEPS, Match, Next, ObjectKind, Op, Slot, Stmt, Target,
};

/// Continuation after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Return,
    Exit,
    /// The parser rejects.
    Reject,
}

/// One packet in progress.
pub(super) struct Run<'m, 'p> {
    pub(super) machine: &'m mut Interpreter<'p>,
    pub(super) world: &'m mut World,
    pub(super) now: u64,
    pub(super) packet: &'m [u8],
    pub(super) cursor: Cursor,
    pub(super) out: Writer,
    pub(super) slots: Vec<u128>,
    /// Port of the packet.
    pub(super) port: Option<u32>,
    pub(super) error: u128,
    pub(super) steps: usize,
    /// Table that is being applied, and the key: that of the entry, or the one that missed.
    pub(super) applied: Option<(usize, Vec<Match>)>,
}

impl Run<'_, '_> {
    fn set(&mut self, slot: Slot, value: u128) {
        self.slots[slot as usize] = value;
    }

    fn eval(&self, expr: &Expr) -> u128 {
        match &expr.kind {
            ExprKind::Const(value) => *value,
            ExprKind::Slot(slot) => self.slots[*slot as usize],
            ExprKind::Unary(operator, operand) => {
                fold::unary(*operator, expr.ty, self.eval(operand))
            }
            ExprKind::Binary(Binary::LogicalAnd, left, right) => match self.eval(left) {
                0 => 0,
                _ => self.eval(right),
            },
            ExprKind::Binary(Binary::LogicalOr, left, right) => match self.eval(left) {
                0 => self.eval(right),
                _ => 1,
            },
            ExprKind::Binary(operator, left, right) => {
                let (left, right) = ((left.ty, self.eval(left)), (right.ty, self.eval(right)));
                fold::binary(*operator, left, right, expr.ty)
            }
            ExprKind::Mux(condition, yes, no) => match self.eval(condition) {
                0 => self.eval(no),
                _ => self.eval(yes),
            },
            ExprKind::Cast(operand) => fold::cast(operand.ty, expr.ty, self.eval(operand)),
            ExprKind::Slice(operand, high, low) => fold::slice(self.eval(operand), *high, *low),
        }
    }

    pub(super) fn block(&mut self, block: &[Stmt]) -> Flow {
        for stmt in block {
            match self.stmt(stmt) {
                Flow::Next => {}
                other => return other,
            }
        }
        Flow::Next
    }

    fn stmt(&mut self, stmt: &Stmt) -> Flow {
        match stmt {
            Stmt::Assign(pairs) => {
                let values: Vec<u128> = pairs.iter().map(|(_, value)| self.eval(value)).collect();
                for ((slot, _), value) in pairs.iter().zip(values) {
                    self.set(*slot, value);
                }
            }
            Stmt::If(condition, yes, no) => {
                return match self.eval(condition) {
                    0 => self.block(no),
                    _ => self.block(yes),
                };
            }
            Stmt::Switch(on, arms, default) => {
                let on = self.eval(on);
                let arm = arms.iter().find(|(values, _)| values.contains(&on));
                return self.block(arm.map_or(default, |(_, arm)| arm));
            }
            Stmt::Call(routine, copies) => return self.call(*routine, copies),
            Stmt::Parse(parser) => return self.parse(*parser),
            Stmt::Apply { table, hit, action } => return self.apply(*table, *hit, *action),
            Stmt::Return => return Flow::Return,
            Stmt::Exit => return Flow::Exit,
            Stmt::Extract(header) => return self.extract(header),
            Stmt::Lookahead(fields) => {
                let bits: usize = fields.iter().map(|(_, ty)| ty.width() as usize).sum();
                if !self.cursor.has(self.packet, bits) {
                    return self.fail("PacketTooShort");
                }
                let mut cursor = self.cursor;
                for (slot, ty) in fields {
                    let value = cursor.take(self.packet, ty.width());
                    self.set(*slot, value);
                }
            }
            Stmt::Advance(bits) => {
                let bits = self.eval(bits) as usize;
                if !self.cursor.has(self.packet, bits) {
                    return self.fail("PacketTooShort");
                }
                self.cursor.at += bits;
            }
            Stmt::Verify(condition, error) => {
                if self.eval(condition) == 0 {
                    self.error = self.eval(error);
                    return Flow::Reject;
                }
            }
            Stmt::Emit(header) => {
                if self.slots[header.valid as usize] != 0 {
                    for (slot, ty) in &header.fields {
                        self.out.put(self.slots[*slot as usize], ty.width());
                    }
                }
            }
            Stmt::Extern(call) => self.ask(call),
        }
        Flow::Next
    }

    pub(super) fn call(&mut self, routine: usize, copies: &[(Slot, Expr)]) -> Flow {
        let program = self.machine.program;
        let flow = self.block(&program.routines[routine].body);
        for (slot, value) in copies {
            let value = self.eval(value);
            self.set(*slot, value);
        }
        match flow {
            Flow::Return => Flow::Next,
            other => other,
        }
    }

    /// Leaves the parser with an error of the core library.
    fn fail(&mut self, name: &str) -> Flow {
        self.error = self.machine.program.error(name) as u128;
        Flow::Reject
    }

    fn extract(&mut self, header: &ir::Header) -> Flow {
        let bits: usize = header.fields.iter().map(|(_, ty)| ty.width() as usize).sum();
        if !self.cursor.has(self.packet, bits) {
            return self.fail("PacketTooShort");
        }
        for (slot, ty) in &header.fields {
            let value = self.cursor.take(self.packet, ty.width());
            self.set(*slot, value);
        }
        self.set(header.valid, 1);
        Flow::Next
    }

    pub(super) fn parse(&mut self, parser: usize) -> Flow {
        let parser = &self.machine.program.parsers[parser];
        let flow = self.block(&parser.init);
        if flow != Flow::Next {
            return flow;
        }
        let mut state = parser.start;
        loop {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return self.fail("ParserTimeout");
            }
            let flow = self.block(&parser.states[state].body);
            if flow != Flow::Next {
                return flow;
            }
            let target = match &parser.states[state].next {
                Next::To(target) => *target,
                Next::Select(keys, cases) => {
                    let values: Vec<u128> = keys.iter().map(|key| self.eval(key)).collect();
                    let fits = |asked: &[Match]| {
                        let mut pairs = asked.iter().zip(&values);
                        pairs.all(|(asked, value)| value & asked.mask == asked.value)
                    };
                    match cases.iter().find(|(asked, _)| fits(asked)) {
                        Some((_, target)) => *target,
                        None => return self.fail("NoMatch"),
                    }
                }
            };
            match target {
                Target::State(next) => state = next,
                Target::Accept => return Flow::Next,
                Target::Reject => return Flow::Reject,
            }
        }
    }

    fn apply(&mut self, index: usize, hit: Slot, action_run: Slot) -> Flow {
        let table = &self.machine.program.tables[index];
        let values: Vec<u128> = table.keys.iter().map(|key| self.eval(&key.expr)).collect();
        let found = self.machine.tables[index].find(self.now, &values);
        let found = found.map(|(keys, entry)| (keys.clone(), entry.action, entry.args.clone()));
        let is_hit = found.is_some();
        let (keys, action, args) = found.unwrap_or_else(|| {
            let pairs = table.keys.iter().zip(&values);
            let keys = pairs.map(|(key, value)| Match { value: *value, mask: key.expr.ty.mask() });
            let (action, args) = self.machine.tables[index].default.clone();
            (keys.collect(), action, args)
        });
        let chosen = &self.machine.program.actions[table.actions[action]];
        for ((_, slot, _), value) in chosen.params.iter().zip(args) {
            self.set(*slot, value);
        }
        self.applied = Some((index, keys));
        let flow = self.call(chosen.routine, &[]);
        self.applied = None;
        self.set(hit, is_hit.into());
        self.set(action_run, action as u128);
        flow
    }

    fn ask(&mut self, call: &ir::ExternCall) {
        let args: Vec<u128> = call.args.iter().map(|arg| self.eval(arg)).collect();
        let results = self.results(call, args);
        for (slot, value) in call.results.iter().zip(results) {
            self.set(*slot, value);
        }
    }

    /// Executes a call of an extern; returns its results.
    fn results(&mut self, call: &ir::ExternCall, args: Vec<u128>) -> Vec<u128> {
        let objects = &self.machine.program.objects;
        let now = self.now;
        let memory = &mut self.machine.memory;
        match call.op {
            Op::PacketLength => vec![self.packet.len() as u128],
            Op::Drop => {
                self.port = None;
                Vec::new()
            }
            Op::SendToPort => {
                self.port = Some(args[0] as u32);
                Vec::new()
            }
            Op::AddEntry(action) => vec![self.add_entry(action, &args).into()],
            Op::SetExpireTime => {
                let timeout = self.world.timeout(args[0]);
                self.timed(|entry| entry.timeout = timeout);
                Vec::new()
            }
            Op::RestartTimer => {
                self.timed(|entry| entry.restart(now));
                Vec::new()
            }
            Op::Count(object) => {
                memory[object].count(&objects[object], args[0], args[1]);
                Vec::new()
            }
            Op::Meter(object) => vec![memory[object].meter(&objects[object], now, &args)],
            Op::RegisterRead(object) => memory[object].read(&objects[object], args[0]),
            Op::RegisterWrite(object) => {
                memory[object].write(&objects[object], args[0], &args[1..]);
                Vec::new()
            }
            Op::Hash(object) => match &objects[object].kind {
                ObjectKind::Hash { algorithm, ty } => {
                    let data = bytes(&call.args, &args);
                    vec![externs::hash(*algorithm, &data) & ty.mask()]
                }
                _ => Vec::new(),
            },
            Op::ChecksumAdd(object) | Op::ChecksumSubtract(object) => {
                let data = bytes(&call.args, &args);
                memory[object].sum(&data, matches!(call.op, Op::ChecksumSubtract(_)));
                Vec::new()
            }
            Op::ChecksumClear(object) => {
                memory[object] = externs::Memory::Checksum(0);
                Vec::new()
            }
            Op::ChecksumSetState(object) => {
                memory[object] = externs::Memory::Checksum(args[0] as u16);
                Vec::new()
            }
            Op::ChecksumGet(object) | Op::ChecksumState(object) => match memory[object] {
                externs::Memory::Checksum(state) => match call.op {
                    Op::ChecksumGet(_) => vec![(!state).into()],
                    _ => vec![state.into()],
                },
                _ => Vec::new(),
            },
            Op::Random(object) => vec![memory[object].random(&objects[object])],
            Op::Digest(object) => {
                self.world.tell(object, args);
                Vec::new()
            }
        }
    }

    /// Changes the timer of the entry that was found; entries of the control plane have none.
    fn timed(&mut self, change: impl FnOnce(&mut Entry)) {
        if let Some((table, keys)) = &self.applied
            && let Some(entry) = self.machine.tables[*table].get_mut(keys)
            && entry.deadline.is_some()
        {
            change(entry);
        }
    }

    /// Adds the key that missed; returns true if there was room.
    fn add_entry(&mut self, action: usize, args: &[u128]) -> bool {
        let Some((index, keys)) = self.applied.clone() else { return false };
        let table = &self.machine.program.tables[index];
        let Some(position) = table.actions.iter().position(|one| *one == action) else {
            return false;
        };
        let timeout = self.world.timeout(args[0]);
        let new = Entry::new(position, args[1..].to_vec(), 0);
        let mut entry = Entry { timeout, is_learnt: true, ..new };
        if table.expires {
            entry.restart(self.now);
        }
        self.machine.tables[index].put(self.now, keys, entry)
    }
}

/// Arguments as consecutive bytes.
fn bytes(args: &[Expr], values: &[u128]) -> Vec<u8> {
    externs::bytes(values.iter().copied().zip(args.iter().map(|arg| arg.ty.width())))
}
