//! Instructions before they become text: operands by number, jumps by label.

/// The pipeline's private header in front of every received packet, and its fields.
pub(super) const ARRIVAL: usize = 0;
pub(super) const PORT: usize = 0;
pub(super) const LENGTH: usize = 1;
pub(super) const TIME: usize = 2;

/// The header in front of every packet that leaves, with its port. A packet without it is dropped.
pub(super) const DEPARTURE: usize = 1;

/// A header without a packet, for the instruction that sums headers.
pub(super) const SUM: usize = 2;
pub(super) const SUM_OUT: usize = 0;
pub(super) const SUM_TOTAL: usize = 1;

/// Index of the program's first header.
pub(super) const FIRST_OWN: usize = 3;

/// Metadata that `rx` writes, and metadata that `tx` reads, which is always zero.
pub(super) const META_IN: usize = 0;
pub(super) const META_OUT: usize = 1;

/// Location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Field {
    Meta(usize),
    /// Index of the header and of the field.
    Header(usize, usize),
    /// An argument of the action.
    Arg(usize),
    /// A field of an extern object's mailbox.
    Mail(usize, usize),
}

/// An operand that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Field(Field),
    Const(u64),
}

impl Value {
    pub(super) fn field(self) -> Option<Field> {
        match self {
            Self::Field(field) => Some(field),
            Self::Const(_) => None,
        }
    }
}

pub(super) type Label = usize;

/// Comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    NotEqual,
    Less,
    Greater,
}

impl Test {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Equal => "jmpeq",
            Self::NotEqual => "jmpneq",
            Self::Less => "jmplt",
            Self::Greater => "jmpgt",
        }
    }

    /// The comparison with the operands exchanged.
    pub(super) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::Greater => Self::Less,
            same => same,
        }
    }

    pub(super) fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::Greater => left > right,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instr {
    Label(Label),
    Rx,
    /// Sends to the port that is always zero.
    Tx,
    /// Sends to the port of dropped packets.
    TxDropped,
    Extract(usize),
    Lookahead(usize),
    Emit(usize),
    Validate(usize),
    Invalidate(usize),
    /// Makes the fields of headers use their own memory instead of an earlier packet's.
    Reset(Vec<usize>),
    /// Sets values that are read before they are written to zero.
    Zero,
    Mov(Field, Value),
    Alu(&'static str, Field, Value),
    /// Adds a field to the complement of a checksum.
    CheckAdd(Field, Field),
    /// Adds a header to the complement of a checksum.
    CheckAddHeader(Field, usize),
    /// Array, target, index.
    Read(usize, Field, Value),
    /// Array, index, value.
    Write(usize, Value, Value),
    /// Array, index, increment.
    Increase(usize, Value, Value),
    Extern(usize, &'static str),
    Table(usize),
    Jump(Label),
    Compare(Test, Label, Field, Value),
    IfValid(bool, Label, usize),
    IfHit(bool, Label),
    /// Jumps depending on the number of the action that a table ran.
    IfAction(bool, Label, usize, usize),
    Return,
}

impl Instr {
    /// Target of the jump, if the instruction is one.
    pub(super) fn target(&self) -> Option<Label> {
        match self {
            Self::Jump(to)
            | Self::Compare(_, to, ..)
            | Self::IfValid(_, to, _)
            | Self::IfHit(_, to)
            | Self::IfAction(_, to, ..) => Some(*to),
            _ => None,
        }
    }

    /// Changes the target of the jump, if the instruction is one.
    pub(super) fn jump_to(&mut self, label: Label) {
        if let Self::Jump(to)
        | Self::Compare(_, to, ..)
        | Self::IfValid(_, to, _)
        | Self::IfHit(_, to)
        | Self::IfAction(_, to, ..) = self
        {
            *to = label;
        }
    }

    /// True if the next instruction is not reached from here.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Self::Jump(_) | Self::Return | Self::Tx | Self::TxDropped)
    }

    /// Fields that the instruction reads; a field that it updates is not among them.
    pub(super) fn reads(&self) -> Vec<Field> {
        let values: Vec<Value> = match self {
            Self::Mov(_, value) | Self::Alu(_, _, value) | Self::Read(_, _, value) => vec![*value],
            Self::CheckAdd(to, from) => vec![Value::Field(*to), Value::Field(*from)],
            Self::CheckAddHeader(to, from) => {
                vec![Value::Field(*to), Value::Field(Field::Header(*from, 0))]
            }
            Self::Write(_, index, value) | Self::Increase(_, index, value) => vec![*index, *value],
            Self::Compare(_, _, left, right) => vec![Value::Field(*left), *right],
            Self::Tx => vec![Value::Field(Field::Meta(META_OUT))],
            _ => Vec::new(),
        };
        values.into_iter().filter_map(Value::field).collect()
    }

    /// Field that the instruction writes.
    pub(super) fn writes(&self) -> Option<Field> {
        match self {
            Self::Rx => Some(Field::Meta(META_IN)),
            Self::Mov(to, _) | Self::Alu(_, to, _) | Self::Read(_, to, _) => Some(*to),
            Self::CheckAdd(to, _) | Self::CheckAddHeader(to, _) => Some(*to),
            _ => None,
        }
    }

    /// Changes the field that the instruction writes.
    pub(super) fn write_to(&mut self, field: Field) {
        if let Self::Mov(to, _) | Self::Read(_, to, _) = self {
            *to = field;
        }
    }

    /// True if the written value depends on the former one.
    pub(super) fn updates(&self) -> bool {
        matches!(self, Self::Alu(..) | Self::CheckAdd(..) | Self::CheckAddHeader(..))
    }
}
