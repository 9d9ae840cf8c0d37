//! An assembler for BPF programs.
//!
//! The assembler has only the instructions that this project's programs use: operations on 64 bits,
//! loads and stores, forward jumps, calls of kernel functions. Register 10 is the end of the stack.
//! Three methods use register 9 as scratch space and say so.

/// Adds. Operations work on 64 bits; with [`REGISTER`], the operand is a register.
pub const ADD: u8 = 0x07;
/// Subtracts.
pub const SUBTRACT: u8 = 0x17;
/// Multiplies.
pub const MULTIPLY: u8 = 0x27;
/// Bitwise and.
pub const AND: u8 = 0x57;
/// Shifts left.
pub const LEFT: u8 = 0x67;
/// Shifts right.
pub const RIGHT: u8 = 0x77;
/// Bitwise exclusive or.
pub const XOR: u8 = 0xa7;
/// Sets the register.
pub const MOVE: u8 = 0xb7;
/// Added to an operation: the operand is a register.
pub const REGISTER: u8 = 0x08;
/// Makes the low bits of a register big endian; the immediate is their number.
pub const SWAP: u8 = 0xdc;
/// Loads 4 bytes.
pub const LOAD_WORD: u8 = 0x61;
/// Loads 2 bytes.
pub const LOAD_HALF: u8 = 0x69;
/// Loads 1 byte.
pub const LOAD_BYTE: u8 = 0x71;
/// Loads 8 bytes.
pub const LOAD_DOUBLE: u8 = 0x79;
/// Stores 4 bytes of a register.
pub const STORE_WORD: u8 = 0x63;
/// Stores 2 bytes of a register.
pub const STORE_HALF: u8 = 0x6b;
/// Stores 1 byte of a register.
pub const STORE_BYTE: u8 = 0x73;
/// Stores 8 bytes of a register.
pub const STORE_DOUBLE: u8 = 0x7b;
/// Stores 4 bytes of the immediate.
pub const PUT_WORD: u8 = 0x62;
/// Stores 2 bytes of the immediate.
pub const PUT_HALF: u8 = 0x6a;
/// Jumps always.
pub const JUMP: u8 = 0x05;
/// Jumps if a register and an immediate are equal.
pub const JUMP_EQUAL: u8 = 0x15;
/// Jumps if the low 32 bits of a register and an immediate are equal.
pub const JUMP_EQUAL_32: u8 = 0x16;
/// Jumps if a register and an immediate differ.
pub const JUMP_UNEQUAL: u8 = 0x55;
/// Jumps if one register is greater than another.
pub const JUMP_GREATER: u8 = 0x2d;
/// Jumps if one register is at least another.
pub const JUMP_AT_LEAST: u8 = 0x3d;
/// Jumps if a register has a bit of the immediate.
pub const JUMP_SET: u8 = 0x45;
/// Jumps if a register is at most an immediate.
pub const JUMP_AT_MOST: u8 = 0xb5;
const LOAD_MAP: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `bpf_map_lookup_elem`.
pub const LOOK_UP: i32 = 1;
/// `bpf_ktime_get_ns`.
pub const TIME: i32 = 5;
/// `bpf_get_prandom_u32`.
pub const RANDOM: i32 = 7;
/// `bpf_redirect`.
pub const REDIRECT: i32 = 23;
/// `bpf_redirect_map`.
pub const REDIRECT_MAP: i32 = 51;
/// `bpf_xdp_adjust_tail`.
pub const ADJUST_TAIL: i32 = 65;
/// `bpf_ktime_get_coarse_ns`.
pub const COARSE_TIME: i32 = 160;

/// An XDP program's answer: the kernel drops the frame.
pub const XDP_DROP: i32 = 1;
/// An XDP program's answer: the frame goes on to the kernel's network stack.
pub const XDP_PASS: i32 = 2;

/// One instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

