//! The protocols that can be switched on.

/// A protocol with an ALG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// File Transfer Protocol (RFC 959).
    Ftp,
    /// Trivial File Transfer Protocol (RFC 1350).
    Tftp,
    /// Session Initiation Protocol with SDP (RFC 3261, RFC 8866).
    Sip,
    /// Real Time Streaming Protocol (RFC 2326, RFC 7826).
    Rtsp,
    /// Internet Relay Chat with direct connections (RFC 2812, DCC).
    Irc,
    /// Domain Name System (RFC 1035).
    Dns,
    /// Point-to-Point Tunneling Protocol (RFC 2637).
    Pptp,
    /// H.323: call signalling and RAS of H.225.0, and H.245 (ITU-T).
    H323,
}

impl Kind {
    /// Every protocol.
    pub const ALL: [Self; 8] = [
        Self::Ftp,
        Self::Tftp,
        Self::Sip,
        Self::Rtsp,
        Self::Irc,
        Self::Dns,
        Self::Pptp,
        Self::H323,
    ];

    /// The protocol's name in configuration, events and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
            Self::Sip => "sip",
            Self::Rtsp => "rtsp",
            Self::Irc => "irc",
            Self::Dns => "dns",
            Self::Pptp => "pptp",
            Self::H323 => "h323",
        }
    }
}
