//! P4 programs that tests execute.
//!
//! `programs/` has a program for each construct of the language, NAME.p4, with a story beside it,
//! NAME.txt: packets in, and the result that a person worked out (`tests/stories.rs` explains the
//! form). Larger programs there combine all constructs. The build compiles each to Rust, in the
//! module NAME. Tests compare that Rust with the interpreter and with DPDK's SWX.
//!
//! ```
//! use natgate_p4::{Machine, compile};
//! use natgate_p4_examples::{SMALL, small::Small};
//!
//! let program = compile("small.p4", SMALL).expect("it compiles");
//! let machine = Machine::with(&program, Box::new(Small::new(0)));
//! ```

/// Text of the program `small`.
pub const SMALL: &str = include_str!("../programs/small.p4");
/// Text of a program with every construct.
pub const EVERY: &str = include_str!("../programs/every.p4");
/// Text of a program that the compiler divides into halves.
pub const HALVED: &str = include_str!("../programs/halved.p4");
/// Text of a program that DPDK's SWX executes as well: its headers are whole bytes.
pub const ALIGNED: &str = include_str!("../programs/aligned.p4");

include!(concat!(env!("OUT_DIR"), "/programs.rs"));
