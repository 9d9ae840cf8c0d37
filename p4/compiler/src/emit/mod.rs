//! Rust as the second output of the compiler.
//!
//! The output is one file that uses [`crate::rt`]: a type for each kind of header, one for the
//! actions of each table, one with the tables and objects, and one for a packet in progress, whose
//! functions are the program's parsers, controls and actions.

mod ahead;
mod expr;
mod externs;
mod halves;
mod header;
mod names;
mod parser;
mod stmt;
mod table;

use crate::ir::{ObjectKind, Program, Slot, Stmt};
use names::{Names, TableNames, rust, snake, type_of};
use std::collections::BTreeMap;

/// Most statements of a program, including called ones, for which everything is inlined into one
/// function.
const MOST_INLINED: u64 = 20_000;

impl Program {
    /// The program as Rust source: a file with a public type that executes it. `name` is the
    /// program's name, such as `nat`; it also names the type.
    pub fn rust(&self, name: &str) -> String {
        let ty = type_of(name);
        let text = Names::new(self, &ty).file(&snake(name), &ty);
        let file = syn::parse_file(&text).expect("what is made is Rust");
        spaced(&prettyplease::unparse(&file))
    }
}

/// Inserts an empty line between items, and between functions.
fn spaced(text: &str) -> String {
    let (mut spaced, mut before) = (String::new(), "");
    for line in text.lines() {
        let is_item = before == "}" || before.starts_with("use ") || before.starts_with("//!");
        let begins = ["    ///", "    #[", "    fn ", "    pub fn "];
        let is_function = before == "    }" && begins.iter().any(|begin| line.starts_with(begin));
        if is_item || is_function {
            spaced.push('\n');
        }
        spaced.push_str(line);
        spaced.push('\n');
        before = line;
    }
    spaced
}

