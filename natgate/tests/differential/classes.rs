//! Classes of differences, each explained in docs/differential.md, and the conditions of each
//! class.
//!
//! A class about a field takes the field out of the comparison; the other fields are still
//! compared. A class about the packets themselves must describe the packets of both translators. No
//! rule is lenient: a difference that does not fit a rule exactly stays a difference.

use natgate_engine::Side;
use natgate_wire::protocol;

use crate::observation::Observation;
use crate::packets::RST;
use crate::script::{Kind, Step};

/// Reason why two translators differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    ErrorPrecedence,
    ErrorUncut,
    ReplyIdentification,
    FragmentIdentification,
    FragmentOrder,
    FragmentsIncomplete,
    FragmentsOverlap,
    FragmentTiny,
    RecordRoute,
    Timestamp,
    ParameterProblem,
    Uninvited,
    UninvitedSyn,
    MidStream,
    BadTcp,
    BadLength,
    OddIcmp,
    ErrorAboutNothing,
    EmbeddedHeader,
    WrongChecksumOut,
    WrongChecksumIn,
    OutOfWindowOut,
    OutOfWindowIn,
    Dccp,
    UdpLite,
    Reserved,
    Land,
    Foreign,
    Spoofed,
    ToGateway,
    SameSide,
    Hairpin,
    PingAcross,
    Overloading,
}

impl Class {
    pub(crate) const ALL: [Self; 34] = [
        Self::ErrorPrecedence,
        Self::ErrorUncut,
        Self::ReplyIdentification,
        Self::FragmentIdentification,
        Self::FragmentOrder,
        Self::FragmentsIncomplete,
        Self::FragmentsOverlap,
        Self::FragmentTiny,
        Self::RecordRoute,
        Self::Timestamp,
        Self::ParameterProblem,
        Self::Uninvited,
        Self::UninvitedSyn,
        Self::MidStream,
        Self::BadTcp,
        Self::BadLength,
        Self::OddIcmp,
        Self::ErrorAboutNothing,
        Self::EmbeddedHeader,
        Self::WrongChecksumOut,
        Self::WrongChecksumIn,
        Self::OutOfWindowOut,
        Self::OutOfWindowIn,
        Self::Dccp,
        Self::UdpLite,
        Self::Reserved,
        Self::Land,
        Self::Foreign,
        Self::Spoofed,
        Self::ToGateway,
        Self::SameSide,
        Self::Hairpin,
        Self::PingAcross,
        Self::Overloading,
    ];
}

/// Classes of a step's difference.
///
/// # Errors
/// The rest of the difference without all known parts.
pub(crate) fn explain(
    step: &Step,
    mut natgate: Vec<Observation>,
    mut linux: Vec<Observation>,
) -> Result<Vec<Class>, String> {
    if let Some(class) = whole(step, &natgate, &linux) {
        return Ok(vec![class]);
    }
    let mut classes = Vec::new();
    if in_other_order(step, &natgate, &linux) {
        classes.push(Class::FragmentOrder);
        natgate.sort_by_key(offset);
        linux.sort_by_key(offset);
    }
    for (natgate, linux) in natgate.iter_mut().zip(&mut linux) {
        accident(step, natgate, linux);
        for (class, rule) in FIELDS {
            if rule(step, natgate, linux) {
                classes.push(class);
            }
        }
    }
    classes.dedup();
    if natgate == linux { Ok(classes) } else { Err(left(&natgate, &linux)) }
}

/// Fields in which packets still differ.
fn left(natgate: &[Observation], linux: &[Observation]) -> String {
    let differ = |(natgate, linux): (&Observation, &Observation)| {
        let names = natgate.fields.keys().chain(linux.fields.keys());
        let mut names: Vec<_> = names.filter(|name| natgate.get(name) != linux.get(name)).collect();
        names.sort();
        names.dedup();
        format!("{names:?}")
    };
    let fields: Vec<_> = natgate.iter().zip(linux).map(differ).collect();
    format!("{} and {} packets, fields {}", natgate.len(), linux.len(), fields.join(", "))
}

/// A difference in a field. If it fits the description, the rule makes both fields equal and
/// returns true.
type Rule = fn(&Step, &mut Observation, &mut Observation) -> bool;

const FIELDS: [(Class, Rule); 8] = [
    (Class::ErrorPrecedence, error_precedence),
    (Class::ErrorUncut, error_uncut),
    (Class::ReplyIdentification, reply_identification),
    (Class::FragmentIdentification, fragment_identification),
    (Class::RecordRoute, |step, natgate, linux| option(step, 0x07, natgate, linux)),
    (Class::Timestamp, |step, natgate, linux| option(step, 0x44, natgate, linux)),
    (Class::Dccp, dccp),
    (Class::Overloading, overloading),
];

