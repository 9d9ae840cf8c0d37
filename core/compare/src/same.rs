//! Comparison of two results: equality, and the sentence about a difference.

use crate::Divergence;
use natgate_engine::{Change, Event, MappingKind, Timestamp};
use natgate_model::Effects;
use natgate_wire::Ipv4;
use std::fmt::Debug;

/// Returns an error if the engine made a choice that was not open.
pub(crate) fn legal(what: &str, made: &Effects) -> Result<(), Divergence> {
    match &made.illegal {
        Some(illegal) => Err(format!("{what}: {illegal}")),
        None => Ok(()),
    }
}

/// Events as a multiset for each time (specification, 1.2 and 10), as texts to compare. The order
/// in which several sessions go is open, and with it the question whether the others' mapping still
/// counts as requested.
pub(crate) fn by_time(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| {
        let mut event = *event;
        if let Change::SessionRemoved(session) = &mut event.change
            && session.mapping.kind == MappingKind::Pcp
        {
            session.mapping.kind = MappingKind::Dynamic;
        }
        (event.time, format!("{event:?}"))
    };
    let mut texts: Vec<(Timestamp, String)> = events.iter().map(text).collect();
    texts.sort();
    texts.into_iter().map(|(_, text)| text).collect()
}

/// A packet of the engine without the fields that the specification leaves open.
pub(crate) fn without_free_fields(bytes: &[u8]) -> Result<Vec<u8>, Divergence> {
    let mut bytes = bytes.to_vec();
    let mut ip = match Ipv4::new_checked(&mut bytes[..]) {
        Ok(ip) if ip.checksum_valid() => ip,
        _ => return Err(format!("the engine sent what is no IPv4 packet: {bytes:02x?}")),
    };
    if ip.more_fragments() || ip.fragment_offset() != 0 {
        return Err(format!("the engine sent a fragment: {bytes:02x?}"));
    }
    ip.set_identification(0);
    ip.fill_checksum();
    Ok(bytes)
}

/// Bytes, printed in hexadecimal.
#[derive(PartialEq)]
pub(crate) struct Hex<'b>(pub(crate) &'b [u8]);

impl Debug for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(crate) fn same<T: PartialEq + Debug>(
    what: &str,
    engine: &T,
    model: &T,
) -> Result<(), Divergence> {
    if engine == model {
        Ok(())
    } else {
        Err(format!("{what} differ\n engine: {engine:?}\n model:  {model:?}"))
    }
}

/// [`same`] for lists. It prints only the elements that one side alone has.
pub(crate) fn same_lists<T: PartialEq + Debug>(
    what: &str,
    engine: &[T],
    model: &[T],
) -> Result<(), Divergence> {
    if engine == model {
        return Ok(());
    }
    let only = |these: &[T], those: &[T]| {
        let only = these.iter().filter(|one| !those.contains(one));
        only.map(|one| format!("\n  {one:?}")).collect::<String>()
    };
    let (engine, model) = (only(engine, model), only(model, engine));
    Err(format!("{what} differ\n engine alone:{engine}\n model alone:{model}"))
}
