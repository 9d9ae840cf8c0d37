//! Names of a program's slots, routines, tables and objects in Rust.
//!
//! The slots of a header become one struct, and headers with the same fields share a type. Every
//! other slot is a field of its own.

use super::ahead::Reach;
use super::halves::Halves;
use crate::ir::{Program, Slot, Ty};
use std::collections::{BTreeMap, BTreeSet};

/// Suffix of a header's validity slot.
const VALID: &str = ".$valid";

/// Names that the generated code uses in any case.
const TAKEN: [&str; 45] = [
    "Action",
    "Ahead",
    "Algorithm",
    "Applied",
    "Cell",
    "Clone",
    "Copy",
    "Counters",
    "Debug",
    "Default",
    "Err",
    "Errors",
    "Exact",
    "Execute",
    "Fate",
    "Frame",
    "Halves",
    "Input",
    "LookupResult",
    "Lpm",
    "Meter",
    "Meters",
    "None",
    "Ok",
    "Option",
    "Packed",
    "PacketState",
    "Pass",
    "Place",
    "Random",
    "Rates",
    "ReadPosition",
    "Registers",
    "Result",
    "Run",
    "Scan",
    "Slots",
    "Some",
    "Stop",
    "Store",
    "Tick",
    "Vec",
    "Verdict",
    "Work",
    "World",
];

/// The type of headers with the same fields.
pub(super) struct HeaderType {
    pub(super) name: String,
    pub(super) fields: Vec<(String, Ty)>,
}

/// A header among the slots.
pub(super) struct Instance {
    /// Expression for the header in the code.
    pub(super) place: String,
    /// Number of its type.
    pub(super) ty: usize,
}

/// Names of one table.
pub(super) struct TableNames {
    /// Field of the table.
    pub(super) field: String,
    /// Type of the table's actions.
    pub(super) ty: String,
    /// Function that applies the table.
    pub(super) apply: String,
}

pub(super) struct Names<'p> {
    pub(super) program: &'p Program,
    /// Expression for each slot in the code.
    pub(super) places: Vec<String>,
    pub(super) headers: Vec<HeaderType>,
    /// Headers by their validity slot.
    pub(super) instances: BTreeMap<Slot, Instance>,
    /// Fields of all slots, with their types.
    pub(super) fields: Vec<(String, String)>,
    pub(super) routines: Vec<String>,
    pub(super) parsers: Vec<String>,
    /// Functions of each parser's states, if it has such.
    pub(super) states: Vec<Vec<String>>,
    pub(super) tables: Vec<TableNames>,
    pub(super) objects: Vec<String>,
    /// For each routine, true if it may end its caller, too.
    pub(super) stops: Vec<bool>,
    /// Tables and arrays worth fetching ahead, and the places.
    pub(super) reach: Reach,
    /// Division of the program, if there is one, and name of the first half of main control.
    pub(super) halves: Option<(Halves, String)>,
}

/// Names, each used once.
#[derive(Default)]
pub(super) struct Unique(BTreeSet<String>);

impl Unique {
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut number = 2;
        let between =
            if wanted.starts_with(|first: char| first.is_ascii_uppercase()) { "" } else { "_" };
        while syn::parse_str::<syn::Ident>(&name).is_err() || !self.0.insert(name.clone()) {
            name = format!("{wanted}{between}{number}");
            number += 1;
        }
        name
    }
}

/// Smallest unsigned type with at least `width` bits.
pub(super) fn carrier(width: u32) -> (&'static str, u32) {
    match width {
        0..=8 => ("u8", 8),
        9..=16 => ("u16", 16),
        17..=32 => ("u32", 32),
        33..=64 => ("u64", 64),
        _ => ("u128", 128),
    }
}

/// A type in Rust.
pub(super) fn rust(ty: Ty) -> &'static str {
    match ty {
        Ty::Bool => "bool",
        _ => carrier(ty.width()).0,
    }
}

