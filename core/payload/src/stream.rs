//! Streams: what TCP has and a protocol must not see. Order, retransmissions, sequence numbers that
//! change with the length of edits, and held bytes.

pub(crate) mod direction;
pub(crate) mod edits;
pub(crate) mod held;
pub(crate) mod segment;
pub(crate) mod sequence;
pub(crate) mod work;
