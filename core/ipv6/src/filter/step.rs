//! The meaning of a packet for the connection that it belongs to.

use natgate_wire::{dccp, protocol, tcp};

/// The meaning of a packet of a protocol with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The packet asks for a connection.
    Request,
    /// The packet belongs to a connection that there is.
    Progress,
    /// The packet ends a connection.
    End,
}

/// Offset of the flags in a TCP header, of the first chunk's type in an SCTP packet, and of the
/// packet type in a DCCP header.
const FLAGS: usize = 13;
const CHUNK: usize = 12;
const DCCP_TYPE: usize = 8;

/// SCTP chunk types (RFC 9260 section 3.2).
mod chunk {
    pub(super) const INIT: u8 = 1;
    pub(super) const ABORT: u8 = 6;
    pub(super) const SHUTDOWN: u8 = 7;
    pub(super) const SHUTDOWN_ACK: u8 = 8;
    pub(super) const SHUTDOWN_COMPLETE: u8 = 14;
}

impl Step {
    /// Reads the transport header of a packet, which is no later fragment. `None`: the protocol has
    /// no connections, or the packet is none of theirs.
    pub(super) fn of(protocol: u8, transport: &[u8]) -> Option<Self> {
        match protocol {
            protocol::TCP => Self::of_tcp(*transport.get(FLAGS)?),
            protocol::SCTP => Self::of_sctp(*transport.get(CHUNK)?),
            protocol::DCCP => Self::of_dccp(*transport.get(DCCP_TYPE)? >> 1 & 0xf),
            _ => None,
        }
    }

    fn of_tcp(flags: u8) -> Option<Self> {
        use tcp::flags::{ACK, FIN, RST, SYN};
        if flags & (FIN | RST) != 0 {
            Some(Self::End)
        } else if flags & ACK != 0 {
            Some(Self::Progress)
        } else {
            (flags & SYN != 0).then_some(Self::Request)
        }
    }

    /// An endpoint of SCTP may have many associations. The end of one says nothing of the others.
    fn of_sctp(chunk: u8) -> Option<Self> {
        use chunk::{ABORT, INIT, SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE};
        match chunk {
            INIT => Some(Self::Request),
            ABORT | SHUTDOWN | SHUTDOWN_ACK | SHUTDOWN_COMPLETE => None,
            _ => Some(Self::Progress),
        }
    }

    fn of_dccp(kind: u8) -> Option<Self> {
        use dccp::kind::{
            ACK, CLOSE, CLOSE_REQUEST, DATA, DATA_ACK, REQUEST, RESET, RESPONSE, SYNC, SYNC_ACK,
        };
        match kind {
            REQUEST => Some(Self::Request),
            RESPONSE | DATA | ACK | DATA_ACK | SYNC | SYNC_ACK => Some(Self::Progress),
            CLOSE_REQUEST | CLOSE | RESET => Some(Self::End),
            _ => None,
        }
    }
}
