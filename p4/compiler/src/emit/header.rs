//! Headers: bytes to fields and back.
//!
//! Fields that begin and end together at byte boundaries form a run: one number, from which its
//! fields are cut.

use super::names::{HeaderType, carrier, rust};
use crate::ir::Ty;
use std::fmt::Write;
use std::ops::Range;

/// Fields that are read and written together.
struct Run {
    /// Range of bytes.
    bytes: Range<usize>,
    /// Range of fields.
    fields: Range<usize>,
    /// Bits behind the last field; only at the end of a header that is no whole number of bytes.
    rest: u32,
}

/// Runs of consecutive fields; the last one is padded to bytes.
fn runs(fields: &[Ty]) -> Vec<Run> {
    let (mut runs, mut at, mut first) = (Vec::new(), 0, 0);
    let mut begun = 0;
    for (place, ty) in fields.iter().enumerate() {
        at += ty.width();
        let is_last = place + 1 == fields.len();
        if at.is_multiple_of(8) || is_last {
            let end = at.div_ceil(8);
            let bytes = begun as usize..end as usize;
            runs.push(Run { bytes, fields: first..place + 1, rest: end * 8 - at });
            (begun, first) = (end, place + 1);
        }
    }
    runs.retain(|run| !run.bytes.is_empty());
    runs
}

/// Number of bytes of the fields.
pub(super) fn length(fields: impl Iterator<Item = Ty>) -> usize {
    fields.map(|ty| ty.width() as usize).sum::<usize>().div_ceil(8)
}

/// Statements that read fields from `bytes`, and the text of each field's value.
pub(super) fn read(fields: &[Ty]) -> (String, Vec<String>) {
    let (mut before, mut values) =
        (String::new(), vec!["Default::default()".to_owned(); fields.len()]);
    for run in runs(fields) {
        let Range { start, end } = run.bytes;
        let bits = (end - start) as u32 * 8;
        if bits > 128 {
            wide(&mut values, fields, &run);
            continue;
        }
        let (ty, size) = carrier(bits);
        let bytes: Vec<_> = (start..end).map(|at| format!("bytes[{at}]")).collect();
        let number = match (&bytes[..], size) {
            ([one], _) => one.clone(),
            (all, _) if bits == size => format!("{ty}::from_be_bytes([{}])", all.join(", ")),
            (_, 32) => format!("be64(&bytes[{start}..{end}]) as u32"),
            (_, size) => format!("be{size}(&bytes[{start}..{end}])"),
        };
        if run.fields.len() == 1 && run.rest == 0 {
            values[run.fields.start] = number;
            continue;
        }
        let name = format!("run_{start}");
        let _ = writeln!(before, "let {name} = {number};");
        let mut shift = run.rest;
        for place in run.fields.rev() {
            values[place] = cut(&name, shift, fields[place], size);
            shift += fields[place].width();
        }
    }
    (before, values)
}

/// A field cut from a run's number of `size` bits.
fn cut(number: &str, shift: u32, ty: Ty, size: u32) -> String {
    let shifted = match shift {
        _ if ty.width() == 0 => return literal_zero(ty),
        0 => number.to_owned(),
        _ => format!("({number} >> {shift})"),
    };
    match ty {
        Ty::Bool => format!("{shifted} & 1 == 1"),
        _ if ty.width() + shift == size => format!("{shifted} as {}", rust(ty)),
        _ => format!("({shifted} & {:#x}) as {}", ty.mask(), rust(ty)),
    }
}

fn literal_zero(ty: Ty) -> String {
    super::expr::literal(ty, 0)
}

/// Reads a run longer than any number, bit by bit.
fn wide(values: &mut [String], fields: &[Ty], run: &Run) {
    let mut at = run.bytes.start as u32 * 8;
    for place in run.fields.clone() {
        let ty = fields[place];
        values[place] = super::expr::narrowed(ty, &format!("bits(&bytes, {at}, {})", ty.width()));
        at += ty.width();
    }
}

/// Definition of the type, and its functions to read and write.
pub(super) fn define(header: &HeaderType) -> String {
    let HeaderType { name, fields } = header;
    let tys: Vec<Ty> = fields.iter().map(|(_, ty)| *ty).collect();
    let length = length(tys.iter().copied());
    let definitions: String =
        fields.iter().map(|(field, ty)| format!("{field}: {},\n", rust(*ty))).collect();
    let (before, values) = read(&tys);
    let assigned: String = fields
        .iter()
        .zip(values)
        .map(|((field, _), value)| format!("{field}: {value},\n"))
        .collect();
    format!(
        "/// Headers with these fields.
        #[derive(Clone, Copy, Debug, Default)]
        struct {name} {{ valid: bool, {definitions} }}
        impl {name} {{
            #[inline(always)]
            fn read(bytes: [u8; {length}]) -> Self {{
                {before}
                Self {{ valid: true, {assigned} }}
            }}
            #[inline(always)]
            fn bytes(&self) -> [u8; {length}] {{
                let mut bytes = [0; {length}];
                {}
                bytes
            }}
        }}\n",
        write(fields, &tys)
    )
}

/// Statements that write a header's fields into `bytes`.
fn write(fields: &[(String, Ty)], tys: &[Ty]) -> String {
    let mut text = String::new();
    for run in runs(tys) {
        let Range { start, end } = run.bytes;
        let bits = (end - start) as u32 * 8;
        if bits > 128 {
            let mut at = start * 8;
            for (field, ty) in &fields[run.fields] {
                let width = ty.width();
                let _ =
                    writeln!(text, "put_bits(&mut bytes, {at}, {width}, self.{field} as u128);");
                at += width as usize;
            }
            continue;
        }
        let (ty, size) = carrier(bits);
        let mut shift = bits;
        let parts: Vec<String> = fields[run.fields]
            .iter()
            .map(|(field, own)| {
                shift -= own.width();
                let same = *own != Ty::Bool && rust(*own) == ty;
                let value =
                    if same { format!("self.{field}") } else { format!("self.{field} as {ty}") };
                match shift {
                    0 => value,
                    _ if same => format!("{value} << {shift}"),
                    _ => format!("({value}) << {shift}"),
                }
            })
            .collect();
        let number = parts.join(" | ");
        let _ = match (end - start, size / 8) {
            (1, _) => writeln!(text, "bytes[{start}] = {number};"),
            (length, all) => {
                let from = all as usize - length;
                let own = if from == 0 { String::new() } else { format!("[{from}..]") };
                let whole = if parts.len() > 1 || number.contains(' ') {
                    format!("({number})")
                } else {
                    number
                };
                let source = format!("{whole}.to_be_bytes(){own}");
                writeln!(text, "bytes[{start}..{end}].copy_from_slice(&{source});")
            }
        };
    }
    text
}
