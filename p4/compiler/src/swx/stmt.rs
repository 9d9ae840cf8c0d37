//! Statements. Routines are inlined; actions of tables are the pipeline's own.

use super::code::{Field, Instr, Test, Value};
use super::lower::{Frame, Lower, Place};
use crate::ast::{Binary, Unary};
use crate::ir::{Block, Expr, ExprKind, Header, Slot, Stmt};
use crate::source::Checked;
use std::collections::BTreeSet;

impl<'p> Lower<'p> {
    /// Finds every header that is extracted or emitted.
    pub(super) fn find_headers(&mut self) -> Checked<()> {
        let program = self.program;
        let states = program.parsers.iter().flat_map(|parser| &parser.states);
        let bodies = program.routines.iter().map(|routine| &routine.body);
        states.map(|state| &state.body).chain(bodies).try_for_each(|body| self.headers_of(body))
    }

    fn headers_of(&mut self, block: &Block) -> Checked<()> {
        for stmt in block {
            if let Stmt::Extract(header) | Stmt::Emit(header) = stmt {
                self.add_header(header)?;
            }
            stmt.blocks().into_iter().try_for_each(|block| self.headers_of(block))?;
        }
        Ok(())
    }

    pub(super) fn block(&mut self, block: &'p Block) -> Checked<()> {
        let mut before: &[(Slot, Expr)] = &[];
        let mut rest_of_sum = 0;
        for (number, stmt) in block.iter().enumerate() {
            self.release();
            if rest_of_sum > 0 {
                rest_of_sum -= 1;
                continue;
            }
            if self.sum_of_header(&block[number..])? {
                rest_of_sum = 2;
                continue;
            }
            match (stmt, block.get(number + 1)) {
                // These are arguments: needless copies are left out.
                (Stmt::Assign(pairs), Some(Stmt::Call(..))) => before = pairs,
                (Stmt::Call(routine, taken), _) => {
                    self.call(*routine, std::mem::take(&mut before), taken)?;
                }
                (stmt, _) => self.statement(stmt)?,
            }
            self.check_size()?;
        }
        Ok(())
    }

    fn statement(&mut self, stmt: &'p Stmt) -> Checked<()> {
        match stmt {
            Stmt::Assign(pairs) => self.assign(pairs),
            Stmt::If(condition, yes, no) => self.branch(condition, yes, no),
            Stmt::Switch(on, arms, default) => self.switch(on, arms, default),
            Stmt::Call(routine, taken) => self.call(*routine, &[], taken),
            Stmt::Apply { table, hit, action } => self.apply(*table, *hit, *action),
            Stmt::Return => {
                let end = self.frame().end;
                self.push(Instr::Jump(end));
                Ok(())
            }
            Stmt::Exit => {
                self.exit();
                Ok(())
            }
            Stmt::Emit(header) => self.emit(header),
            Stmt::Extern(call) => self.ask(call),
            Stmt::Extract(header) => self.extract(header),
            Stmt::Lookahead(fields) => self.lookahead(fields),
            Stmt::Advance(bits) => self.advance(bits),
            Stmt::Verify(condition, error) => self.verify(condition, error),
            Stmt::Parse(parser) => self.parse_within(*parser),
        }
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("statements stand in a routine")
    }

    /// Exits all routines.
    fn exit(&mut self) {
        let frame = self.frame();
        frame.exits = true;
        let exit = frame.exit;
        self.push(Instr::Jump(exit));
    }

    /// Assigns all values as if all were read before the first is written.
    pub(super) fn assign(&mut self, pairs: &[(Slot, Expr)]) -> Checked<()> {
        let mut values = Vec::new();
        for (number, (slot, value)) in pairs.iter().enumerate() {
            let is_same = matches!(value.kind, ExprKind::Slot(from) if !self.env.contains_key(&from)
                && self.sets.root(from) == self.sets.root(*slot));
            if is_same {
                continue;
            }
            let mut is_overwritten = false;
            for (earlier, _) in &pairs[..number] {
                is_overwritten |= self.depends(value, *earlier);
            }
            values.push((*slot, value, is_overwritten));
        }
        // A value that is overwritten too early is saved first.
        let mut aside = Vec::new();
        for (slot, value, is_overwritten) in &values {
            let temp = match is_overwritten {
                true => {
                    let temp = self.temp(value.ty.width());
                    self.into(temp, value)?;
                    Some(temp)
                }
                false => None,
            };
            aside.push((*slot, *value, temp));
        }
        for (slot, value, temp) in aside {
            match (self.place(slot)?, temp) {
                (Place::In(field), None) => self.into(field, value)?,
                (Place::In(field), Some(temp)) => {
                    self.push(Instr::Mov(field, Value::Field(temp)));
                }
                (Place::Valid(header), temp) => self.validity(header, value, temp)?,
            }
        }
        Ok(())
    }

