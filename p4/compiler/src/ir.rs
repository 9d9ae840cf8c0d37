//! The typed intermediate form: a program with resolved names, types and instances.
//!
//! Every variable, field and parameter of every instance is a slot of its own, at most 128 bits
//! wide. A header has one more slot in front, its validity. The language has no recursion, so slots
//! need no stack. Expressions have no effects: calls precede the statement that contains them.

use crate::ast::{Binary, Unary};
use crate::source::{Sources, Span};
use std::sync::Arc;

/// The widest number, bits.
pub(crate) const MOST_BITS: u32 = 128;

/// Most states that a packet's parsers go through.
pub(crate) const MOST_STEPS: usize = 1024;

/// Type of a slot or an expression. Enums and errors without a representation have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Bool,
    Bit(u32),
    Int(u32),
}

impl Ty {
    /// Width, bits.
    pub(crate) fn width(self) -> u32 {
        match self {
            Self::Bool => 1,
            Self::Bit(width) | Self::Int(width) => width,
        }
    }

    /// All ones.
    pub(crate) fn mask(self) -> u128 {
        u128::MAX.checked_shr(MOST_BITS - self.width()).unwrap_or(0)
    }
}

/// Number of a slot.
pub(crate) type Slot = u32;

/// An expression. Its value has no bits beyond its type's; negative numbers are in two's
/// complement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) ty: Ty,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprKind {
    Const(u128),
    Slot(Slot),
    Unary(Unary, Box<Expr>),
    /// The right operand of a shift has a type of its own; concatenation puts the left operand's
    /// bits on top.
    Binary(Binary, Box<Expr>, Box<Expr>),
    Mux(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Conversion to the expression's type: cut, or extended according to the operand's type.
    Cast(Box<Expr>),
    /// The bits from `high` down to `low`.
    Slice(Box<Expr>, u32, u32),
}

impl Expr {
    pub(crate) fn constant(ty: Ty, value: u128) -> Self {
        Self { ty, kind: ExprKind::Const(value & ty.mask()) }
    }

    pub(crate) fn slot(ty: Ty, slot: Slot) -> Self {
        Self { ty, kind: ExprKind::Slot(slot) }
    }

    /// Visits every slot that the expression reads.
    pub(crate) fn slots(&self, visit: &mut impl FnMut(Slot)) {
        match &self.kind {
            ExprKind::Const(_) => {}
            ExprKind::Slot(slot) => visit(*slot),
            ExprKind::Unary(_, operand)
            | ExprKind::Cast(operand)
            | ExprKind::Slice(operand, ..) => operand.slots(visit),
            ExprKind::Binary(_, left, right) => {
                left.slots(visit);
                right.slots(visit);
            }
            ExprKind::Mux(condition, yes, no) => {
                [condition, yes, no].into_iter().for_each(|part| part.slots(visit));
            }
        }
    }

    pub(crate) fn as_constant(&self) -> Option<u128> {
        match self.kind {
            ExprKind::Const(value) => Some(value),
            _ => None,
        }
    }
}

/// Statements, one after the other.
pub(crate) type Block = Vec<Stmt>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stmt {
    /// All values are read before the first is written.
    Assign(Vec<(Slot, Expr)>),
    If(Expr, Block, Block),
    /// Cases by constants, and the default block.
    Switch(Expr, Vec<(Vec<u128>, Block)>, Block),
    /// Runs a routine, then makes assignments one after the other, also if the routine exits.
    Call(usize, Vec<(Slot, Expr)>),
    /// Runs a parser within a parser.
    Parse(usize),
    /// Looks up a table and runs an action; then sets the hit flag, and the index of the action in
    /// the table's list.
    Apply {
        table: usize,
        hit: Slot,
        action: Slot,
    },
    Return,
    Exit,
    /// Reads a header from the packet; leaves the parser if the packet is too short.
    Extract(Header),
    /// Reads without advancing.
    Lookahead(Vec<(Slot, Ty)>),
    /// Skips a number of bits.
    Advance(Expr),
    /// Leaves the parser with the error unless the condition holds.
    Verify(Expr, Expr),
    /// Appends a header, if it is valid.
    Emit(Header),
    /// Calls an extern of the architecture; results go to slots.
    Extern(ExternCall),
}

