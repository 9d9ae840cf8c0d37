//! The typed intermediate form as text.

use crate::ir::{
    Expr, ExprKind, Header, Match, MatchKind, Next, ObjectKind, Parser, Program, Stmt, Table,
    Target,
};
use std::fmt::{self, Display, Formatter, Write as _};

/// A part of the program, to be written with the program's names.
struct Shown<'p, T>(&'p Program, T);

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, (name, ty)) in self.slots.iter().enumerate() {
            writeln!(f, "slot {number} {name}: {ty}")?;
        }
        for object in &self.objects {
            writeln!(f, "object {}: {}", object.name, described(&object.kind))?;
        }
        for action in &self.actions {
            let params: Vec<_> = action
                .params
                .iter()
                .map(|(name, slot, ty)| format!("{ty} {name} = {slot}"))
                .collect();
            let routine = &self.routines[action.routine].name;
            writeln!(f, "action {}({}) runs {routine}", action.name, params.join(", "))?;
        }
        self.tables.iter().try_for_each(|table| write!(f, "{}", Shown(self, table)))?;
        for (number, routine) in self.routines.iter().enumerate() {
            writeln!(f, "routine {number} {} {{", routine.name)?;
            writeln!(f, "{}}}", Shown(self, (&routine.body[..], 1)))?;
        }
        self.parsers.iter().try_for_each(|parser| write!(f, "{}", Shown(self, parser)))?;
        let parts: Vec<_> = self.controls.iter().map(usize::to_string).collect();
        writeln!(f, "main parser {}, controls {}", self.parser, parts.join(", "))
    }
}

fn described(kind: &ObjectKind) -> String {
    match kind {
        ObjectKind::Counter { size, width } => format!("{size} counters of {width} bits"),
        ObjectKind::Meter { size, bytes: true } => format!("{size} meters of bytes"),
        ObjectKind::Meter { size, bytes: false } => format!("{size} meters of packets"),
        ObjectKind::Register { size, initial } => {
            let initial: Vec<_> =
                initial.iter().map(|(ty, value)| format!("{ty} {value}")).collect();
            format!("{size} registers of {}", initial.join(", "))
        }
        ObjectKind::Hash { algorithm, ty } => format!("hash {algorithm:?} to {ty}"),
        ObjectKind::Checksum => "checksum".to_owned(),
        ObjectKind::Random { ty, least, most } => format!("random {ty} from {least} to {most}"),
        ObjectKind::Digest { fields } => {
            let fields: Vec<_> = fields.iter().map(|(name, ty)| format!("{ty} {name}")).collect();
            format!("digest of {}", fields.join(", "))
        }
    }
}

impl Display for Shown<'_, &Table> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(program, table) = self;
        let name = |position: usize| &program.actions[table.actions[position]].name;
        writeln!(f, "table {} of {} entries {{", table.name, table.size)?;
        for key in &table.keys {
            let kind = match key.kind {
                MatchKind::Exact => "exact",
                MatchKind::Lpm => "lpm",
                MatchKind::Ternary => "ternary",
            };
            writeln!(f, "  key {}: {kind} {}", key.name, Shown(program, &key.expr))?;
        }
        for position in 0..table.actions.len() {
            writeln!(f, "  action {}", name(position))?;
        }
        for entry in &table.entries {
            let keys: Vec<_> = entry.keys.iter().map(matched).collect();
            writeln!(f, "  entry {}: {}{:?}", keys.join(", "), name(entry.action), entry.args)?;
        }
        let is_const = if table.default_is_const { "const " } else { "" };
        writeln!(f, "  {is_const}default {}{:?}", name(table.default.0), table.default.1)?;
        for (is_so, what) in [(table.add_on_miss, "adds on a miss"), (table.expires, "expires")] {
            if is_so {
                writeln!(f, "  {what}")?;
            }
        }
        writeln!(f, "}}")
    }
}

fn matched(asked: &Match) -> String {
    match asked.mask {
        0 => "_".to_owned(),
        _ => format!("{:#x}&&&{:#x}", asked.value, asked.mask),
    }
}

impl Display for Shown<'_, &Parser> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(program, parser) = self;
        let target = |target: &Target| match target {
            Target::State(state) => parser.states[*state].name.to_string(),
            Target::Accept => "accept".to_owned(),
            Target::Reject => "reject".to_owned(),
        };
        writeln!(f, "parser {} {{", parser.name)?;
        write!(f, "{}", Shown(program, (&parser.init[..], 1)))?;
        for state in &parser.states {
            writeln!(f, "  state {} {{", state.name)?;
            write!(f, "{}", Shown(program, (&state.body[..], 2)))?;
            match &state.next {
                Next::To(to) => writeln!(f, "    -> {}", target(to))?,
                Next::Select(keys, cases) => {
                    let keys: Vec<_> =
                        keys.iter().map(|key| Shown(program, key).to_string()).collect();
                    writeln!(f, "    select {}", keys.join(", "))?;
                    for (asked, to) in cases {
                        let asked: Vec<_> = asked.iter().map(matched).collect();
                        writeln!(f, "      {} -> {}", asked.join(", "), target(to))?;
                    }
                }
            }
            writeln!(f, "  }}")?;
        }
        writeln!(f, "}}")
    }
}