fn error_precedence(step: &Step, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let tos = |seen: &Observation, name| u8::from_str_radix(seen.get(name), 16).unwrap_or_default();
    let own = step.kind == Kind::OwnError && is_own_error(natgate) && is_own_error(linux);
    let as_caused = tos(natgate, "tos") == tos(natgate, "about.tos") & !0x03;
    let control = tos(linux, "tos") >> 5 == 6;
    own && as_caused && control && forget("tos", natgate, linux)
}

fn error_uncut(step: &Step, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let own = step.kind == Kind::OwnError && is_own_error(natgate) && is_own_error(linux);
    let found = own && natgate.get("fragment") == "DF 0" && linux.get("fragment") == "0";
    found && forget("fragment", natgate, linux)
}

fn reply_identification(step: &Step, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let own = step.kind == Kind::Ping && natgate.get("type") == "0/0" && natgate.get("ttl") == "64";
    let found = own && natgate.get("id") == "kept" && linux.get("id") == "new";
    found && forget("id", natgate, linux)
}

fn fragment_identification(_: &Step, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let piece = natgate.get("from") == "external" && natgate.get("fragment") != "0";
    let found = piece && natgate.get("id") == "new" && linux.get("id") == "kept";
    found && forget("id", natgate, linux)
}

/// An option that Linux fills in and natgate passes unchanged.
fn option(step: &Step, kind: u8, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let (as_sent, filled) = (natgate.get("options"), linux.get("options"));
    let kind = format!("{kind:02x}");
    let found = step.kind == Kind::Options
        && as_sent.starts_with(&kind)
        && as_sent[8..].bytes().all(|digit| digit == b'0')
        && filled.starts_with(&kind)
        && filled.len() == as_sent.len()
        && filled != as_sent;
    found && forget("options", natgate, linux)
}

fn dccp(step: &Step, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let (right, stale) = (natgate.get("checksum"), linux.get("checksum"));
    let found = step.kind == Kind::Dccp && right == "right" && stale.starts_with("wrong by");
    found && forget("checksum", natgate, linux)
}

/// Linux gives two subscribers one external port, and later gives one of them another port for
/// another remote endpoint. natgate does neither.
fn overloading(step: &Step, natgate: &mut Observation, linux: &mut Observation) -> bool {
    let (ours, theirs) = (natgate.get("port"), linux.get("port"));
    let shared = ours.ends_with(" alone") && theirs.ends_with(" shared");
    let changed = ours.ends_with(" constant alone") && theirs.starts_with("taken changed ");
    let found = step.kind == Kind::Contended && (shared || changed);
    found && forget("port", natgate, linux)
}

/// By random choice, either translator may have given this step's preferred port to another
/// subscriber after a collision of two. That is no difference.
fn accident(step: &Step, natgate: &mut Observation, linux: &mut Observation) {
    let taken = |seen: &Observation| seen.get("port").starts_with("taken ");
    if step.kind != Kind::Contended && taken(natgate) != taken(linux) {
        forget("port", natgate, linux);
    }
}

fn forget(field: &str, natgate: &mut Observation, linux: &mut Observation) -> bool {
    natgate.remove(field);
    linux.remove(field);
    true
}

/// Equal fragments in another order: natgate sends the first fragment first, and Linux sends all by
/// their offset.
fn in_other_order(step: &Step, natgate: &[Observation], linux: &[Observation]) -> bool {
    step.kind == Kind::Fragments
        && natgate.len() == linux.len()
        && natgate.first().is_some_and(|first| offset(first) == 0)
        && linux.is_sorted_by_key(offset)
        && !natgate.is_sorted_by_key(offset)
}

/// Offset of a fragment.
fn offset(seen: &Observation) -> usize {
    let last = seen.get("fragment").split(' ').next_back().unwrap_or_default();
    last.parse().unwrap_or(usize::MAX)
}

/// Class of a difference in the number of packets.
fn whole(step: &Step, natgate: &[Observation], linux: &[Observation]) -> Option<Class> {
    match (natgate, linux) {
        ([], [linux]) => only_linux(step, linux),
        ([natgate], []) => only_natgate(step, natgate),
        ([natgate], [linux]) => one_each(step, natgate, linux),
        (natgate, linux) => fragments(step, natgate, linux),
    }
}

