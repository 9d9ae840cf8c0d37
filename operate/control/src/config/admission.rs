//! Keys of `[limits]` about unanswered subscribers.

use super::reader::Section;
use natgate_engine::Limits;

/// Reads the keys.
pub(super) fn read(section: &Section<'_>, limits: &mut Limits) {
    if let Some(gives_way) = section.get("unanswered_give_way").and_then(|value| value.boolean()) {
        limits.unanswered_give_way = gives_way;
    }
    let kept = section.get("unanswered_kept").and_then(|value| value.integer(0..=1 << 30));
    if let Some(kept) = kept.and_then(|kept| u32::try_from(kept).ok()) {
        limits.unanswered_kept = kept;
    }
    let share = section.get("asking_share").and_then(|value| value.integer(1..=100));
    if let Some(share) = share.and_then(|share| u8::try_from(share).ok()) {
        limits.asking_share = share;
    }
}

/// Warns of keys that have no effect or leave an attack possible. `[pcp]` must have been read.
pub(super) fn warn(section: &Section<'_>, limits: &Limits) {
    let (gives_way, has_pcp) = (limits.unanswered_give_way, limits.explicit_mappings > 0);
    if let Some(value) = section.get("asking_share").filter(|_| !gives_way || !has_pcp) {
        let why = if gives_way { "[pcp] is off" } else { "unanswered_give_way is false" };
        section.report.unwise(&value.place, format!("has no effect, because {why}; take it out"));
    }
    if let Some(value) = section.get("unanswered_give_way").filter(|_| !gives_way && has_pcp) {
        let message =
            "lets forged requests by PCP keep the places of all subscribers for a lifetime";
        section.report.unwise(
            &value.place,
            format!("{message}; leave it true unless others check source addresses"),
        );
    }
}
