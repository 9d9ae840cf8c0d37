//! Tables: types of their actions, constructors, and functions that apply them.

use super::names::{Names, Unique, camel, last, rust, snake};
use crate::ir::{Action, MatchKind, Table, Ty};

/// A table for fewer entries stays in the caches.
const FEWEST_ENTRIES: usize = 8192;

/// Data structure of a table.
pub(super) enum Kind {
    /// Hash table with keys packed into this type.
    Exact(String),
    Lpm(String),
    Scan,
}

impl Table {
    /// True if its actions may need the entry that was found, or the key that missed.
    pub(super) fn remembers(&self) -> bool {
        self.add_on_miss || self.expires
    }

    /// True if it may be so large that prefetching is worth it.
    pub(super) fn is_fetched(&self) -> bool {
        matches!(self.kind(), Kind::Exact(_)) && self.size >= FEWEST_ENTRIES
    }

    fn kind(&self) -> Kind {
        let bits: u32 = self.keys.iter().map(|key| key.expr.ty.width()).sum();
        let count = |kind| self.keys.iter().filter(|key| key.kind == kind).count();
        let packed = match bits {
            0..=64 => "u64".to_owned(),
            65..=128 => "u128".to_owned(),
            _ => format!("[u128; {}]", self.keys.len()),
        };
        match (count(MatchKind::Ternary), count(MatchKind::Lpm)) {
            (0, 0) => Kind::Exact(packed),
            (0, _) if bits <= 128 => Kind::Lpm(packed),
            _ => Kind::Scan,
        }
    }
}

/// Name of an action in a table's type, and names of its parameters.
struct Variant {
    name: String,
    params: Vec<(String, Ty)>,
}