impl Names<'_> {
    fn file(&self, name: &str, ty: &str) -> String {
        let program = self.program;
        let mut text = format!(
            "//! The program `{name}`, made by `natgate p4 compile --emit rust`: changes belong \
             into the program.
            use natgate_p4::rt::*;\n"
        );
        self.headers.iter().for_each(|header| text += &header::define(header));
        (0..program.tables.len()).for_each(|table| text += &self.actions_type(table));
        (0..program.parsers.len()).for_each(|parser| text += &self.states_type(parser));
        text += &self.slots_type();
        text += &self.applied_type();
        text += &self.code_type(ty);
        text += &self.execute(ty);
        text += &self.in_halves(ty);
        text += &self.run(ty);
        text
    }

    /// The type of all slots.
    fn slots_type(&self) -> String {
        let fields = self.fields.iter().map(|(field, ty)| format!("{field}: {ty},\n"));
        let sums =
            self.checksums().map(|number| format!("{}: u16,\n", self.checksum_field(number)));
        format!(
            "/// Headers, metadata and variables of a packet.
            #[derive(Clone, Copy, Debug, Default)]
            struct Slots {{ {} }}\n",
            fields.chain(sums).collect::<String>()
        )
    }

    fn checksums(&self) -> impl Iterator<Item = usize> {
        let objects = self.program.objects.iter().enumerate();
        objects.filter(|(_, object)| object.kind == ObjectKind::Checksum).map(|(number, _)| number)
    }

    fn applied_type(&self) -> String {
        let tables = 0..self.program.tables.len();
        let variants = tables.filter_map(|number| {
            let (variant, key) = self.applied_variant(number)?;
            Some(format!("{variant} {{ key: {key}, place: Place }},\n"))
        });
        format!(
            "/// The table that is being applied, with the key and where its entry is.
            #[derive(Clone, Copy, Debug)]
            enum Applied {{ Nothing, {} }}\n",
            variants.collect::<String>()
        )
    }

    /// The type that executes the program, and its constructor.
    fn code_type(&self, ty: &str) -> String {
        let tables = (0..self.program.tables.len()).map(|number| self.table_field(number));
        let objects = (0..self.program.objects.len()).flat_map(|number| self.object_fields(number));
        let (fields, made): (Vec<String>, Vec<String>) = tables.chain(objects).unzip();
        format!(
            "/// The program's tables, and what its objects remember.
            #[derive(Debug)]
            pub struct {ty} {{ {} }}
            impl {ty} {{
                /// Without entries; `seed` is that of its random numbers.
                pub fn new(seed: u64) -> Self {{ Self {{ {} }} }}
                #[inline(always)]
                fn run<'r, P: Pass>(&'r mut self, world: &'r mut World, packet: &'r [u8], \
                head: &'r mut Vec<u8>, pass: P) -> Run<'r, P> {{
                    let errors = Errors {{ too_short: {}, timeout: {} }};
                    Run {{
                        now: world.now(),
                        tick: world.tick(),
                        code: self,
                        world,
                        head,
                        input: Input::new(packet, errors),
                        port: None,
                        applied: Applied::Nothing,
                        pass,
                        v: Slots::default(),
                    }}
                }}
            }}\n",
            fields.join(", "),
            made.join(", "),
            self.program.error("PacketTooShort"),
            self.program.error("ParserTimeout"),
        )
    }

    fn execute(&self, ty: &str) -> String {
        let tables = || self.tables.iter().enumerate();
        let of = |kind: &str| {
            let arm = |(number, names): (usize, &TableNames)| {
                format!("{number} => &{kind} self.{},\n", names.field)
            };
            tables().map(arm).collect::<String>()
        };
        let missing = "_ => panic!(\"there is no table {number}\"),";
        let objects = || self.program.objects.iter().enumerate().zip(&self.objects);
        let arms = |is_such: fn(&ObjectKind) -> bool, call: &str| {
            let such = objects().filter(|((_, one), _)| is_such(&one.kind));
            such.map(|((number, _), name)| format!("{number} => self.{name}.{call},\n"))
                .collect::<String>()
        };
        let counters = |call| arms(|kind| matches!(kind, ObjectKind::Counter { .. }), call);
        let meters = |call| arms(|kind| matches!(kind, ObjectKind::Meter { .. }), call);
        format!(
            "impl Execute for {ty} {{
                fn process(&mut self, world: &mut World, port: u32, packet: &[u8], \
                head: &mut Vec<u8>) -> Verdict {{
                    let mut run = self.run(world, packet, head, Work);
                    run.process(port);
                    Verdict {{ port: run.port, taken: run.input.taken() }}
                }}
                {}
                fn table(&self, number: usize) -> &dyn Store {{ match number {{ {} {missing} }} }}
                fn table_mut(&mut self, number: usize) -> &mut dyn Store {{ match number {{ {} \
                {missing} }} }}
                fn counter(&self, object: usize, index: u32) -> (u64, u64) {{
                    match object {{ {} _ => (0, 0), }}
                }}
                fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {{
                    match object {{ {} _ => false, }}
                }}
                fn meter(&self, object: usize, index: u32) -> Option<Rates> {{
                    match object {{ {} _ => None, }}
                }}
                fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {{
                    match object {{ {} _ => false, }}
                }}
                fn clear(&mut self) {{ {} }}
            }}\n",
            self.forwards_all(),
            of(""),
            of("mut"),
            counters("read(index)"),
            counters("set(index, value)"),
            meters("read(index)"),
            meters("set(index, meter)"),
            self.cleared(),
        )
    }

    /// The type of a packet in progress, with the program's functions.
    fn run(&self, ty: &str) -> String {
        let program = self.program;
        let attribute = match self.size() <= MOST_INLINED {
            true => "#[inline(always)]",
            false => "",
        };
        let mut functions = self.process();
        (0..program.parsers.len()).for_each(|number| functions += &self.parser(number));
        (0..program.tables.len()).for_each(|number| functions += &self.apply(number, attribute));
        (0..program.routines.len())
            .for_each(|number| functions += &self.routine(number, attribute));
        format!(
            "/// A packet on its way.
            struct Run<'r, P> {{
                code: &'r mut {ty},
                world: &'r mut World,
                now: u64,
                tick: Tick,
                input: Input<'r>,
                head: &'r mut Vec<u8>,
                port: Option<u32>,
                applied: Applied,
                pass: P,
                v: Slots,
            }}
            impl<P: Pass> Run<'_, P> {{ {functions} }}\n"
        )
    }

    /// The parts of the program, one after the other, in two halves.
    fn process(&self) -> String {
        let (program, shared) = (self.program, &self.program.metadata);
        let fill = |slots: &[Slot], value: &str| -> String {
            let one = |slot: &Slot| {
                format!("{} = {value} as {};\n", self.place(*slot), rust(self.ty(*slot)))
            };
            slots.iter().map(one).collect()
        };
        let mut text = fill(&shared.input_ports, "port") + &fill(&shared.timestamps, "self.now");
        let errors = fill(&shared.parser_errors, "error");
        text += &format!(
            "if let Err(Stop::Reject(error)) = self.{}() {{ {errors} }}\n",
            self.parsers[program.parser]
        );
        let copies = |part: usize| -> String {
            let handed_on = self.program.metadata.handed_on(part).into_iter();
            handed_on.map(|(from, to, size)| self.copy(from, to, size)).collect()
        };
        let [pre, main, deparser] = *program.controls else { return String::new() };
        let call = |routine: usize| match self.stops[routine] {
            // The other parts run in any case.
            true => format!("let _ = self.{}();\n", self.routines[routine]),
            false => format!("self.{}();\n", self.routines[routine]),
        };
        text += &(copies(1) + &call(pre) + &copies(2));
        if let Some((_, first)) = &self.halves {
            text += &format!("self.{first}();\n");
        }
        let main = match self.stops[main] {
            true => format!(
                "if let Err(Stop::Ahead {{ more }}) = self.{}() {{ return more; }}\n",
                self.routines[main]
            ),
            false => call(main),
        };
        format!(
            "/// Takes the packet through the program.
            #[inline(always)]
            fn process(&mut self, port: u32) {{ self.begin(port); self.finish(); }}
            /// As far as nothing waits for a large table.
            #[inline(always)]
            fn begin(&mut self, port: u32) {{ {text} }}
            /// The rest; on the way ahead, whether there may be more to fetch.
            #[inline(always)]
            fn finish(&mut self) -> bool {{
                {main}
                if P::IS_AHEAD {{ return false; }}
                {} {}
                false
            }}\n",
            copies(3),
            call(deparser),
        )
    }

    /// Copies slots, whole headers at once.
    fn copy(&self, from: Slot, to: Slot, size: usize) -> String {
        let (mut text, mut at) = (String::new(), 0);
        while at < size as Slot {
            let (left, right) = (to + at, from + at);
            let pair = self.instances.get(&left).zip(self.instances.get(&right));
            match pair {
                Some((left, right)) if left.ty == right.ty => {
                    text += &format!("{} = {};\n", left.place, right.place);
                    at += 1 + self.headers[left.ty].fields.len() as Slot;
                }
                _ => {
                    text += &format!("{} = {};\n", self.place(left), self.place(right));
                    at += 1;
                }
            }
        }
        text
    }

    /// Number of statements of the whole program, including called ones.
    fn size(&self) -> u64 {
        let mut known = BTreeMap::new();
        let states = self.program.parsers.iter().flat_map(|parser| &parser.states);
        let parsers: u64 = states.map(|state| self.block_size(&state.body, &mut known)).sum();
        let parts = self.program.controls.iter();
        let parts = parts.map(|routine| self.size_of(*routine, &mut known));
        parts.fold(parsers, u64::saturating_add)
    }

    fn size_of(&self, routine: usize, known: &mut BTreeMap<usize, u64>) -> u64 {
        if let Some(size) = known.get(&routine) {
            return *size;
        }
        let size = self.block_size(&self.program.routines[routine].body, known);
        known.insert(routine, size);
        size
    }

    fn block_size(&self, block: &[Stmt], known: &mut BTreeMap<usize, u64>) -> u64 {
        let mut size = 1_u64;
        for stmt in block {
            let own = match stmt {
                Stmt::If(_, yes, no) => {
                    self.block_size(yes, known).saturating_add(self.block_size(no, known))
                }
                Stmt::Switch(_, arms, default) => {
                    let default = self.block_size(default, known);
                    let arms = arms.iter().map(|(_, arm)| self.block_size(arm, known));
                    arms.fold(default, u64::saturating_add)
                }
                Stmt::Call(routine, _) => self.size_of(*routine, known),
                Stmt::Apply { table, .. } => {
                    let actions = self.program.tables[*table].actions.iter();
                    let actions = actions.map(|action| self.program.actions[*action].routine);
                    let sizes = actions.map(|routine| self.size_of(routine, known));
                    sizes.fold(1, u64::saturating_add)
                }
                _ => 1,
            };
            size = size.saturating_add(own);
        }
        size
    }
}
