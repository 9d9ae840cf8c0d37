//! Tables and their actions.

use super::code::{Field, Instr, Test, Value};
use super::lower::{Frame, Keys, Lower, Place, whole};
use super::tidy::Code;
use crate::ir::{Block, ExprKind, Slot, Stmt};
use crate::source::Checked;

/// Most arguments of an action.
pub(super) const MOST_ARGS: usize = 8;

impl Lower<'_> {
    /// Chooses the location of tables' keys: in place, if they are in one header or in metadata;
    /// otherwise they are copied to metadata.
    pub(super) fn place_keys(&mut self) -> Checked<()> {
        let program = self.program;
        for (number, table) in program.tables.iter().enumerate() {
            let mut fields = Vec::new();
            if table.keys.is_empty() {
                let span = program.places.tables.get(number).copied().unwrap_or_default();
                let what = format!("tables without a key, such as `{}`", table.name);
                return Err(self.lacks(span, &what));
            }
            for key in &table.keys {
                match key.expr.kind {
                    ExprKind::Slot(slot) => match self.place(slot)? {
                        Place::In(field) => fields.push(field),
                        Place::Valid(_) => break,
                    },
                    _ => break,
                }
            }
            let part = |field: &Field| match field {
                Field::Header(header, _) => Some(*header),
                _ => None,
            };
            let is_together = fields.iter().enumerate().all(|(number, field)| {
                part(field) == part(&fields[0]) && !fields[..number].contains(field)
            });
            let are_copied = fields.len() != table.keys.len() || !is_together;
            if are_copied {
                fields.clear();
                for key in &table.keys {
                    let width = key.expr.ty.width();
                    if width > 64 {
                        let span = program.places.tables.get(number).copied();
                        let what = format!("keys of {width} bits, such as of `{}`", table.name);
                        return Err(self.lacks(span.unwrap_or_default(), &what));
                    }
                    let name = self.names.meta(&format!("{}_key", table.name));
                    fields.push(Field::Meta(self.metas.len()));
                    self.metas.push((name, whole(width)));
                }
            }
            self.keys[number] = Keys { fields, are_copied, known: None };
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, table: usize, hit: Slot, action: Slot) -> Checked<()> {
        let program = self.program;
        let found = &program.tables[table];
        let Keys { fields, are_copied, known } = self.keys[table].clone();
        for (key, field) in found.keys.iter().zip(&fields) {
            match are_copied {
                true => self.into(*field, &key.expr)?,
                false => self.touch(*field),
            }
        }
        let known = known.unwrap_or_else(|| self.known.clone());
        let known = known.intersection(&self.known).copied().collect();
        self.keys[table].known = Some(known);
        let exits = found.actions.iter().any(|action| self.stops(*action));
        let exit = self.flag_of_exit(exits);
        if let Some(exit) = exit {
            self.push(Instr::Mov(exit, Value::Const(0)));
        }
        self.push(Instr::Table(table));
        self.pending.clear();
        for routine in found.actions.iter().map(|action| program.actions[*action].routine) {
            let written = self.sets.routine(routine);
            for slot in &written.writes {
                if let Place::Valid(header) = self.place(*slot)? {
                    self.known.remove(&header);
                }
            }
        }
        let (hit, ran) = (self.field(hit)?, self.field(action)?);
        let missed = self.label();
        self.push(Instr::Mov(hit, Value::Const(0)));
        self.push(Instr::IfHit(false, missed));
        self.push(Instr::Mov(hit, Value::Const(1)));
        self.push(Instr::Label(missed));
        self.push(Instr::Mov(ran, Value::Const(0)));
        for number in 1..found.actions.len() {
            let other = self.label();
            self.push(Instr::IfAction(false, other, table, number));
            self.push(Instr::Mov(ran, Value::Const(number as u64)));
            self.push(Instr::Label(other));
        }
        if let Some(exit) = exit {
            let frame = self.frames.last_mut().expect("tables are applied in a routine");
            frame.exits = true;
            let to = frame.exit;
            self.compare(Test::NotEqual, Value::Field(exit), Value::Const(0), to);
        }
        Ok(())
    }

    /// Metadata by which actions signal an exit.
    fn flag_of_exit(&mut self, exits: bool) -> Option<Field> {
        if exits && self.exit_flag.is_none() {
            let name = self.names.meta("exit");
            self.exit_flag = Some(Field::Meta(self.metas.len()));
            self.metas.push((name, 8));
        }
        self.exit_flag.filter(|_| exits)
    }

    /// True if an action may exit.
    fn stops(&self, action: usize) -> bool {
        self.block_stops(&self.program.routines[self.program.actions[action].routine].body)
    }

    fn block_stops(&self, block: &Block) -> bool {
        block.iter().any(|stmt| match stmt {
            Stmt::Exit => true,
            Stmt::Call(routine, _) => self.block_stops(&self.program.routines[*routine].body),
            stmt => stmt.blocks().into_iter().any(|block| self.block_stops(block)),
        })
    }

    /// Code of the action with that number in a table's list.
    pub(super) fn action(&mut self, table: usize, number: usize) -> Checked<Code> {
        let program = self.program;
        let action = &program.actions[program.tables[table].actions[number]];
        if action.params.len() > MOST_ARGS {
            let span = program.places.tables.get(table).copied().unwrap_or_default();
            let what = format!("actions of more than {MOST_ARGS} arguments (`{}`)", action.name);
            return Err(self.lacks(span, &what));
        }
        let main = std::mem::take(&mut self.code);
        self.table = Some(table);
        self.known = self.keys[table].known.clone().unwrap_or_default();
        self.pending.clear();
        self.release();
        let written = self.sets.routine(action.routine);
        for (place, (_, slot, ty)) in action.params.iter().enumerate() {
            if ty.width() > 64 {
                let what = format!("arguments of {} bits (`{}`)", ty.width(), action.name);
                return Err(self.lacks(self.span_of(*slot), &what));
            }
            let arg = Value::Field(Field::Arg(place));
            match written.writes.contains(slot) {
                true => {
                    let field = self.field(*slot)?;
                    self.push(Instr::Mov(field, arg));
                }
                false => {
                    self.env.insert(*slot, arg);
                }
            }
        }
        let (end, exit) = (self.label(), self.label());
        self.frames.push(Frame { end, exit, exits: false });
        self.block(&program.routines[action.routine].body)?;
        let exits = self.frames.pop().is_some_and(|frame| frame.exits);
        self.push(Instr::Label(end));
        self.push(Instr::Return);
        if let (true, Some(flag)) = (exits, self.flag_of_exit(exits)) {
            self.push(Instr::Label(exit));
            self.push(Instr::Mov(flag, Value::Const(1)));
            self.push(Instr::Return);
        }
        self.env.clear();
        self.table = None;
        Ok(std::mem::replace(&mut self.code, main))
    }
}