    /// True if an expression's value depends on a slot or its group.
    fn depends(&self, expr: &Expr, slot: Slot) -> bool {
        let (mut is_so, root) = (false, self.sets.root(slot));
        expr.slots(&mut |used| is_so |= self.sets.root(used) == root);
        is_so
    }

    fn validity(&mut self, header: usize, value: &Expr, temp: Option<Field>) -> Checked<()> {
        match value.as_constant() {
            Some(0) => self.invalidate(header),
            Some(_) => self.validate(header),
            None => {
                let (invalid, end) = (self.label(), self.label());
                match temp {
                    Some(temp) => {
                        self.compare(Test::Equal, Value::Field(temp), Value::Const(0), invalid);
                    }
                    None => self.jump(value, false, invalid)?,
                }
                self.validate(header);
                self.push(Instr::Jump(end));
                self.push(Instr::Label(invalid));
                self.invalidate(header);
                self.push(Instr::Label(end));
            }
        }
        Ok(())
    }

    fn invalidate(&mut self, header: usize) {
        self.known.remove(&header);
        self.push(Instr::Invalidate(header));
    }

    /// Makes a header valid; its fields are zero, unless it was valid before.
    fn validate(&mut self, header: usize) {
        if self.known.contains(&header) {
            return;
        }
        let was_valid = self.label();
        self.push(Instr::IfValid(true, was_valid, header));
        self.push(Instr::Validate(header));
        self.known.insert(header);
        self.is_made_valid(header);
        for field in 0..self.headers[header].fields.len() {
            self.push(Instr::Mov(Field::Header(header, field), Value::Const(0)));
        }
        self.push(Instr::Label(was_valid));
    }

    fn branch(&mut self, condition: &Expr, yes: &'p Block, no: &'p Block) -> Checked<()> {
        let (other, end) = (self.label(), self.label());
        self.jump(condition, false, other)?;
        let before = self.known.clone();
        self.suppose(condition, true);
        self.block(yes)?;
        let after = std::mem::replace(&mut self.known, before);
        self.push(Instr::Jump(end));
        self.push(Instr::Label(other));
        self.suppose(condition, false);
        self.block(no)?;
        self.push(Instr::Label(end));
        self.known.retain(|header| after.contains(header));
        Ok(())
    }

    /// Notes headers that are valid if a condition holds, or if it does not.
    pub(super) fn suppose(&mut self, condition: &Expr, holds: bool) {
        match &condition.kind {
            ExprKind::Slot(slot) if holds => {
                if let Ok(Place::Valid(header)) = self.place(*slot) {
                    self.known.insert(header);
                }
            }
            ExprKind::Unary(Unary::Not, inner) => self.suppose(inner, !holds),
            ExprKind::Binary(Binary::LogicalAnd, left, right) if holds => {
                self.suppose(left, true);
                self.suppose(right, true);
            }
            ExprKind::Binary(Binary::LogicalOr, left, right) if !holds => {
                self.suppose(left, false);
                self.suppose(right, false);
            }
            _ => {}
        }
    }

