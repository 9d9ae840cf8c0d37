//! BPF programs of the bed's own: the generator's, and those that are measured.

pub(crate) mod code;
pub(crate) mod sys;
