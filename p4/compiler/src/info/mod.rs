//! Description of a program for controllers: its tables, actions and arrays, with numbers and
//! names.
//!
//! The format is P4Runtime's P4Info, version 1. Numbers come from names or from the program's
//! annotations, so that they stay when other objects are added. It has only actions that a table
//! lists: controllers cannot use others.

mod ids;
mod message;
mod proto;

use crate::ir::{self, MatchKind, Object, ObjectKind, Program, Ty, Unit};
use ids::{alias, numbers};

/// Highest bytes of numbers: the kinds of numbered objects.
pub(crate) const ACTION: u32 = 0x01;
pub(crate) const TABLE: u32 = 0x02;
const COUNTER: u32 = 0x12;
const METER: u32 = 0x14;
const REGISTER: u32 = 0x16;
const DIGEST: u32 = 0x17;

/// Highest byte for an extern's instance, if controllers know its kind.
pub(crate) fn object_prefix(kind: &ObjectKind) -> Option<u32> {
    match kind {
        ObjectKind::Counter { .. } => Some(COUNTER),
        ObjectKind::Meter { .. } => Some(METER),
        ObjectKind::Register { .. } => Some(REGISTER),
        ObjectKind::Digest { .. } => Some(DIGEST),
        ObjectKind::Hash { .. } | ObjectKind::Checksum | ObjectKind::Random { .. } => None,
    }
}

/// Description of a program for controllers. It owns its data, and can be sent to another thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Tables, in the order of the program, like all lists here.
    pub tables: Vec<TableInfo>,
    /// Actions that tables list.
    pub actions: Vec<ActionInfo>,
    /// Arrays of counters.
    pub counters: Vec<ArrayInfo>,
    /// Arrays of meters.
    pub meters: Vec<ArrayInfo>,
    /// Arrays of registers.
    pub registers: Vec<DataInfo>,
    /// Messages to the controller.
    pub digests: Vec<DataInfo>,
}

/// A number and the names that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Number.
    pub id: u32,
    /// Full name: `NatMain.upload`.
    pub name: String,
    /// Shortest suffix that no other object of the kind has.
    pub alias: String,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Number and names.
    pub preamble: Preamble,
    /// Keys, in order.
    pub fields: Vec<FieldInfo>,
    /// Actions, in order.
    pub actions: Vec<ChoiceInfo>,
    /// Number of the default action, if it is const in the program.
    pub const_default: Option<u32>,
    /// Most entries.
    pub size: usize,
    /// True if all entries are part of the program.
    pub is_const: bool,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// From 1, in order.
    pub id: u32,
    /// Name from an annotation, or the expression: `hdr.ipv4.source`.
    pub name: String,
    /// Width, bits.
    pub bits: u32,
    /// Kind of match.
    pub kind: MatchKind,
}

/// An action of a table's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoiceInfo {
    /// Number of the action.
    pub id: u32,
    /// True if the action is for the default only, and not for entries.
    pub is_default_only: bool,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionInfo {
    /// Number and names.
    pub preamble: Preamble,
    /// Parameters that entries supply.
    pub params: Vec<ParamInfo>,
}

/// A parameter of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// From 1, in order.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Width, bits.
    pub bits: u32,
}

/// An array of counters or meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayInfo {
    /// Number and names.
    pub preamble: Preamble,
    /// Unit of the counts.
    pub unit: Unit,
    /// Number of elements.
    pub size: u32,
}

/// An array of registers, or a message to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataInfo {
    /// Number and names.
    pub preamble: Preamble,
    /// Number of elements; 0 for a message.
    pub size: u32,
    /// Name of the struct of the data, if it is one.
    pub struct_name: Option<String>,
    /// Members of the data: name, bits, and true if signed.
    pub members: Vec<(String, u32, bool)>,
}

impl Info {
    /// Writes the text format of protocol buffers.
    pub fn to_text(&self) -> String {
        proto::message(self).to_text()
    }

    /// Writes the binary format of protocol buffers.
    pub fn to_bytes(&self) -> Vec<u8> {
        proto::message(self).to_bytes()
    }

    /// First difference to a P4Info in the binary format, in words; `None` if there is none. The
    /// descriptions of the package and of types are ignored: they do not affect requests.
    pub fn difference(&self, bytes: &[u8]) -> Option<String> {
        proto::message(self).difference(bytes, "p4info", &[proto::PKG_INFO, proto::TYPE_INFO])
    }
}

