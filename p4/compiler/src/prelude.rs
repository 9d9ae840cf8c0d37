//! Texts for programs to include: the core library and the Portable NIC Architecture in the variant
//! of DPDK, written from their specifications.
//!
//! Unimplemented features are not declared, so a program that needs one is refused by name.

/// Names of the texts that can be included.
pub(crate) const NAMES: [&str; 3] = ["core.p4", "pna.p4", "dpdk/pna.p4"];

/// A text that can be included: its name and its content.
pub(crate) fn text(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "core.p4" => Some(("core.p4", include_str!("prelude/core.p4"))),
        "pna.p4" | "dpdk/pna.p4" => Some(("pna.p4", include_str!("prelude/pna.p4"))),
        _ => None,
    }
}
