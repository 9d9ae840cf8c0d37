//! What the language, its core library or its architecture has and this compiler has not, so that a
//! program that uses it is told so by name, and not that it forgot a declaration.

/// Types, functions and match kinds that programs know from texts that they include.
const NAMES: [&str; 19] = [
    "ActionProfile",
    "ActionSelector",
    "Checksum",
    "DirectCounter",
    "DirectMeter",
    "add_entry_if",
    "allocate_flow_id",
    "assert",
    "assume",
    "ipsec_accelerator",
    "log_msg",
    "mirror_packet",
    "optional",
    "range",
    "recirculate",
    "resubmit",
    "selector",
    "set_entry_expire_time_if_enabled",
    "static_assert",
];

/// Annotations that would change what a program does or what controllers are told, and what to do
/// instead.
const ANNOTATIONS: [(&str, &str); 7] = [
    ("controller_header", "packets do not go to controllers; send a digest"),
    ("hidden", "controllers are told of all that there is; delete it"),
    ("optional", "every parameter has its argument; delete it"),
    ("p4runtime_translation", "controllers use the program's own numbers; delete it"),
    ("pragma", "write it as `@name(...)`, or delete it"),
    ("priority", "the first entry that fits wins; put them in that order"),
    ("tableonly", "every action can be a default; delete it"),
];

/// The sentence about a name, if it is one of something that is not supported.
pub(crate) fn name(name: &str) -> Option<String> {
    NAMES.contains(&name).then(|| format!("`{name}` is not supported"))
}

/// The sentence about an annotation, if it is not supported.
pub(crate) fn annotation(name: &str) -> Option<String> {
    let (_, instead) = ANNOTATIONS.iter().find(|(one, _)| *one == name)?;
    Some(format!("`@{name}` is not supported: {instead}"))
}
