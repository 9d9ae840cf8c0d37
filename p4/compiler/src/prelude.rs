//! What programs include: the core library and the Portable NIC Architecture in the flavour of
//! DPDK, written from their specifications.
//!
//! What is not implemented is not declared either, so a program that needs it is refused by name.

/// What can be included.
pub(crate) const NAMES: [&str; 3] = ["core.p4", "pna.p4", "dpdk/pna.p4"];

/// A text that can be included: its own name and what it says.
pub(crate) fn text(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "core.p4" => Some(("core.p4", include_str!("prelude/core.p4"))),
        "pna.p4" | "dpdk/pna.p4" => Some(("pna.p4", include_str!("prelude/pna.p4"))),
        _ => None,
    }
}
