//! The protocols that can be switched on.

/// A protocol with an ALG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// File Transfer Protocol (RFC 959).
    Ftp,
    /// Trivial File Transfer Protocol (RFC 1350).
    Tftp,
}

impl Kind {
    /// Every protocol.
    pub const ALL: [Self; 2] = [Self::Ftp, Self::Tftp];

    /// The protocol's name in configuration, events and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
        }
    }
}