impl Names<'_> {
    fn variants(&self, table: &Table) -> Vec<Variant> {
        let mut names = Unique::default();
        let actions = table.actions.iter().map(|action| &self.program.actions[*action]);
        let variant = |action: &Action| {
            let mut own = Unique::default();
            let params = action.params.iter();
            let params = params.map(|(name, _, ty)| (own.take(&snake(name)), *ty)).collect();
            Variant { name: names.take(&camel(last(&action.name))), params }
        };
        actions.map(variant).collect()
    }

    /// An action of a table with these arguments.
    pub(super) fn chosen(&self, number: usize, action: usize, args: &[String]) -> String {
        let (table, ty) = (&self.program.tables[number], &self.tables[number].ty);
        let Variant { name, params } = &self.variants(table)[action];
        let pairs = params.iter().zip(args).map(|((param, _), arg)| format!("{param}: {arg}"));
        let fields: Vec<String> = pairs.collect();
        match fields.is_empty() {
            true => format!("{ty}::{name}"),
            false => format!("{ty}::{name} {{ {} }}", fields.join(", ")),
        }
    }

    /// Type of a table's actions.
    pub(super) fn actions_type(&self, number: usize) -> String {
        let (table, ty) = (&self.program.tables[number], &self.tables[number].ty);
        let variants = self.variants(table);
        let define = |Variant { name, params }: &Variant| {
            let fields: Vec<String> =
                params.iter().map(|(param, ty)| format!("{param}: {}", rust(*ty))).collect();
            match fields.is_empty() {
                true => format!("{name},\n"),
                false => format!("{name} {{ {} }},\n", fields.join(", ")),
            }
        };
        let from = variants.iter().enumerate().map(|(place, Variant { params, .. })| {
            let args = params.iter().enumerate().map(|(place, (_, ty))| match ty {
                Ty::Bool => format!("args[{place}] != 0"),
                _ => format!("args[{place}] as {}", rust(*ty)),
            });
            let args: Vec<String> = args.collect();
            let wanted = match place + 1 == variants.len() {
                true => "_".to_owned(),
                false => place.to_string(),
            };
            format!("{wanted} => {},\n", self.chosen(number, place, &args))
        });
        let numbers = variants.iter().enumerate();
        let numbers =
            numbers.map(|(place, one)| format!("Self::{} {{ .. }} => {place},\n", one.name));
        let args = variants.iter().map(|Variant { name, params }| {
            let names: Vec<&str> = params.iter().map(|(param, _)| &**param).collect();
            let wide: Vec<String> = names.iter().map(|name| format!("*{name} as u128")).collect();
            format!("Self::{name} {{ {} }} => vec![{}],\n", names.join(", "), wide.join(", "))
        });
        format!(
            "/// What entries of `{}` do.
            #[derive(Clone, Copy, Debug)]
            enum {ty} {{ {} }}
            impl Action for {ty} {{
                fn of(number: usize, args: &[u128]) -> Self {{ match number {{ {} }} }}
                fn number(&self) -> usize {{ match self {{ {} }} }}
                fn args(&self) -> Vec<u128> {{ match self {{ {} }} }}
            }}\n",
            table.name,
            variants.iter().map(define).collect::<String>(),
            from.collect::<String>(),
            numbers.collect::<String>(),
            args.collect::<String>(),
        )
    }

    /// Field of a table, and its initial value.
    pub(super) fn table_field(&self, number: usize) -> (String, String) {
        let (table, names) = (&self.program.tables[number], &self.tables[number]);
        let (name, ty) = (&names.field, &names.ty);
        let (action, args) = &table.default;
        let params = &self.program.actions[table.actions[*action]].params;
        let args = params.iter().zip(args).map(|((_, _, ty), arg)| super::expr::literal(*ty, *arg));
        let default = self.chosen(number, *action, &args.collect::<Vec<_>>());
        let widths: Vec<String> =
            table.keys.iter().map(|key| key.expr.ty.width().to_string()).collect();
        let (widths, size) = (widths.join(", "), table.size);
        match table.kind() {
            Kind::Exact(key) => (
                format!("{name}: Exact<{key}, {ty}>"),
                format!("{name}: Exact::new(&[{widths}], {size}, {}, {default})", table.expires),
            ),
            Kind::Lpm(key) => (
                format!("{name}: Lpm<{key}, {ty}>"),
                format!("{name}: Lpm::new(&[{widths}], {size}, {default})"),
            ),
            Kind::Scan => {
                let prefix = table.keys.iter().position(|key| key.kind == MatchKind::Lpm);
                (
                    format!("{name}: Scan<{ty}>"),
                    format!("{name}: Scan::new({prefix:?}, {size}, {default})"),
                )
            }
        }
    }

    /// Variant that stands for a table that is being applied, if its actions may need it.
    pub(super) fn applied_variant(&self, number: usize) -> Option<(String, String)> {
        let table = &self.program.tables[number];
        match table.kind() {
            Kind::Exact(key) if table.remembers() => Some((camel(&self.tables[number].field), key)),
            _ => None,
        }
    }

    /// Arguments for the table's `find`.
    fn keys(&self, table: &Table) -> String {
        let all: Vec<&crate::ir::Expr> = table.keys.iter().map(|key| &key.expr).collect();
        let wide = || all.iter().map(|key| self.wide_typed(key)).collect::<Vec<_>>().join(", ");
        match table.kind() {
            Kind::Scan => return format!("&[{}]", wide()),
            Kind::Exact(key) | Kind::Lpm(key) if key.starts_with('[') => {
                return format!("[{}]", wide());
            }
            Kind::Exact(_) | Kind::Lpm(_) => {}
        }
        let bits: u32 = all.iter().map(|key| key.ty.width()).sum();
        let (to, mut shift) = (if bits <= 64 { "u64" } else { "u128" }, bits);
        let parts = all.iter().map(|key| {
            shift -= key.ty.width();
            let same = rust(key.ty) == to;
            let value = self.operand(key);
            match (shift, same) {
                (0, true) => value,
                (0, false) => format!("{value} as {to}"),
                (_, true) => format!("{value} << {shift}"),
                (_, false) => format!("({value} as {to}) << {shift}"),
            }
        });
        match all.is_empty() {
            true => "0".to_owned(),
            false => parts.collect::<Vec<_>>().join(" | "),
        }
    }

    /// Function that applies a table: it returns the hit flag and the action's number. For a table
    /// that may be large, an argument says whether further prefetching may follow.
    pub(super) fn apply(&self, number: usize, attribute: &str) -> String {
        let (table, names) = (&self.program.tables[number], &self.tables[number]);
        let (name, ty) = (&names.field, &names.ty);
        let keys = self.keys(table);
        let variant = self.applied_variant(number);
        let find = match (&variant, table.kind()) {
            (_, Kind::Exact(_)) => {
                let found = match table.is_fetched() {
                    true => format!(
                        "match self.pass.find(&self.code.{name}, self.tick, key, more) {{
                            Ok(found) => found,
                            Err(stop) => return (false, 0, Err(stop)),
                        }}"
                    ),
                    false => format!("self.code.{name}.find(self.tick, key)"),
                };
                let applied = variant.as_ref().map_or(String::new(), |(variant, _)| {
                    format!("self.applied = Applied::{variant} {{ key, place }};")
                });
                format!("let key = {keys}; let (found, place) = {found}; {applied}")
            }
            _ => format!("let found = self.code.{name}.find({keys});"),
        };
        let after = if variant.is_some() { "self.applied = Applied::Nothing;" } else { "" };
        let can_stop = self.table_stops(number);
        let arms = table.actions.iter().zip(self.variants(table)).map(|(action, variant)| {
            let action = &self.program.actions[*action];
            let params: Vec<&str> = variant.params.iter().map(|(name, _)| &**name).collect();
            let stores = action.params.iter().zip(&params);
            let stores: String = stores
                .map(|((_, slot, _), name)| format!("{} = {name};\n", self.place(*slot)))
                .collect();
            let call = self.call(action.routine, can_stop);
            let params = params.join(", ");
            format!("{ty}::{} {{ {params} }} => {{ {stores} {call} }}\n", variant.name)
        });
        let arms: String = arms.collect();
        let (result, flow) = match can_stop {
            true => ("(bool, u32, Result<(), Stop>)", "let flow = "),
            false => ("(bool, u32)", ""),
        };
        let last = if can_stop { ", flow" } else { "" };
        let more = if table.is_fetched() { ", more: bool" } else { "" };
        format!(
            "/// Applies `{}`: whether there was an entry, and which action was run.
            {attribute}
            fn {}(&mut self{more}) -> {result} {{
                {find}
                {flow} match found.action {{ {arms} }};
                {after}
                (found.hit, found.action.number() as u32{last})
            }}\n",
            table.name, names.apply,
        )
    }

    /// A call of a routine as the last expression of an arm.
    fn call(&self, routine: usize, can_stop: bool) -> String {
        let name = &self.routines[routine];
        match (can_stop, self.stops[routine]) {
            (true, false) => format!("self.{name}(); Ok(())"),
            _ => format!("self.{name}()"),
        }
    }
}