impl Stmt {
    /// Blocks within the statement.
    pub(crate) fn blocks(&self) -> Vec<&Block> {
        match self {
            Self::If(_, yes, no) => vec![yes, no],
            Self::Switch(_, arms, default) => {
                arms.iter().map(|(_, arm)| arm).chain([default]).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A header's slots.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) valid: Slot,
    pub(crate) fields: Vec<(Slot, Ty)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExternCall {
    pub(crate) op: Op,
    pub(crate) args: Vec<Expr>,
    pub(crate) results: Vec<Slot>,
}

/// Operations of the architecture's externs; the number is that of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// -> bytes
    PacketLength,
    Drop,
    /// port
    SendToPort,
    /// profile, arguments of that action of the table's list -> true if it was added
    AddEntry(usize),
    /// profile
    SetExpireTime,
    RestartTimer,
    /// index, length in bytes (0 if it is not given)
    Count(usize),
    /// index, colour before, length in bytes -> colour
    Meter(usize),
    /// index -> values
    RegisterRead(usize),
    /// index, values
    RegisterWrite(usize),
    /// data -> hash
    Hash(usize),
    ChecksumClear(usize),
    /// data
    ChecksumAdd(usize),
    /// data
    ChecksumSubtract(usize),
    /// -> checksum
    ChecksumGet(usize),
    /// -> state
    ChecksumState(usize),
    /// state
    ChecksumSetState(usize),
    /// -> number
    Random(usize),
    /// data
    Digest(usize),
}

/// An instance of an extern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ObjectKind,
    pub(crate) control: ControlInfo,
}

/// Properties of an object for controllers, besides its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ControlInfo {
    /// Number from the program.
    pub(crate) id: Option<u32>,
    /// Unit of a counter.
    pub(crate) unit: Unit,
    /// Name of the struct of a register or digest, if it is one.
    pub(crate) data_name: Option<Arc<str>>,
    /// Members of that data.
    pub(crate) data: Vec<(String, Ty)>,
}

/// Unit of a counter or meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Packets.
    #[default]
    Packets,
    /// Both.
    Both,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjectKind {
    Counter {
        size: u32,
        width: u32,
    },
    /// `bytes` is true if bytes count, false for packets.
    Meter {
        size: u32,
        bytes: bool,
    },
    Register {
        size: u32,
        initial: Vec<(Ty, u128)>,
    },
    Hash {
        algorithm: Algorithm,
        ty: Ty,
    },
    Checksum,
    Random {
        ty: Ty,
        least: u128,
        most: u128,
    },
    Digest {
        fields: Vec<(String, Ty)>,
    },
}

/// Method of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The last bits of the data.
    Identity,
    /// CRC-32 as in Ethernet.
    Crc32,
    /// CRC-16/ARC.
    Crc16,
    /// The Internet checksum.
    OnesComplement16,
}

/// An action, function, control or block: statements that `return` leaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Routine {
    pub(crate) name: Arc<str>,
    pub(crate) body: Block,
}

/// An action as tables know it: entries supply the parameters without a direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Action {
    pub(crate) name: Arc<str>,
    pub(crate) params: Vec<(String, Slot, Ty)>,
    pub(crate) routine: usize,
    /// Number for controllers from the program.
    pub(crate) id: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Vec<Key>,
    /// Indexes of actions.
    pub(crate) actions: Vec<usize>,
    /// An index into `actions`, and arguments.
    pub(crate) default: (usize, Vec<u128>),
    pub(crate) default_is_const: bool,
    /// Most entries.
    pub(crate) size: usize,
    pub(crate) add_on_miss: bool,
    /// True if entries that the data plane adds expire.
    pub(crate) expires: bool,
    /// Entries of the program; if there are any, the table has no others.
    pub(crate) entries: Vec<Entry>,
    /// Indexes into `actions` of those that no entry may have.
    pub(crate) default_only: Vec<usize>,
    /// Number for controllers from the program.
    pub(crate) id: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) expr: Expr,
    pub(crate) kind: MatchKind,
}

