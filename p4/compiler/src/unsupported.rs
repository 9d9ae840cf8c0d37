//! Features of the language, its core library or its architecture that this compiler lacks. A
//! program that uses one gets a message with its name, instead of one about a missing declaration.

/// Types, functions and match kinds that programs know from included texts.
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

/// Annotations that would change the program's behavior or its description for controllers, with
/// the alternative.
const ANNOTATIONS: [(&str, &str); 7] = [
    ("controller_header", "packets do not go to controllers; send a digest"),
    ("hidden", "controllers are told of all that there is; delete it"),
    ("optional", "every parameter has its argument; delete it"),
    ("p4runtime_translation", "controllers use the program's own numbers; delete it"),
    ("pragma", "write it as `@name(...)`, or delete it"),
    ("priority", "the first entry that fits wins; put them in that order"),
    ("tableonly", "every action can be a default; delete it"),
];

/// Message about a name, if its feature is not supported.
pub(crate) fn name(name: &str) -> Option<String> {
    NAMES.contains(&name).then(|| format!("`{name}` is not supported"))
}

/// Message about an annotation, if it is not supported.
pub(crate) fn annotation(name: &str) -> Option<String> {
    let (_, instead) = ANNOTATIONS.iter().find(|(one, _)| *one == name)?;
    Some(format!("`@{name}` is not supported: {instead}"))
}
