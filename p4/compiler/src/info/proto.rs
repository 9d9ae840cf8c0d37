//! P4Info's messages, with the numbers and names that P4Runtime's specification gives their fields.

use super::message::Message;
use super::{
    ActionInfo, ArrayInfo, ChoiceInfo, DataInfo, FieldInfo, Info, ParamInfo, Preamble, TableInfo,
};
use crate::ir::{MatchKind, Unit};

/// Fields of P4Info that do not affect requests.
pub(super) const PKG_INFO: u32 = 1;
pub(super) const TYPE_INFO: u32 = 200;

pub(super) fn message(info: &Info) -> Message {
    let package = Message::default().text(5, "arch", "pna");
    let types = type_info(info.registers.iter().chain(&info.digests));
    let all = Message::default()
        .message(PKG_INFO, "pkg_info", package)
        .messages(2, "tables", info.tables.iter().map(table))
        .messages(3, "actions", info.actions.iter().map(action))
        .messages(5, "counters", info.counters.iter().map(array))
        .messages(7, "meters", info.meters.iter().map(array))
        .messages(11, "registers", info.registers.iter().map(data))
        .messages(12, "digests", info.digests.iter().map(data));
    match types {
        Some(types) => all.message(TYPE_INFO, "type_info", types),
        None => all,
    }
}

fn preamble(preamble: &Preamble) -> Message {
    Message::default().number(1, "id", preamble.id).text(2, "name", &preamble.name).text(
        3,
        "alias",
        &preamble.alias,
    )
}

fn table(table: &TableInfo) -> Message {
    Message::default()
        .message(1, "preamble", preamble(&table.preamble))
        .messages(2, "match_fields", table.fields.iter().map(field))
        .messages(3, "action_refs", table.actions.iter().map(choice))
        .number(4, "const_default_action_id", table.const_default.unwrap_or(0))
        .number(8, "size", table.size as u64)
        .flag(10, "is_const_table", table.is_const)
}

fn field(field: &FieldInfo) -> Message {
    let kind = match field.kind {
        MatchKind::Exact => (2, "EXACT"),
        MatchKind::Lpm => (3, "LPM"),
        MatchKind::Ternary => (4, "TERNARY"),
    };
    Message::default()
        .number(1, "id", field.id)
        .text(2, "name", &field.name)
        .number(4, "bitwidth", field.bits)
        .choice(5, "match_type", kind)
}

fn choice(choice: &ChoiceInfo) -> Message {
    let scope = match choice.is_default_only {
        true => (2, "DEFAULT_ONLY"),
        false => (0, "TABLE_AND_DEFAULT"),
    };
    Message::default().number(1, "id", choice.id).choice(3, "scope", scope)
}

fn action(action: &ActionInfo) -> Message {
    Message::default().message(1, "preamble", preamble(&action.preamble)).messages(
        2,
        "params",
        action.params.iter().map(param),
    )
}

fn param(param: &ParamInfo) -> Message {
    Message::default()
        .number(1, "id", param.id)
        .text(2, "name", &param.name)
        .number(4, "bitwidth", param.bits)
}

/// Counters and meters have the same fields.
fn array(array: &ArrayInfo) -> Message {
    let unit = match array.unit {
        Unit::Bytes => (1, "BYTES"),
        Unit::Packets => (2, "PACKETS"),
        Unit::Both => (3, "BOTH"),
    };
    Message::default()
        .message(1, "preamble", preamble(&array.preamble))
        .message(2, "spec", Message::default().choice(1, "unit", unit))
        .number(3, "size", array.size)
}

/// Registers and digests have the same fields, except the size, which only registers have.
fn data(data: &DataInfo) -> Message {
    let spec = match (&data.struct_name, &data.members[..]) {
        (Some(name), _) => {
            Message::default().message(4, "struct", Message::default().text(1, "name", name))
        }
        (None, [member]) => bits(member),
        (None, members) => {
            let tuple = Message::default().messages(1, "members", members.iter().map(bits));
            Message::default().message(3, "tuple", tuple)
        }
    };
    Message::default()
        .message(1, "preamble", preamble(&data.preamble))
        .message(2, "type_spec", spec)
        .number(3, "size", data.size)
}

fn bits((_, width, is_signed): &(String, u32, bool)) -> Message {
    let width = Message::default().number(1, "bitwidth", *width);
    let bits = match is_signed {
        false => Message::default().message(1, "bit", width),
        true => Message::default().message(2, "int", width),
    };
    Message::default().message(1, "bitstring", bits)
}

/// Structs of registers and digests; structs within them have become fields with a dot in their
/// names.
fn type_info<'i>(data: impl Iterator<Item = &'i DataInfo>) -> Option<Message> {
    let mut structs: Vec<(&str, &DataInfo)> =
        data.filter_map(|one| Some((one.struct_name.as_deref()?, one))).collect();
    structs.sort_by_key(|(name, _)| *name);
    structs.dedup_by_key(|(name, _)| *name);
    let entry = |(name, one): &(&str, &DataInfo)| {
        let member = |member: &(String, u32, bool)| {
            Message::default().text(1, "name", &member.0).message(2, "type_spec", bits(member))
        };
        let spec = Message::default().messages(1, "members", one.members.iter().map(member));
        Message::default().text(1, "key", name).message(2, "value", spec)
    };
    let types = Message::default().messages(1, "structs", structs.iter().map(entry));
    (!structs.is_empty()).then_some(types)
}