#[cfg(test)]
impl Instruction {
    /// Bytes of the instruction in the memory of a little-endian machine.
    pub(crate) fn to_le_bytes(self) -> [u8; 8] {
        let mut bytes = [self.code, self.registers, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..].copy_from_slice(&self.immediate.to_le_bytes());
        bytes
    }
}

/// A jump whose target [`Code::land`] sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a jump without a target leads nowhere"]
pub struct Jump(usize);

/// A program under construction.
#[derive(Clone, Debug, Default)]
pub struct Code(Vec<Instruction>);

impl Code {
    /// The instructions so far.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    fn instruction(&mut self, code: u8, [to, from]: [u8; 2], offset: i16, immediate: i32) {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.0.push(Instruction { code, registers, offset, immediate });
    }

    /// Appends an operation of a register and an immediate.
    pub fn op(&mut self, operation: u8, to: u8, immediate: i32) {
        self.instruction(operation, [to, 0], 0, immediate);
    }

    /// Appends an operation of two registers.
    pub fn with(&mut self, operation: u8, to: u8, from: u8) {
        self.instruction(operation | REGISTER, [to, from], 0, 0);
    }

    /// Copies a register.
    pub fn copy(&mut self, to: u8, from: u8) {
        self.with(MOVE, to, from);
    }

    /// Loads from the address in register `from`, plus `offset` bytes.
    pub fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.instruction(size, [to, from], offset, 0);
    }

    /// Stores a register at the address in register `to`, plus `offset` bytes.
    pub fn store(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.instruction(size, [to, from], offset, 0);
    }

    /// Stores an immediate at the address in register `to`, plus `offset` bytes.
    pub fn put(&mut self, size: u8, to: u8, offset: i16, immediate: i32) {
        self.instruction(size, [to, 0], offset, immediate);
    }

    /// Calls a kernel function.
    pub fn call(&mut self, function: i32) {
        self.instruction(CALL, [0, 0], 0, function);
    }

    /// Ends the program; register 0 has the answer.
    pub fn exit(&mut self) {
        self.instruction(EXIT, [0, 0], 0, 0);
    }

    /// Loads a reference to a map, which takes two instructions.
    pub fn load_map(&mut self, to: u8, map: i32) {
        const BY_DESCRIPTOR: u8 = 1;
        self.instruction(LOAD_MAP, [to, BY_DESCRIPTOR], 0, map);
        self.instruction(0, [0, 0], 0, 0);
    }

    /// Adds a word. As an immediate operand the word would be a signed number. Uses register 9.
    pub fn add_word(&mut self, to: u8, word: u32) {
        self.op(MOVE, 9, (word >> 16) as i32);
        self.op(LEFT, 9, 16);
        self.with(ADD, to, 9);
        self.op(ADD, to, (word & 0xffff) as i32);
    }

    /// Adds both halves of a word; uses register 9.
    pub fn add_halves(&mut self, to: u8, word: u8) {
        self.copy(9, word);
        self.op(RIGHT, 9, 16);
        self.with(ADD, to, 9);
        self.copy(9, word);
        self.op(AND, 9, 0xffff);
        self.with(ADD, to, 9);
    }

    /// Turns a sum into the checksum, in network byte order; uses register 9.
    pub fn checksum(&mut self, sum: u8) {
        for _ in 0..3 {
            self.copy(9, sum);
            self.op(RIGHT, 9, 16);
            self.op(AND, sum, 0xffff);
            self.with(ADD, sum, 9);
        }
        self.op(XOR, sum, 0xffff);
        self.op(SWAP, sum, 16);
    }

    /// Appends a forward jump; [`Self::land`] sets its target.
    pub fn jump(&mut self, condition: u8, [register, other]: [u8; 2], immediate: i32) -> Jump {
        self.instruction(condition, [register, other], 0, immediate);
        Jump(self.0.len() - 1)
    }

    /// Makes the next instruction the target of a jump. A jump counts from the instruction behind
    /// it.
    pub fn land(&mut self, jump: Jump) {
        self.0[jump.0].offset = (self.0.len() - jump.0 - 1) as i16;
    }
}