/// Writes statements, indented by `depth` steps.
impl<'b> Display for Shown<'_, (&'b [Stmt], usize)> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(program, (block, depth)) = *self;
        let edge = "  ".repeat(depth);
        let shown = |expr: &'b Expr| Shown(program, expr);
        let nested = |block: &'b [Stmt]| Shown(program, (block, depth + 1));
        for stmt in block {
            f.write_str(&edge)?;
            match stmt {
                Stmt::Assign(pairs) => {
                    let pairs: Vec<_> = pairs
                        .iter()
                        .map(|(slot, value)| {
                            format!("{} = {}", named(program, *slot), shown(value))
                        })
                        .collect();
                    writeln!(f, "{}", pairs.join("; "))?;
                }
                Stmt::If(condition, yes, no) => {
                    writeln!(
                        f,
                        "if {} {{\n{}{edge}}} else {{\n{}{edge}}}",
                        shown(condition),
                        nested(yes),
                        nested(no)
                    )?;
                }
                Stmt::Switch(on, arms, default) => {
                    writeln!(f, "switch {} {{", shown(on))?;
                    for (values, arm) in arms {
                        writeln!(f, "{edge}{values:?} {{\n{}{edge}}}", nested(arm))?;
                    }
                    writeln!(f, "{edge}default {{\n{}{edge}}}", nested(default))?;
                }
                Stmt::Call(routine, copies) => {
                    write!(f, "call {}", program.routines[*routine].name)?;
                    for (slot, value) in copies {
                        write!(f, "; {} = {}", named(program, *slot), shown(value))?;
                    }
                    f.write_char('\n')?;
                }
                Stmt::Parse(parser) => writeln!(f, "parse {}", program.parsers[*parser].name)?,
                Stmt::Apply { table, hit, action } => {
                    writeln!(f, "apply {} to {hit}, {action}", program.tables[*table].name)?;
                }
                Stmt::Return => f.write_str("return\n")?,
                Stmt::Exit => f.write_str("exit\n")?,
                Stmt::Extract(header) => writeln!(f, "extract {}", header_name(program, header))?,
                Stmt::Emit(header) => writeln!(f, "emit {}", header_name(program, header))?,
                Stmt::Lookahead(fields) => {
                    let names: Vec<_> =
                        fields.iter().map(|(slot, _)| named(program, *slot)).collect();
                    writeln!(f, "lookahead {}", names.join(", "))?;
                }
                Stmt::Advance(bits) => writeln!(f, "advance {}", shown(bits))?,
                Stmt::Verify(condition, error) => {
                    writeln!(f, "verify {} else {}", shown(condition), shown(error))?;
                }
                Stmt::Extern(call) => {
                    let args: Vec<_> = call.args.iter().map(|arg| shown(arg).to_string()).collect();
                    writeln!(f, "{:?}({}) to {:?}", call.op, args.join(", "), call.results)?;
                }
            }
        }
        Ok(())
    }
}

fn named(program: &Program, slot: u32) -> String {
    format!("{}#{slot}", program.slots[slot as usize].0)
}

fn header_name<'p>(program: &'p Program, header: &Header) -> &'p str {
    program.slots[header.valid as usize].0.trim_end_matches(".$valid")
}

impl<'e> Display for Shown<'_, &'e Expr> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(program, expr) = self;
        let shown = |expr: &'e Expr| Shown(program, expr);
        match &expr.kind {
            ExprKind::Const(value) => write!(f, "{value}"),
            ExprKind::Slot(slot) => f.write_str(&named(program, *slot)),
            ExprKind::Unary(operator, operand) => {
                write!(f, "{}{}", operator.symbol(), shown(operand))
            }
            ExprKind::Binary(operator, left, right) => {
                write!(f, "({} {} {})", shown(left), operator.symbol(), shown(right))
            }
            ExprKind::Mux(condition, yes, no) => {
                write!(f, "({} ? {} : {})", shown(condition), shown(yes), shown(no))
            }
            ExprKind::Cast(operand) => write!(f, "({}) {}", expr.ty, shown(operand)),
            ExprKind::Slice(operand, high, low) => write!(f, "{}[{high}:{low}]", shown(operand)),
        }
    }
}