fn only_linux(step: &Step, linux: &Observation) -> Option<Class> {
    let leaked = is_leaked(step, linux);
    let refused = is_refusal(step, linux);
    let forwarded = linux.get("id") == "kept";
    let outward = forwarded && linux.get("side") == "Outside" && linux.get("from") == "external";
    let found = match step.kind {
        Kind::Uninvited if refused => Class::Uninvited,
        Kind::MidStream if outward || leaked => Class::MidStream,
        Kind::OddFlags if leaked => Class::BadTcp,
        Kind::BadLength if leaked => Class::BadLength,
        Kind::OddIcmp | Kind::UninvitedReply if leaked || outward => Class::OddIcmp,
        Kind::UnknownError if leaked => Class::ErrorAboutNothing,
        Kind::UnknownError if forwarded && linux.get("about.header") == "wrong" => {
            Class::EmbeddedHeader
        }
        Kind::Options if is_own_error(linux) && linux.get("type") == "12/0" => {
            Class::ParameterProblem
        }
        Kind::Martian if outward && step.name == "source equals destination" => Class::Land,
        Kind::Martian if forwarded && step.name.starts_with("reserved ") => Class::Reserved,
        Kind::Foreign if outward => Class::Foreign,
        // The error goes to the internal host whose address was forged.
        Kind::Spoofed if is_own_error(linux) && linux.get("side") == "Inside" => Class::Spoofed,
        Kind::ToGateway if refused => Class::ToGateway,
        Kind::SameSide if forwarded && linux.get("side") == "Inside" => Class::SameSide,
        // The filter refuses the first packet.
        Kind::Hairpin if refused => Class::Hairpin,
        _ => return None,
    };
    Some(found)
}

fn only_natgate(step: &Step, natgate: &Observation) -> Option<Class> {
    let inward = natgate.get("side") == "Inside" && natgate.get("id") == "kept";
    let first = natgate.get("from") == "external" && natgate.get("fragment") == "MF 0";
    match step.kind {
        Kind::WrongChecksum if inward && natgate.get("checksum").starts_with("wrong by") => {
            Some(Class::WrongChecksumIn)
        }
        Kind::BadFragments if first && step.name == "overlapping fragments" => {
            Some(Class::FragmentsOverlap)
        }
        _ => None,
    }
}

fn one_each(step: &Step, natgate: &Observation, linux: &Observation) -> Option<Class> {
    let translated = natgate.get("from") == "external" && natgate.get("id") == "kept";
    let inward = natgate.get("side") == "Inside" && natgate.get("id") == "kept";
    let leaked = is_leaked(step, linux);
    let late = is_own_error(natgate) && natgate.get("type") == "3/3";
    let found = match step.kind {
        Kind::UninvitedSyn if late && is_reset(linux) => Class::UninvitedSyn,
        Kind::WrongChecksum
            if translated && leaked && natgate.get("checksum") == linux.get("checksum") =>
        {
            Class::WrongChecksumOut
        }
        Kind::OutOfWindow if translated && leaked => Class::OutOfWindowOut,
        Kind::OutOfWindow if inward && is_reset(linux) => Class::OutOfWindowIn,
        Kind::UdpLite if translated && leaked => Class::UdpLite,
        Kind::UdpLite if inward && is_refusal(step, linux) => Class::UdpLite,
        Kind::Hairpin if inward && translated && is_refusal(step, linux) => Class::Hairpin,
        Kind::PingAcross
            if inward && natgate.get("type") == "8/0" && linux.get("type") == "0/0" =>
        {
            Class::PingAcross
        }
        _ => return None,
    };
    Some(found)
}

fn fragments(step: &Step, natgate: &[Observation], linux: &[Observation]) -> Option<Class> {
    let first = natgate.first().is_some_and(|first| first.get("fragment") == "MF 0");
    let found = match (step.name, natgate.len(), linux.len()) {
        ("a fragment is missing", 3, 0) if first => Class::FragmentsIncomplete,
        ("a tiny first fragment", 0, 3) => Class::FragmentTiny,
        _ => return None,
    };
    Some(found)
}

/// True if a packet from inside was forwarded untranslated, with its internal address.
fn is_leaked(step: &Step, seen: &Observation) -> bool {
    let internal = seen.get("from").starts_with("10.0.0.");
    step.side == Side::Inside
        && seen.get("side") == "Outside"
        && internal
        && seen.get("id") == "kept"
}

/// True for an ICMP error of the translator itself.
fn is_own_error(seen: &Observation) -> bool {
    seen.get("id") == "new" && seen.get("ttl") == "64" && !seen.get("about.from").is_empty()
}

/// True for a TCP reset of the translator itself.
fn is_reset(seen: &Observation) -> bool {
    const FLAGS: std::ops::Range<usize> = 26..28;
    let flags = seen.get("payload").get(FLAGS).and_then(|hex| u8::from_str_radix(hex, 16).ok());
    seen.get("protocol") == protocol::TCP.to_string()
        && seen.get("id") == "new"
        && flags.is_some_and(|flags| flags & RST != 0)
}

/// True for a host's refusal, sent back to the step's side: a reset, or an unreachable error.
fn is_refusal(step: &Step, seen: &Observation) -> bool {
    let back = seen.get("side") == format!("{:?}", step.side);
    back && (is_reset(seen) || is_own_error(seen) && matches!(seen.get("type"), "3/3" | "3/2"))
}