/// The kind of a key's match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// All bits must match.
    Exact,
    /// The first bits must match; the longest prefix wins.
    Lpm,
    /// The masked bits must match; the highest priority wins.
    Ternary,
}

/// Match of one key: its bits where the mask has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Bits; zero where the mask is zero.
    pub value: u128,
    /// Mask of the bits that matter.
    pub mask: u128,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) keys: Vec<Match>,
    /// An index into the table's actions.
    pub(crate) action: usize,
    pub(crate) args: Vec<u128>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parser {
    pub(crate) name: Arc<str>,
    /// Block that runs before the first state.
    pub(crate) init: Block,
    pub(crate) states: Vec<State>,
    pub(crate) start: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) name: Arc<str>,
    pub(crate) body: Block,
    pub(crate) next: Next,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    To(Target),
    /// Keys, and the matches of each case. If no case matches, the parser rejects with
    /// error.NoMatch.
    Select(Vec<Expr>, Vec<(Vec<Match>, Target)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    State(usize),
    Accept,
    Reject,
}

/// Slots with the architecture's information about a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Metadata {
    pub(crate) input_ports: Vec<Slot>,
    pub(crate) timestamps: Vec<Slot>,
    pub(crate) parser_errors: Vec<Slot>,
    /// For main parser, pre control, main control and deparser: first slot and number of slots of
    /// each parameter.
    pub(crate) params: [Vec<(Slot, usize)>; 4],
}

impl Metadata {
    /// Headers and metadata that a part (1: pre control, 2: main control, 3: deparser) gets from
    /// the parts before it: source slot, target slot, number of slots.
    pub(crate) fn handed_on(&self, part: usize) -> [(Slot, Slot, usize); 2] {
        [0, 1].map(|param| {
            // Pre control must not change headers, so main control gets them from the parser.
            let before = if (part, param) == (2, 0) { 0 } else { part - 1 };
            let (from, size) = self.params[before][param];
            (from, self.params[part][param].0, size)
        })
    }
}

/// A whole program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub(crate) slots: Vec<(Arc<str>, Ty)>,
    pub(crate) errors: Vec<Arc<str>>,
    pub(crate) objects: Vec<Object>,
    pub(crate) routines: Vec<Routine>,
    pub(crate) actions: Vec<Action>,
    pub(crate) tables: Vec<Table>,
    pub(crate) parsers: Vec<Parser>,
    pub(crate) metadata: Metadata,
    /// The parser, and the routines of pre control, main control and deparser.
    pub(crate) parser: usize,
    pub(crate) controls: Vec<usize>,
    pub(crate) places: Places,
}

/// Locations of parts of the program, for messages of targets that lack a feature.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Places {
    pub(crate) sources: Sources,
    /// Location of each slot's declaration.
    pub(crate) slots: Vec<Span>,
    /// Location of each object's name.
    pub(crate) objects: Vec<Span>,
    /// Location of each table's name.
    pub(crate) tables: Vec<Span>,
    /// Locations of features that some targets lack, in the order of the program.
    pub(crate) noted: Vec<(Noted, Span)>,
}

/// A feature that some targets lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// An operator, and true if it is on signed numbers.
    Operator(Binary, bool),
    /// A signed number becomes a wider one.
    Extension,
    /// `advance`.
    Advance,
    /// `lookahead`.
    Lookahead,
    /// `emit`.
    Emit,
}

impl Program {
    /// Number of an error; that of `NoError` if the name is unknown.
    pub(crate) fn error(&self, name: &str) -> usize {
        self.errors.iter().position(|error| &**error == name).unwrap_or(0)
    }
}
