//! Statements and routines.
//!
//! A routine that may end the whole control, or fail as part of a parser, returns a `Result`; the
//! others return nothing.

use super::header::{length, read};
use super::names::{Names, carrier, rust};
use crate::ir::{Expr, Header, Slot, Stmt, Ty};

impl Names<'_> {
    /// Finds the routines that may end their caller: a routine that calls one may, too.
    pub(super) fn find_stops(&mut self) {
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for (number, routine) in self.program.routines.iter().enumerate() {
                if !self.stops[number] && self.block_stops(&routine.body) {
                    (self.stops[number], is_changed) = (true, true);
                }
            }
        }
    }

    pub(super) fn table_stops(&self, table: usize) -> bool {
        let table = &self.program.tables[table];
        let mut actions = table.actions.iter();
        // The prefetching run ends at a look-up.
        table.is_fetched()
            || actions.any(|action| self.stops[self.program.actions[*action].routine])
    }

    pub(super) fn block_stops(&self, block: &[Stmt]) -> bool {
        block.iter().any(|stmt| match stmt {
            Stmt::If(_, yes, no) => self.block_stops(yes) || self.block_stops(no),
            Stmt::Switch(_, arms, default) => {
                arms.iter().any(|(_, arm)| self.block_stops(arm)) || self.block_stops(default)
            }
            Stmt::Call(routine, _) => self.stops[*routine],
            Stmt::Apply { table, .. } => self.table_stops(*table),
            Stmt::Parse(_)
            | Stmt::Exit
            | Stmt::Extract(_)
            | Stmt::Lookahead(_)
            | Stmt::Advance(_)
            | Stmt::Verify(..) => true,
            Stmt::Assign(_) | Stmt::Return | Stmt::Emit(_) | Stmt::Extern(_) => false,
        })
    }

    /// A routine as a function.
    pub(super) fn routine(&self, number: usize, attribute: &str) -> String {
        let routine = &self.program.routines[number];
        let can_stop = self.stops[number];
        let body = match reached(&routine.body) {
            [body @ .., Stmt::Return] => body,
            body => body,
        };
        let (result, end) = if can_stop { ("-> Result<(), Stop>", "Ok(())") } else { ("", "") };
        let (first, body) = match &self.halves {
            Some((halves, name)) if self.program.controls.get(1) == Some(&number) => {
                let (first, second) = body.split_at(halves.cut.min(body.len()));
                let first = format!(
                    "/// The first half of `{}`, which waits for no large table.
                    {attribute}
                    fn {name}(&mut self) {{ {} }}\n",
                    routine.name,
                    self.block(first, false),
                );
                (first, self.marked(second, can_stop))
            }
            _ => (String::new(), self.block(body, can_stop)),
        };
        let of = if first.is_empty() { "" } else { "The second half of " };
        format!(
            "{first} /// {of}`{}`.
            {attribute}
            fn {}(&mut self) {result} {{ {body} {end} }}\n",
            routine.name, self.routines[number],
        )
    }

    pub(super) fn block(&self, block: &[Stmt], can_stop: bool) -> String {
        reached(block).iter().map(|stmt| self.stmt(stmt, can_stop) + "\n").collect()
    }

    fn stmt(&self, stmt: &Stmt, can_stop: bool) -> String {
        match stmt {
            Stmt::Assign(pairs) => self.assign(pairs),
            Stmt::If(condition, yes, no) => {
                let (condition, yes) = (self.expr(condition), self.block(yes, can_stop));
                match no.is_empty() {
                    true => format!("if {condition} {{ {yes} }}"),
                    false => {
                        let no = self.block(no, can_stop);
                        format!("if {condition} {{ {yes} }} else {{ {no} }}")
                    }
                }
            }
            Stmt::Switch(on, arms, default) => self.switch(on, arms, default, can_stop),
            Stmt::Call(routine, copies) => self.call_of(*routine, copies),
            Stmt::Parse(parser) => format!("self.{}()?;", self.parsers[*parser]),
            Stmt::Apply { table, hit, action } => {
                let more = self.reach.behind(stmt);
                self.apply_of(*table, *hit, *action, &self.worth(&more))
            }
            Stmt::Return if can_stop => "return Ok(());".to_owned(),
            Stmt::Return => "return;".to_owned(),
            Stmt::Exit => "return Err(Stop::Exit);".to_owned(),
            Stmt::Extract(header) => self.extract(header),
            Stmt::Lookahead(fields) => self.lookahead(fields),
            Stmt::Advance(bits) => format!("self.input.advance({})?;", self.wide_typed(bits)),
            Stmt::Verify(condition, error) => format!(
                "if !({}) {{ return Err(Stop::Reject({} as u32)); }}",
                self.expr(condition),
                self.operand(error)
            ),
            Stmt::Emit(header) => {
                let place = &self.instances[&header.valid].place;
                format!("if {place}.valid {{ self.head.extend_from_slice(&{place}.bytes()); }}")
            }
            Stmt::Extern(call) => self.ask(call),
        }
    }

    /// Assigns all values as if all were read before the first is written; in sequence, if that is
    /// equivalent.
    fn assign(&self, pairs: &[(Slot, Expr)]) -> String {
        let is_apart = pairs.iter().enumerate().all(|(number, (_, value))| {
            !pairs[..number].iter().any(|(slot, _)| reads(value, *slot))
        });
        let [places, values]: [Vec<String>; 2] = [
            pairs.iter().map(|(slot, _)| self.place(*slot).to_owned()).collect(),
            pairs.iter().map(|(_, value)| self.expr(value)).collect(),
        ];
        match is_apart {
            true => {
                let one = |(place, value)| format!("{place} = {value};\n");
                places.into_iter().zip(values).map(one).collect()
            }
            false => format!("({}) = ({});", places.join(", "), values.join(", ")),
        }
    }

    fn switch(
        &self,
        on: &Expr,
        arms: &[(Vec<u128>, Vec<Stmt>)],
        default: &[Stmt],
        can_stop: bool,
    ) -> String {
        let arms = arms.iter().map(|(values, arm)| {
            let values: Vec<String> =
                values.iter().map(|value| super::expr::literal(on.ty, *value)).collect();
            format!("{} => {{ {} }}\n", values.join(" | "), self.block(arm, can_stop))
        });
        let (on, arms) = (self.expr(on), arms.collect::<String>());
        format!("match {on} {{ {arms} _ => {{ {} }} }}", self.block(default, can_stop))
    }

    /// Results of a routine are copied also if it ends its caller.
    fn call_of(&self, routine: usize, copies: &[(Slot, Expr)]) -> String {
        let name = &self.routines[routine];
        let copies: String = copies
            .iter()
            .map(|(slot, value)| format!("{} = {};\n", self.place(*slot), self.expr(value)))
            .collect();
        match (self.stops[routine], copies.is_empty()) {
            (false, _) => format!("self.{name}();\n{copies}"),
            (true, true) => format!("self.{name}()?;"),
            (true, false) => format!("let flow = self.{name}();\n{copies} flow?;"),
        }
    }

    fn apply_of(&self, table: usize, hit: Slot, action: Slot, more: &str) -> String {
        let name = &self.tables[table].apply;
        let to = rust(self.ty(action));
        let (hit, action) = (self.place(hit), self.place(action));
        let more = if self.program.tables[table].is_fetched() { more } else { "" };
        let results = format!("{hit} = hit;\n{action} = action as {to};");
        match self.table_stops(table) {
            true => format!("let (hit, action, flow) = self.{name}({more});\n{results}\nflow?;"),
            false => format!("let (hit, action) = self.{name}({more});\n{results}"),
        }
    }

    fn extract(&self, header: &Header) -> String {
        let instance = &self.instances[&header.valid];
        let name = &self.headers[instance.ty].name;
        format!("{} = {name}::read(self.input.extract()?);", instance.place)
    }

    fn lookahead(&self, fields: &[(Slot, Ty)]) -> String {
        let tys: Vec<Ty> = fields.iter().map(|(_, ty)| *ty).collect();
        let bits: u32 = tys.iter().map(|ty| ty.width()).sum();
        let (before, values) = read(&tys);
        let stores: String = fields
            .iter()
            .zip(values)
            .map(|((slot, _), value)| format!("{} = {value};\n", self.place(*slot)))
            .collect();
        let length = length(tys.into_iter());
        format!("let bytes = self.input.peek::<{length}>({bits})?;\n{before}{stores}")
    }

    /// An expression of type u128.
    pub(super) fn wide_typed(&self, expr: &Expr) -> String {
        match expr.as_constant() {
            Some(value) => format!("{value:#x}_u128"),
            None if carrier(expr.ty.width()).1 == 128 => self.expr(expr),
            None => self.wide(expr),
        }
    }
}

/// Statements up to the first that ends the block.
fn reached(block: &[Stmt]) -> &[Stmt] {
    let end = block.iter().position(|stmt| matches!(stmt, Stmt::Return | Stmt::Exit));
    &block[..end.map_or(block.len(), |end| end + 1)]
}

/// True if an expression reads a slot.
fn reads(expr: &Expr, slot: Slot) -> bool {
    let mut reads = false;
    expr.slots(&mut |own| reads |= own == slot);
    reads
}
