//! Reasons of the counters: why a flow is no ALG's any more, and why the framework did not do what
//! a message asked for.
//!
//! The list makes the type and the names, so that a reason cannot be without a name.

/// Reason why a part of a payload, or a flow, was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// The first bytes, or a later message, are not of the protocol. The flow is no ALG's any more.
    NotProtocol,
    /// The protocol changes to TLS. The flow is no ALG's any more.
    Encrypted,
    /// A message exceeds a limit. The flow is no ALG's any more.
    TooLong,
    /// TCP authenticates its segments (RFC 2385, RFC 5925): the flow is no ALG's any more. Or a
    /// message of DNS is signed.
    Signed,
    /// Data on a SYN. The flow is no ALG's any more.
    Odd,
    /// The stream ends in the middle of a message. The flow is no ALG's any more.
    Truncated,
    /// The first segment of a flow is not its SYN.
    NoStart,
    /// No buffer is free for bytes that have to be kept. The flow is no ALG's any more.
    NoBuffer,
    /// All places for control flows are taken.
    NoFlow,
    /// The payload names another address than the sender's own.
    ForeignAddress,
    /// The payload names a port below 1024.
    LowPort,
    /// The flow has asked for too many expectations.
    Flood,
    /// The translator has no port, or the subscriber is at its quota.
    NoPort,
    /// A fragment: its payload is not read.
    Fragment,
    /// A wrong checksum: the payload is not read.
    BadChecksum,
    /// A segment that could neither pass nor be held. TCP sends it again.
    Dropped,
    /// The protocol is not translated between families. The flow is no ALG's any more.
    Families,
    /// The edited datagram does not fit into its buffer.
    NoRoom,
    /// Two names of a DNS message have bytes in common, and only one of them has to change.
    Ambiguous,
    /// A rule leaves the protocol out of its flows: the flow is not read.
    Rule,
    /// A message of H.323 is not wholly read: it is malformed, or has parts beyond the limits.
    Unread,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 21] = [
        Self::NotProtocol,
        Self::Encrypted,
        Self::TooLong,
        Self::Signed,
        Self::Odd,
        Self::Truncated,
        Self::NoStart,
        Self::NoBuffer,
        Self::NoFlow,
        Self::ForeignAddress,
        Self::LowPort,
        Self::Flood,
        Self::NoPort,
        Self::Fragment,
        Self::BadChecksum,
        Self::Dropped,
        Self::Families,
        Self::NoRoom,
        Self::Ambiguous,
        Self::Rule,
        Self::Unread,
    ];

    /// The reason's name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotProtocol => "not_protocol",
            Self::Encrypted => "encrypted",
            Self::TooLong => "too_long",
            Self::Signed => "signed",
            Self::Odd => "odd",
            Self::Truncated => "truncated",
            Self::NoStart => "no_start",
            Self::NoBuffer => "no_buffer",
            Self::NoFlow => "no_flow",
            Self::ForeignAddress => "foreign_address",
            Self::LowPort => "low_port",
            Self::Flood => "flood",
            Self::NoPort => "no_port",
            Self::Fragment => "fragment",
            Self::BadChecksum => "bad_checksum",
            Self::Dropped => "dropped",
            Self::Families => "families",
            Self::NoRoom => "no_room",
            Self::Ambiguous => "ambiguous",
            Self::Rule => "rule",
            Self::Unread => "unread",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_at_its_number() {
        for (at, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at, "{}", reason.name());
        }
    }
}
