//! Calls of the architecture's externs.

use super::expr::{literal, narrowed};
use super::names::{Names, rust};
use crate::ir::{Expr, ExternCall, Object, ObjectKind, Op, Ty};

impl Names<'_> {
    /// Fields with an object's state, and their initial values.
    pub(super) fn object_fields(&self, number: usize) -> Vec<(String, String)> {
        let (name, object) = (&self.objects[number], &self.program.objects[number]);
        let one =
            |ty: &str, made: String| vec![(format!("{name}: {ty}"), format!("{name}: {made}"))];
        match &object.kind {
            ObjectKind::Counter { size, width } => {
                let most = literal(Ty::Bit(64), Ty::Bit(*width).mask());
                one("Counters", format!("Counters::new({size}, {most})"))
            }
            ObjectKind::Meter { size, bytes } => {
                one("Meters", format!("Meters::new({size}, {bytes})"))
            }
            ObjectKind::Register { size, initial } => {
                let numbered = initial.iter().enumerate();
                numbered
                    .map(|(field, (ty, value))| {
                        let name = self.register_field(number, field);
                        let made = format!("Registers::new({size}, {})", literal(*ty, *value));
                        (format!("{name}: Registers<{}>", rust(*ty)), format!("{name}: {made}"))
                    })
                    .collect()
            }
            ObjectKind::Random { .. } => one("Random", "Random::new(seed)".to_owned()),
            ObjectKind::Hash { .. } | ObjectKind::Checksum | ObjectKind::Digest { .. } => {
                Vec::new()
            }
        }
    }

    /// Statements that reset counters, meters and registers.
    pub(super) fn cleared(&self) -> String {
        let fields = self.program.objects.iter().enumerate().flat_map(|(number, object)| {
            match &object.kind {
                ObjectKind::Counter { .. } | ObjectKind::Meter { .. } => {
                    vec![self.objects[number].clone()]
                }
                ObjectKind::Register { initial, .. } => {
                    (0..initial.len()).map(|field| self.register_field(number, field)).collect()
                }
                _ => Vec::new(),
            }
        });
        fields.map(|field| format!("self.{field}.clear();\n")).collect()
    }

    fn register_field(&self, number: usize, field: usize) -> String {
        let name = &self.objects[number];
        match &self.program.objects[number].kind {
            ObjectKind::Register { initial, .. } if initial.len() > 1 => format!("{name}_{field}_"),
            _ => name.clone(),
        }
    }

    /// Field of a checksum while a packet is processed.
    pub(super) fn checksum_field(&self, number: usize) -> String {
        format!("sum_{}", self.objects[number])
    }

    /// A statement that calls an extern.
    pub(super) fn ask(&self, call: &ExternCall) -> String {
        let wide: Vec<String> = call.args.iter().map(|arg| self.wide_typed(arg)).collect();
        let object = |number: usize| format!("self.code.{}", self.objects[number]);
        let sum = |number: usize| format!("self.v.{}", self.checksum_field(number));
        match call.op {
            Op::PacketLength => self.store(call, "self.input.length() as u128"),
            Op::Drop => "self.port = None;".to_owned(),
            Op::SendToPort => format!("self.port = Some({} as u32);", self.operand(&call.args[0])),
            Op::AddEntry(action) => self.add_entry(call, action),
            Op::SetExpireTime => {
                let arms = self.timed("set_timeout", "*place, timeout");
                format!("let timeout = self.world.timeout({});\n{arms}", wide[0])
            }
            Op::RestartTimer => self.timed("restart", "self.now, *place"),
            Op::Count(number) => {
                format!("self.pass.count(&mut {}, {}, {});", object(number), wide[0], wide[1])
            }
            Op::Meter(number) => {
                let colour = format!(
                    "self.pass.colour(&mut {}, self.now, {}, {}, {})",
                    object(number),
                    wide[0],
                    wide[1],
                    wide[2]
                );
                self.store(call, &colour)
            }
            Op::RegisterRead(number) => {
                let read = |(field, slot): (usize, &u32)| {
                    let register = self.register_field(number, field);
                    format!(
                        "{} = self.pass.read(&self.code.{register}, index);\n",
                        self.place(*slot)
                    )
                };
                let stores: String = call.results.iter().enumerate().map(read).collect();
                format!("let index = {};\n{stores}", wide[0])
            }
            Op::RegisterWrite(number) => {
                let write = |(field, value): (usize, &Expr)| {
                    let register = self.register_field(number, field);
                    let value = self.expr(value);
                    format!("self.pass.write(&mut self.code.{register}, index, {value});\n")
                };
                let writes: String = call.args[1..].iter().enumerate().map(write).collect();
                format!("let index = {};\n{writes}", wide[0])
            }
            Op::Hash(number) => self.hash(call, &self.program.objects[number]),
            Op::ChecksumClear(number) => format!("{} = 0;", sum(number)),
            Op::ChecksumSetState(number) => {
                format!("{} = {} as u16;", sum(number), self.operand(&call.args[0]))
            }
            Op::ChecksumAdd(number) => self.sum(&sum(number), &call.args, ""),
            Op::ChecksumSubtract(number) => self.sum(&sum(number), &call.args, "!"),
            Op::ChecksumGet(number) => self.store(call, &format!("!{} as u128", sum(number))),
            Op::ChecksumState(number) => self.store(call, &format!("{} as u128", sum(number))),
            Op::Random(number) => match &self.program.objects[number].kind {
                ObjectKind::Random { least, most, ty } => {
                    let next =
                        format!("self.pass.next(&mut {}, {least:#x}, {most:#x})", object(number));
                    self.store(call, &format!("({next} & {:#x})", ty.mask()))
                }
                _ => String::new(),
            },
            Op::Digest(number) => {
                let told = format!("self.world.tell({number}, vec![{}]);", wide.join(", "));
                format!("if !P::IS_AHEAD {{ {told} }}")
            }
        }
    }

    /// Stores 128 bits in the result's slot.
    fn store(&self, call: &ExternCall, value: &str) -> String {
        match call.results.first() {
            Some(slot) => {
                format!("{} = {};", self.place(*slot), narrowed(self.ty(*slot), value))
            }
            None => format!("let _ = {value};"),
        }
    }

    fn hash(&self, call: &ExternCall, object: &Object) -> String {
        let ObjectKind::Hash { algorithm, ty } = &object.kind else { return String::new() };
        let data =
            call.args.iter().map(|arg| format!("({}, {})", self.wide_typed(arg), arg.ty.width()));
        let data: Vec<String> = data.collect();
        let hash = format!("hash(Algorithm::{algorithm:?}, &[{}])", data.join(", "));
        self.store(call, &format!("({hash} & {:#x})", ty.mask()))
    }

    /// Adds an entry for the key that missed the applied table, whichever table it is.
    fn add_entry(&self, call: &ExternCall, action: usize) -> String {
        let args: Vec<String> = call.args[1..].iter().map(|arg| self.expr(arg)).collect();
        let arms = self.program.tables.iter().enumerate().filter_map(|(number, table)| {
            let position = table.actions.iter().position(|one| *one == action)?;
            let (variant, _) = self.applied_variant(number)?;
            let name = &self.tables[number].field;
            let action = self.chosen(number, position, &args);
            Some(format!(
                "Applied::{variant} {{ key, place }} => {{
                    let added = self.pass.add(&mut self.code.{name}, self.now, *key, {action}, \
                    timeout);
                    *place = added.or(*place);
                    added.is_some()
                }}\n"
            ))
        });
        let arms: String = arms.collect();
        let asked = format!("match &mut self.applied {{ {arms} _ => false }}");
        let timeout = self.wide_typed(&call.args[0]);
        let store = match call.results.first() {
            Some(slot) => format!("{} = {asked};", self.place(*slot)),
            None => format!("let _ = {asked};"),
        };
        format!("let timeout = self.world.timeout({timeout});\n{store}")
    }

    /// Changes the timer of the entry that was found.
    fn timed(&self, what: &str, args: &str) -> String {
        let tables = 0..self.program.tables.len();
        let arms =
            tables.filter(|number| self.program.tables[*number].expires).filter_map(|number| {
                let (variant, _) = self.applied_variant(number)?;
                let name = &self.tables[number].field;
                Some(format!(
                    "Applied::{variant} {{ place, .. }} => self.pass.{what}(&mut self.code.{name}, \
                     {args}),\n"
                ))
            });
        format!("match &self.applied {{ {} _ => {{}} }}", arms.collect::<String>())
    }

    /// Adds the arguments, as consecutive words, to a sum; with `not`, their complements.
    fn sum(&self, sum: &str, args: &[Expr], not: &str) -> String {
        let mut pieces: Vec<Vec<String>> = vec![Vec::new()];
        let mut lets = String::new();
        let mut at = 0;
        for (number, arg) in args.iter().enumerate() {
            let mut left = arg.ty.width();
            lets += &format!("let part_{number} = {};\n", self.expr(arg));
            while left > 0 {
                let taken = left.min(16 - at % 16);
                left -= taken;
                at += taken;
                let piece = piece(number, arg.ty, left, taken, (16 - at % 16) % 16);
                pieces.last_mut().expect("there is always one").push(piece);
                if at.is_multiple_of(16) {
                    pieces.push(Vec::new());
                }
            }
        }
        // Sums consist of whole words.
        pieces.retain(|word| !word.is_empty());
        let words: Vec<String> = pieces
            .iter()
            .map(|word| match (not.is_empty(), &word[..]) {
                (true, _) => word.join(" | "),
                (false, _) => format!("!({})", word.join(" | ")),
            })
            .collect();
        format!("{lets}{sum} = checksum({sum}, [{}]);", words.join(", "))
    }
}

/// A part of a word: `taken` bits of an argument, above the `left` lowest ones, shifted left by
/// `shift`.
fn piece(number: usize, ty: Ty, left: u32, taken: u32, shift: u32) -> String {
    let part = format!("part_{number}");
    let shifted = if left == 0 { part } else { format!("({part} >> {left})") };
    let has_more = ty.width() > left + taken;
    let cut = match (ty, has_more && taken < 16) {
        (Ty::Bit(16), false) if taken == 16 => shifted,
        (_, false) => format!("({shifted} as u16)"),
        (_, true) => format!("({shifted} as u16 & {:#x})", Ty::Bit(taken).mask()),
    };
    if shift == 0 { cut } else { format!("{cut} << {shift}") }
}