    fn switch(
        &mut self,
        on: &Expr,
        arms: &'p [(Vec<u128>, Block)],
        default: &'p Block,
    ) -> Checked<()> {
        let (on, end) = (self.operand(on)?, self.label());
        let mut labels = Vec::new();
        for (values, _) in arms {
            let label = self.label();
            for value in values {
                self.compare(Test::Equal, on, Value::Const(*value as u64), label);
            }
            labels.push(label);
        }
        let before = self.known.clone();
        let mut after: Option<BTreeSet<usize>> = None;
        let blocks = arms.iter().map(|(_, arm)| arm).zip(labels.into_iter().map(Some));
        for (block, label) in std::iter::once((default, None)).chain(blocks) {
            if let Some(label) = label {
                self.push(Instr::Label(label));
            }
            self.known = before.clone();
            self.block(block)?;
            self.push(Instr::Jump(end));
            let others = after.take().unwrap_or_else(|| self.known.clone());
            after = Some(others.intersection(&self.known).copied().collect());
        }
        self.push(Instr::Label(end));
        self.known = after.unwrap_or_default();
        Ok(())
    }

    /// Inlines a routine. Arguments that neither the routine nor other code changes meanwhile are
    /// not copied.
    fn call(
        &mut self,
        routine: usize,
        given: &'p [(Slot, Expr)],
        taken: &'p [(Slot, Expr)],
    ) -> Checked<()> {
        let inner = self.sets.routine(routine);
        let written: BTreeSet<Slot> =
            inner.writes.iter().map(|slot| self.sets.root(*slot)).collect();
        let mut copied = Vec::new();
        let mut stays = Vec::new();
        for (param, value) in given {
            let root = self.sets.root(*param);
            let is_fixed = self.sets.is_param(routine, *param)
                && !written.contains(&root)
                && !self.is_key(*param);
            let stays_there = match &value.kind {
                ExprKind::Const(value) => u64::try_from(*value).is_ok(),
                ExprKind::Slot(slot) => {
                    let from = self.sets.root(*slot);
                    from != root
                        && !written.contains(&from)
                        && given.iter().all(|(other, _)| self.sets.root(*other) != from)
                        && !matches!(self.place(*slot)?, Place::Valid(_))
                }
                _ => false,
            };
            if is_fixed && stays_there {
                let value = self.operand(value)?;
                stays.push((*param, value));
            } else {
                copied.push((*param, value.clone()));
            }
        }
        self.assign(&copied)?;
        let before = self.env.clone();
        self.env.extend(stays);
        self.inline(routine, taken)?;
        self.env = before;
        Ok(())
    }

    /// True if a slot is part of a table's key, which is looked up in place.
    fn is_key(&self, slot: Slot) -> bool {
        let mut keys = self.program.tables.iter().flat_map(|table| &table.keys);
        keys.any(|key| self.depends(&key.expr, slot))
    }

    fn inline(&mut self, routine: usize, taken: &'p [(Slot, Expr)]) -> Checked<()> {
        let (end, exit) = (self.label(), self.label());
        self.frames.push(Frame { end, exit, exits: false });
        let program = self.program;
        self.block(&program.routines[routine].body)?;
        let frame = self.frames.pop().expect("it was pushed");
        self.push(Instr::Label(end));
        self.release();
        self.take_back(taken)?;
        if frame.exits {
            let after = self.label();
            self.push(Instr::Jump(after));
            self.push(Instr::Label(exit));
            self.take_back(taken)?;
            self.exit();
            self.push(Instr::Label(after));
        }
        Ok(())
    }

    fn take_back(&mut self, taken: &[(Slot, Expr)]) -> Checked<()> {
        taken.iter().try_for_each(|pair| self.assign(std::slice::from_ref(pair)))
    }

    /// Converts a part of the program: an exit from it continues behind it.
    pub(super) fn part(&mut self, routine: usize) -> Checked<()> {
        let end = self.label();
        self.frames.push(Frame { end, exit: end, exits: false });
        let program = self.program;
        self.block(&program.routines[routine].body)?;
        self.frames.pop();
        self.push(Instr::Label(end));
        Ok(())
    }

    /// Emits a header; the pipeline permits each header only once.
    fn emit(&mut self, header: &Header) -> Checked<()> {
        let Place::Valid(number) = self.place(header.valid)? else {
            unreachable!("what is emitted is a header")
        };
        if !self.emitted.insert(number) {
            let what = format!("header that is emitted twice (`{}`)", self.headers[number].name);
            return Err(self.lacks_noted(crate::ir::Noted::Emit, &what));
        }
        self.push(Instr::Emit(number));
        Ok(())
    }
}