impl Program {
    /// Description of the program for controllers.
    pub fn info(&self) -> Info {
        let listed: Vec<usize> = (0..self.actions.len())
            .filter(|action| self.tables.iter().any(|table| table.actions.contains(action)))
            .collect();
        let actions = preambles(
            ACTION,
            listed.iter().map(|at| (&*self.actions[*at].name, self.actions[*at].id)).collect(),
        );
        let number = |action: usize| {
            let place = listed.iter().position(|listed| *listed == action);
            place.map_or(0, |place| actions[place].id)
        };
        let tables =
            preambles(TABLE, self.tables.iter().map(|table| (&*table.name, table.id)).collect());
        let of = |prefix: u32| self.objects_of(prefix);
        Info {
            tables: tables
                .into_iter()
                .zip(&self.tables)
                .map(|(preamble, table)| table_info(preamble, table, &number))
                .collect(),
            actions: actions
                .iter()
                .zip(&listed)
                .map(|(preamble, action)| ActionInfo {
                    preamble: preamble.clone(),
                    params: param_infos(&self.actions[*action]),
                })
                .collect(),
            counters: of(COUNTER).map(array_info).collect(),
            meters: of(METER).map(array_info).collect(),
            registers: of(REGISTER).map(data_info).collect(),
            digests: of(DIGEST).map(data_info).collect(),
        }
    }

    /// Instances of externs of one kind.
    fn objects_of(&self, prefix: u32) -> impl Iterator<Item = (Preamble, &Object)> {
        let is_such = |one: &&Object| object_prefix(&one.kind) == Some(prefix);
        let objects: Vec<&Object> = self.objects.iter().filter(is_such).collect();
        let names = objects.iter().map(|one| (&*one.name, one.control.id)).collect();
        preambles(prefix, names).into_iter().zip(objects)
    }
}

fn preambles(prefix: u32, names: Vec<(&str, Option<u32>)>) -> Vec<Preamble> {
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let numbered = numbers(prefix, &names).into_iter().zip(&all);
    let preamble = |(id, name): (u32, &&str)| Preamble {
        id,
        name: (*name).to_owned(),
        alias: alias(name, &all).to_owned(),
    };
    numbered.map(preamble).collect()
}

fn table_info(preamble: Preamble, table: &ir::Table, number: &impl Fn(usize) -> u32) -> TableInfo {
    let field = |(id, key): (u32, &ir::Key)| FieldInfo {
        id,
        name: key.name.clone(),
        bits: key.expr.ty.width(),
        kind: key.kind,
    };
    let choice = |(place, action): (usize, &usize)| ChoiceInfo {
        id: number(*action),
        is_default_only: table.default_only.contains(&place),
    };
    TableInfo {
        preamble,
        fields: (1..).zip(&table.keys).map(field).collect(),
        actions: table.actions.iter().enumerate().map(choice).collect(),
        const_default: table.default_is_const.then(|| number(table.actions[table.default.0])),
        size: table.size,
        is_const: !table.entries.is_empty(),
    }
}

fn param_infos(action: &ir::Action) -> Vec<ParamInfo> {
    let param = |(id, (name, _, ty)): (u32, &(String, ir::Slot, Ty))| ParamInfo {
        id,
        name: name.clone(),
        bits: ty.width(),
    };
    (1..).zip(&action.params).map(param).collect()
}

fn array_info((preamble, object): (Preamble, &Object)) -> ArrayInfo {
    let (size, unit) = match object.kind {
        ObjectKind::Counter { size, .. } => (size, object.control.unit),
        ObjectKind::Meter { size, bytes: true } => (size, Unit::Bytes),
        ObjectKind::Meter { size, bytes: false } => (size, Unit::Packets),
        _ => (0, Unit::Packets),
    };
    ArrayInfo { preamble, unit, size }
}

fn data_info((preamble, object): (Preamble, &Object)) -> DataInfo {
    let size = match object.kind {
        ObjectKind::Register { size, .. } => size,
        _ => 0,
    };
    let member = |(name, ty): &(String, Ty)| (name.clone(), ty.width(), matches!(ty, Ty::Int(_)));
    DataInfo {
        preamble,
        size,
        struct_name: object.control.data_name.as_deref().map(str::to_owned),
        members: object.control.data.iter().map(member).collect(),
    }
}
