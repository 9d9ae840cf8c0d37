//! BPF programs as they are written, instruction by instruction.
//!
//! What every program here needs and no more: operations on 64 bits, loads and stores, jumps
//! forward, calls of the kernel's functions. Register 9 is for what a step needs for itself.

/// Operations on 64 bits; with `REGISTER`, the operand is one.
pub(crate) const ADD: u8 = 0x07;
pub(crate) const SUBTRACT: u8 = 0x17;
pub(crate) const MULTIPLY: u8 = 0x27;
pub(crate) const AND: u8 = 0x57;
pub(crate) const LEFT: u8 = 0x67;
pub(crate) const RIGHT: u8 = 0x77;
pub(crate) const XOR: u8 = 0xa7;
pub(crate) const MOVE: u8 = 0xb7;
pub(crate) const REGISTER: u8 = 0x08;
pub(crate) const SWAP: u8 = 0xdc;
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const LOAD_HALF: u8 = 0x69;
pub(crate) const LOAD_BYTE: u8 = 0x71;
pub(crate) const LOAD_DOUBLE: u8 = 0x79;
pub(crate) const STORE_WORD: u8 = 0x63;
pub(crate) const STORE_HALF: u8 = 0x6b;
pub(crate) const STORE_BYTE: u8 = 0x73;
pub(crate) const STORE_DOUBLE: u8 = 0x7b;
pub(crate) const PUT_WORD: u8 = 0x62;
pub(crate) const PUT_HALF: u8 = 0x6a;
pub(crate) const JUMP_EQUAL: u8 = 0x15;
pub(crate) const JUMP_UNEQUAL: u8 = 0x55;
pub(crate) const JUMP_GREATER: u8 = 0x2d;
pub(crate) const JUMP_AT_LEAST: u8 = 0x3d;
pub(crate) const JUMP_SET: u8 = 0x45;
pub(crate) const JUMP_AT_MOST: u8 = 0xb5;
pub(crate) const LOAD_MAP: u8 = 0x18;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;

/// Functions of the kernel's.
pub(crate) const LOOK_UP: i32 = 1;
pub(crate) const TIME: i32 = 5;
pub(crate) const RANDOM: i32 = 7;
pub(crate) const REDIRECT: i32 = 23;
pub(crate) const ADJUST_TAIL: i32 = 65;
pub(crate) const COARSE_TIME: i32 = 160;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Instructions as they are written.
#[derive(Default)]
pub(crate) struct Code(pub(crate) Vec<Instruction>);

impl Code {
    pub(crate) fn put(&mut self, code: u8, registers: u8, offset: i16, immediate: i32) {
        self.0.push(Instruction { code, registers, offset, immediate });
    }

    pub(crate) fn op(&mut self, operation: u8, to: u8, immediate: i32) {
        self.put(operation, to, 0, immediate);
    }

    pub(crate) fn with(&mut self, operation: u8, to: u8, from: u8) {
        self.put(operation | REGISTER, from << 4 | to, 0, 0);
    }

    pub(crate) fn copy(&mut self, to: u8, from: u8) {
        self.with(MOVE, to, from);
    }

    pub(crate) fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.put(size, from << 4 | to, offset, 0);
    }

    pub(crate) fn store(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.put(size, from << 4 | to, offset, 0);
    }

    pub(crate) fn call(&mut self, function: i32) {
        self.put(CALL, 0, 0, function);
    }

    /// Loads a map's reference, which takes two instructions.
    pub(crate) fn load_map(&mut self, to: u8, map: i32) {
        const BY_DESCRIPTOR: u8 = 1;
        self.put(LOAD_MAP, BY_DESCRIPTOR << 4 | to, 0, map);
        self.put(0, 0, 0, 0);
    }

    /// Adds a word, which an immediate operand would take for a signed number; uses register 9.
    pub(crate) fn add_word(&mut self, to: u8, word: u32) {
        self.op(MOVE, 9, (word >> 16) as i32);
        self.op(LEFT, 9, 16);
        self.with(ADD, to, 9);
        self.op(ADD, to, (word & 0xffff) as i32);
    }

    /// Adds both halves of a word; uses register 9.
    pub(crate) fn add_halves(&mut self, to: u8, word: u8) {
        self.copy(9, word);
        self.op(RIGHT, 9, 16);
        self.with(ADD, to, 9);
        self.copy(9, word);
        self.op(AND, 9, 0xffff);
        self.with(ADD, to, 9);
    }

    /// Makes a sum the checksum, in network byte order; uses register 9.
    pub(crate) fn checksum(&mut self, sum: u8) {
        for _ in 0..3 {
            self.copy(9, sum);
            self.op(RIGHT, 9, 16);
            self.op(AND, sum, 0xffff);
            self.with(ADD, sum, 9);
        }
        self.op(XOR, sum, 0xffff);
        self.op(SWAP, sum, 16);
    }

    /// A jump that [`Self::land`] gives its target.
    pub(crate) fn jump(
        &mut self,
        condition: u8,
        [register, other]: [u8; 2],
        immediate: i32,
    ) -> usize {
        self.put(condition, other << 4 | register, 0, immediate);
        self.0.len() - 1
    }

    pub(crate) fn land(&mut self, jump: usize) {
        self.0[jump].offset = (self.0.len() - jump - 1) as i16;
    }
}
