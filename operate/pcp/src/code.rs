//! Result codes (RFC 6887 section 7.4), their equivalents in NAT-PMP (RFC 6886 section 3.5), and
//! the time for which a client is to believe an error.

/// Lifetimes of errors with passing and with lasting causes, seconds.
const SHORT: u32 = 30;
const LONG: u32 = 30 * 60;

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ResultCode {
    /// The request was carried out.
    Success = 0,
    /// The protocol's version is not spoken here.
    UnsupportedVersion = 1,
    /// This client may not have this.
    NotAuthorized = 2,
    /// The request cannot be read.
    MalformedRequest = 3,
    /// The operation is not known.
    UnsupportedOpcode = 4,
    /// An option that must be processed is not known, or not for this client.
    UnsupportedOption = 5,
    /// An option cannot be read, or is there too often.
    MalformedOption = 6,
    /// There is no external address now.
    NetworkFailure = 7,
    /// There is no room, no port, or no time.
    NoResources = 8,
    /// Such mappings are not made for this transport protocol.
    UnsupportedProtocol = 9,
    /// The subscriber has as many mappings as it may have.
    UserExceededQuota = 10,
    /// The external endpoint that was asked for cannot be had.
    CannotProvideExternal = 11,
    /// The client's address differs from the address that it believes to have: a NAT stands
    /// between.
    AddressMismatch = 12,
    /// The request has too many filters.
    ExcessiveRemotePeers = 13,
}

impl ResultCode {
    /// All result codes, in order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Success,
        Self::UnsupportedVersion,
        Self::NotAuthorized,
        Self::MalformedRequest,
        Self::UnsupportedOpcode,
        Self::UnsupportedOption,
        Self::MalformedOption,
        Self::NetworkFailure,
        Self::NoResources,
        Self::UnsupportedProtocol,
        Self::UserExceededQuota,
        Self::CannotProvideExternal,
        Self::AddressMismatch,
        Self::ExcessiveRemotePeers,
    ];

    /// Its name in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::UnsupportedVersion => "unsupp_version",
            Self::NotAuthorized => "not_authorized",
            Self::MalformedRequest => "malformed_request",
            Self::UnsupportedOpcode => "unsupp_opcode",
            Self::UnsupportedOption => "unsupp_option",
            Self::MalformedOption => "malformed_option",
            Self::NetworkFailure => "network_failure",
            Self::NoResources => "no_resources",
            Self::UnsupportedProtocol => "unsupp_protocol",
            Self::UserExceededQuota => "user_ex_quota",
            Self::CannotProvideExternal => "cannot_provide_external",
            Self::AddressMismatch => "address_mismatch",
            Self::ExcessiveRemotePeers => "excessive_remote_peers",
        }
    }

    /// Seconds that a client should take an error for granted, unless more is known.
    pub const fn lifetime(self) -> u32 {
        //= rfc6887#section-7.4-lifetimes
        match self {
            Self::Success => 0,
            Self::NetworkFailure
            | Self::NoResources
            | Self::UserExceededQuota
            | Self::CannotProvideExternal => SHORT,
            _ => LONG,
        }
    }

    /// The nearest result code of NAT-PMP.
    pub(crate) const fn in_nat_pmp(self) -> u16 {
        match self {
            Self::Success => 0,
            Self::UnsupportedVersion => 1,
            Self::NetworkFailure => 3,
            Self::NoResources | Self::UserExceededQuota | Self::CannotProvideExternal => 4,
            Self::UnsupportedOpcode => 5,
            _ => 2,
        }
    }
}