/// `NatMain.hdr.ipv4` as `nat_main_hdr_ipv4`.
pub(super) fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut before = '.';
    for letter in name.chars() {
        let begins = letter.is_ascii_uppercase() && before.is_ascii_lowercase();
        if begins || (!letter.is_ascii_alphanumeric() && !snake.is_empty()) {
            snake.push('_');
        }
        if letter.is_ascii_alphanumeric() {
            snake.push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    while snake.contains("__") {
        snake = snake.replace("__", "_");
    }
    match snake.trim_end_matches('_') {
        "" => "unnamed".to_owned(),
        name if name.starts_with(|first: char| first.is_ascii_digit()) => format!("n{name}"),
        name => name.to_owned(),
    }
}

/// `to_external` as `ToExternal`.
pub(super) fn camel(name: &str) -> String {
    let snake = snake(name);
    let words = snake.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect()
}

/// Name of the type that executes a program of that name.
pub(super) fn type_of(name: &str) -> String {
    let wanted = camel(name);
    match syn::parse_str::<syn::Ident>(&wanted) {
        Ok(_) if !TAKEN.contains(&&*wanted) => wanted,
        _ => format!("Program{wanted}"),
    }
}

/// Part of a name behind the last dot.
pub(super) fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

impl<'p> Names<'p> {
    /// Names for a program whose type has this name.
    pub(super) fn new(program: &'p Program, name: &str) -> Self {
        let mut types = Unique::default();
        TAKEN.into_iter().chain([name]).for_each(|taken| drop(types.take(taken)));
        let mut own = Unique::default();
        ["process", "begin", "finish"].into_iter().for_each(|taken| drop(own.take(taken)));
        let mut names = Self {
            program,
            places: Vec::new(),
            headers: Vec::new(),
            instances: BTreeMap::new(),
            fields: Vec::new(),
            routines: Vec::new(),
            parsers: Vec::new(),
            states: Vec::new(),
            tables: Vec::new(),
            objects: Vec::new(),
            stops: vec![false; program.routines.len()],
            reach: Reach::of(program),
            halves: None,
        };
        names.slots(&mut types);
        let routines = program.routines.iter();
        names.routines = routines.map(|one| own.take(&snake(&one.name))).collect();
        names.find_stops();
        names.halves = Halves::of(&names).map(|halves| {
            let main = &names.routines[program.controls[1]];
            (halves, own.take(&format!("{main}_first")))
        });
        let parsers = program.parsers.iter();
        names.parsers =
            parsers.map(|one| own.take(&format!("parse_{}", snake(&one.name)))).collect();
        for (parser, name) in program.parsers.iter().zip(&names.parsers) {
            let states = parser.functions().into_iter();
            let states = states.map(|state| own.take(&format!("{name}_{state}"))).collect();
            names.states.push(states);
        }
        let mut kept = Unique::default();
        let tables = program.tables.iter();
        names.tables = tables
            .map(|one| {
                let (name, apply) = (last(&one.name), format!("apply_{}", snake(last(&one.name))));
                TableNames {
                    field: kept.take(&snake(name)),
                    ty: types.take(&format!("{}Action", camel(name))),
                    apply: own.take(&apply),
                }
            })
            .collect();
        let objects = program.objects.iter();
        names.objects = objects.map(|one| kept.take(&snake(last(&one.name)))).collect();
        names
    }

    fn slots(&mut self, types: &mut Unique) {
        let slots = &self.program.slots;
        let mut fields = Unique::default();
        // Further fields that are kept between the halves.
        ["taken", "port"].into_iter().for_each(|taken| drop(fields.take(taken)));
        while let Some((name, ty)) = slots.get(self.places.len()) {
            let Some(header) = name.strip_suffix(VALID) else {
                let field = fields.take(&snake(name));
                self.places.push(format!("self.v.{field}"));
                self.fields.push((field, rust(*ty).to_owned()));
                continue;
            };
            let field = fields.take(&snake(header));
            let place = format!("self.v.{field}");
            let within = format!("{header}.");
            let rest = &slots[self.places.len() + 1..];
            let own: Vec<(&str, Ty)> = rest
                .iter()
                .map_while(|(name, ty)| Some((name.strip_prefix(&within)?, *ty)))
                .collect();
            let mut unique = Unique::default();
            unique.take("valid");
            let parts: Vec<(String, Ty)> =
                own.into_iter().map(|(name, ty)| (unique.take(&snake(name)), ty)).collect();
            self.instances.insert(
                self.places.len() as Slot,
                Instance { place: place.clone(), ty: self.headers.len() },
            );
            self.places.push(format!("{place}.valid"));
            self.places.extend(parts.iter().map(|(part, _)| format!("{place}.{part}")));
            let ty = self.header_type(last(header), parts, types);
            self.fields.push((field, self.headers[ty].name.clone()));
            if let Some(instance) = self.instances.values_mut().find(|one| one.place == place) {
                instance.ty = ty;
            }
        }
    }

    /// Type of headers with these fields.
    fn header_type(&mut self, name: &str, fields: Vec<(String, Ty)>, types: &mut Unique) -> usize {
        let known = self.headers.iter().position(|header| header.fields == fields);
        known.unwrap_or_else(|| {
            self.headers.push(HeaderType { name: types.take(&camel(name)), fields });
            self.headers.len() - 1
        })
    }

    pub(super) fn place(&self, slot: Slot) -> &str {
        &self.places[slot as usize]
    }

    pub(super) fn ty(&self, slot: Slot) -> Ty {
        self.program.slots[slot as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_rust_would_have() {
        assert_eq!(snake("NatMain.hdr.ipv4"), "nat_main_hdr_ipv4");
        assert_eq!(snake("Main.$tmp"), "main_tmp");
        assert_eq!(snake("hdr.labels[2].kind"), "hdr_labels_2_kind");
        assert_eq!(
            (camel("to_external"), camel("NatMain.upload")),
            ("ToExternal".into(), "NatMainUpload".into())
        );
        let mut unique = Unique::default();
        assert_eq!((unique.take("x"), unique.take("x")), ("x".into(), "x_2".into()));
        assert_eq!(unique.take("type"), "type_2", "a word of the language's");
        assert_eq!((unique.take("Frame"), unique.take("Frame")), ("Frame".into(), "Frame2".into()));
    }

    #[test]
    fn programs_may_be_called_as_what_the_code_has_anyway() {
        for (name, ty) in [
            ("nat", "Nat"),
            ("my-nat.v2", "MyNatV2"),
            ("counters", "ProgramCounters"),
            ("vec", "ProgramVec"),
            ("self", "ProgramSelf"),
            ("1st", "N1st"),
            ("", "Unnamed"),
        ] {
            assert_eq!(type_of(name), ty, "{name:?}");
        }
    }
}
