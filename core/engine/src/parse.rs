//! The first stage: headers of a packet, or the reason why it cannot be translated. Nothing here
//! depends on state.

use crate::DropReason;
use crate::endpoint::{AddressPort, Internal};
use crate::host::Host;
use crate::session::Segment;
use natgate_wire::ipv4::{Ipv4Error, Options, scan_options};
use natgate_wire::tcp::flags::{ACK, RST, SYN};
use natgate_wire::{Dccp, Icmp, Ipv4, Tcp, Udp, dccp, icmp, ipv4, protocol, tcp, udp};

/// The kind of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
    Dccp,
    /// A query or reply with an identifier; whether it may make a mapping.
    IcmpQuery {
        request: bool,
    },
    IcmpError,
    IcmpOther,
    /// A protocol that is translated by address alone.
    Portless,
    /// A fragment other than the first: no ports are in sight.
    LaterFragment,
}

/// A packet's headers, read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) source: AddressPort,
    pub(crate) destination: AddressPort,
    /// The destination as seen outside: another, if a rule translates it (`translate/twice.rs`).
    pub(crate) outside: AddressPort,
    /// Realm that the packet came from, if it came from inside.
    pub(crate) realm: u16,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) kind: Kind,
    pub(crate) header_len: u8,
    /// True if the packet has turned round in another engine, which has translated its sender's
    /// end.
    pub(crate) turned: bool,
    /// True if the packet is a fragment, the first included.
    pub(crate) fragment: bool,
    pub(crate) dont_fragment: bool,
    pub(crate) total_len: u16,
    pub(crate) segment: Segment,
}

/// True if no packet that is forwarded may come from, or go to, an address in host byte order: this
/// host, this network, this link (RFC 3927 section 7), multicast, reserved, broadcast.
#[inline(always)]
pub const fn is_martian(address: u32) -> bool {
    const LINK_LOCAL: u32 = 0xa9fe;
    //= rfc1812#section-4.2.2.11-zero
    //= rfc1812#section-4.2.2.11-broadcast
    //= rfc1812#section-4.2.2.11-loopback
    //= rfc1812#section-4.2.3.1-zero
    //= rfc1812#section-5.3.5.1
    matches!(address >> 24, 0 | 127 | 224..=255) || address >> 16 == LINK_LOCAL
}

/// Reads a packet's headers (sections 2.1 to 2.13 of the specification).
pub(crate) fn parse(bytes: &[u8]) -> Result<Headers, DropReason> {
    read(bytes, true)
}

/// Parses a packet whose source has been translated. Its source may equal its destination, because
/// two subscribers may share an external address.
pub(crate) fn parse_turned(bytes: &[u8]) -> Result<Headers, DropReason> {
    read(bytes, false)
}

#[inline(always)]
fn read(bytes: &[u8], ends_differ: bool) -> Result<Headers, DropReason> {
    //= rfc1812#section-5.2.2
    //= rfc1812#section-5.2.2-truncated
    let packet = Ipv4::new_checked(bytes).map_err(|error| match error {
        Ipv4Error::Version => DropReason::NotIpv4,
        Ipv4Error::Length => DropReason::BadLength,
    })?;
    //= rfc1812#section-4.2.2.5-verify
    //= rfc1812#section-4.3.2.7-header
    if !packet.checksum_valid() {
        return Err(DropReason::BadHeaderChecksum);
    }
    if packet.header_len() > ipv4::HEADER_LEN {
        match scan_options(packet.options()) {
            Options::Plain => {}
            Options::SourceRoute => return Err(DropReason::SourceRoute),
            Options::Malformed => return Err(DropReason::BadOptions),
        }
    }
    let (source, destination) = (packet.source(), packet.destination());
    //= rfc1812#section-4.3.2.7-source
    //= rfc1812#section-5.3.7-source
    if is_martian(source) {
        return Err(DropReason::MartianSource);
    }
    //= rfc1812#section-4.3.2.7-broadcast
    //= rfc1812#section-5.3.7-destination
    //= rfc1812#section-4.3.3.6-everybody
    if is_martian(destination) {
        return Err(DropReason::MartianDestination);
    }
    if ends_differ && source == destination {
        return Err(DropReason::Land);
    }
    //= rfc1812#section-4.2.2.3-received
    //= rfc1812#section-5.3.3.3-accept
    let mut headers = Headers {
        source: AddressPort::new(source, 0),
        destination: AddressPort::new(destination, 0),
        outside: AddressPort::new(destination, 0),
        realm: 0,
        protocol: packet.protocol(),
        ttl: packet.ttl(),
        kind: Kind::Portless,
        header_len: packet.header_len() as u8,
        turned: false,
        //= rfc6864#section-4.1-ignore
        //= rfc6864#section-4.1-fragmentation-only
        fragment: packet.more_fragments() || packet.fragment_offset() > 0,
        dont_fragment: packet.dont_fragment(),
        total_len: packet.total_len(),
        segment: Segment::default(),
    };
    if packet.fragment_offset() > 0 {
        headers.kind = Kind::LaterFragment;
    } else {
        headers.read_transport(packet.payload())?;
    }
    headers.outside = headers.destination;
    Ok(headers)
}

impl Headers {
    /// The host inside that sent it.
    pub(crate) fn host(&self) -> Host {
        Host::new(self.realm, self.source.address)
    }

    /// The internal endpoint that sent it.
    pub(crate) fn internal(&self) -> Internal {
        Internal::new(self.host(), self.source.port)
    }

    fn read_transport(&mut self, payload: &[u8]) -> Result<(), DropReason> {
        let bad = if self.fragment { DropReason::FragmentTiny } else { DropReason::BadLength };
        match self.protocol {
            //= rfc6888#REQ-1
            //= rfc6888#REQ-1b
            protocol::TCP => self.read_tcp(payload)?,
            //= rfc6888#REQ-1a
            protocol::UDP => {
                let datagram = Udp::new_checked(payload).ok_or(bad)?;
                let length = usize::from(datagram.length());
                if length < udp::HEADER_LEN || (length > payload.len() && !self.fragment) {
                    return Err(DropReason::BadLength);
                }
                self.kind = Kind::Udp;
                self.source.port = datagram.source_port();
                self.destination.port = datagram.destination_port();
            }
            //= rfc6888#REQ-1c
            protocol::ICMP => self.read_icmp(&Icmp::new_checked(payload).ok_or(bad)?),
            //= rfc6888#REQ-1d
            protocol::DCCP => self.read_dccp(payload)?,
            _ => {}
        }
        Ok(())
    }

    /// A first fragment may end within the options.
    fn read_tcp(&mut self, payload: &[u8]) -> Result<(), DropReason> {
        let header = match Tcp::new_checked(payload) {
            Some(header) => header,
            None if !self.fragment => return Err(DropReason::BadLength),
            None => Tcp::new_prefix_checked(payload).ok_or(DropReason::FragmentTiny)?,
        };
        if header.header_len() < tcp::HEADER_LEN {
            return Err(DropReason::BadLength);
        }
        self.kind = Kind::Tcp;
        self.source.port = header.source_port();
        self.destination.port = header.destination_port();
        let flags = header.flags();
        self.segment = Segment {
            flags,
            sequence: header.sequence(),
            acknowledgment: header.acknowledgment(),
            window: header.window(),
            scale: if flags & SYN != 0 { header.window_scale() } else { None },
        };
        Ok(())
    }

    /// A first fragment may end within the options.
    fn read_dccp(&mut self, payload: &[u8]) -> Result<(), DropReason> {
        let header = match Dccp::new_checked(payload) {
            Some(header) => header,
            None if !self.fragment => return Err(DropReason::BadLength),
            None => Dccp::new_prefix_checked(payload).ok_or(DropReason::FragmentTiny)?,
        };
        if header.header_len() < dccp::HEADER_LEN {
            return Err(DropReason::BadLength);
        }
        self.kind = Kind::Dccp;
        self.source.port = header.source_port();
        self.destination.port = header.destination_port();
        self.segment.flags = dccp_flags(header.kind());
        Ok(())
    }

    /// An identifier stands where the sender's port would: the sender's of a packet from inside,
    /// the receiver's of one from outside. Both are set; who looks a mapping up uses the one of its
    /// side.
    fn read_icmp(&mut self, message: &Icmp<&[u8]>) {
        use icmp::kind::{ECHO_REPLY, ECHO_REQUEST, REDIRECT, TIMESTAMP_REPLY, TIMESTAMP_REQUEST};
        //= rfc5508#REQ-1
        //= rfc5508#REQ-11
        self.kind = match message.kind() {
            ECHO_REQUEST | TIMESTAMP_REQUEST => Kind::IcmpQuery { request: true },
            ECHO_REPLY | TIMESTAMP_REPLY => Kind::IcmpQuery { request: false },
            //= rfc4787#REQ-12b
            //= rfc5382#REQ-9
            kind if kind != REDIRECT && icmp::is_error(kind) => Kind::IcmpError,
            _ => Kind::IcmpOther,
        };
        if matches!(self.kind, Kind::IcmpQuery { .. }) {
            self.source.port = message.identifier();
            self.destination.port = message.identifier();
        }
    }

    /// The remote endpoint of a packet from inside.
    pub(crate) fn remote_outbound(&self) -> AddressPort {
        match self.kind {
            Kind::IcmpQuery { .. } => AddressPort::new(self.outside.address, 0),
            _ => self.outside,
        }
    }

    /// The remote endpoint of a packet from inside, as its sender sees it.
    pub(crate) fn remote_seen(&self) -> AddressPort {
        match self.kind {
            Kind::IcmpQuery { .. } => AddressPort::new(self.destination.address, 0),
            _ => self.destination,
        }
    }

    /// The remote endpoint of a packet from outside.
    pub(crate) fn remote_inbound(&self) -> AddressPort {
        match self.kind {
            Kind::IcmpQuery { .. } => AddressPort::new(self.source.address, 0),
            _ => self.source,
        }
    }
}

//= rfc5597#REQ-2
/// The effect of a DCCP packet on its connection, as flags of a TCP segment with that effect. A
/// Listen packet of a server opens a connection like a request (RFC 5596); a packet that ends one
/// counts as a RST.
fn dccp_flags(kind: u8) -> u8 {
    use dccp::kind::{CLOSE, CLOSE_REQUEST, LISTEN, REQUEST, RESET, RESPONSE};
    match kind {
        //= rfc5597#REQ-2-simultaneous
        REQUEST | LISTEN => SYN,
        RESPONSE => SYN | ACK,
        CLOSE_REQUEST | CLOSE | RESET => RST,
        _ => ACK,
    }
}

/// The packet that an ICMP error embeds: as much of it as its error must quote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedded {
    /// Offset of the packet's IP header from the start of the ICMP message.
    pub(crate) at: usize,
    /// Offset of the packet's transport header from the start of the ICMP message.
    pub(crate) transport: usize,
    /// Offset of the end of the quoted bytes; extensions may follow (RFC 4884).
    pub(crate) end: usize,
    pub(crate) protocol: u8,
    pub(crate) source: AddressPort,
    pub(crate) destination: AddressPort,
}

impl Embedded {
    /// Reads the packet embedded in an ICMP error message (section 6.1 of the specification).
    pub(crate) fn read(message: &[u8]) -> Result<Self, DropReason> {
        let error = Icmp::new_checked(message).ok_or(DropReason::BadLength)?;
        //= rfc5508#REQ-3
        if !error.checksum_valid() {
            return Err(DropReason::IcmpBadChecksum);
        }
        let bad = DropReason::IcmpBadEmbedded;
        let packet = Ipv4::new_header_checked(error.body()).map_err(|_| bad)?;
        //= rfc5508#REQ-3a
        if !packet.checksum_valid() {
            return Err(DropReason::IcmpBadChecksum);
        }
        match scan_options(packet.options()) {
            Options::Plain => {}
            //= rfc5508#section-7.3
            Options::SourceRoute => return Err(DropReason::SourceRoute),
            Options::Malformed => return Err(bad),
        }
        if packet.fragment_offset() > 0 {
            return Err(bad);
        }
        let mut embedded = Self {
            at: icmp::HEADER_LEN,
            //= rfc5508#REQ-3b
            transport: icmp::HEADER_LEN + packet.header_len(),
            //= rfc5508#REQ-3c
            //= rfc5508#REQ-3d
            end: icmp::HEADER_LEN + packet.header_len() + packet.payload().len(),
            protocol: packet.protocol(),
            source: AddressPort::new(packet.source(), 0),
            destination: AddressPort::new(packet.destination(), 0),
        };
        match packet.protocol() {
            //= rfc5597#REQ-9
            protocol::TCP | protocol::UDP | protocol::DCCP => {
                // The ports stand at the same place in all.
                let header = Udp::new_checked(packet.payload()).ok_or(bad)?;
                embedded.source.port = header.source_port();
                embedded.destination.port = header.destination_port();
            }
            protocol::ICMP => {
                let query = Icmp::new_checked(packet.payload()).ok_or(bad)?;
                if !is_query(query.kind()) {
                    return Err(bad);
                }
                embedded.source.port = query.identifier();
                embedded.destination.port = query.identifier();
            }
            _ => {}
        }
        Ok(embedded)
    }

    /// The remote endpoint, as seen from the embedded packet's sender.
    pub(crate) fn remote_of_source(&self) -> AddressPort {
        if self.protocol == protocol::ICMP {
            AddressPort::new(self.destination.address, 0)
        } else {
            self.destination
        }
    }

    /// The remote endpoint, as seen from the embedded packet's receiver.
    pub(crate) fn remote_of_destination(&self) -> AddressPort {
        if self.protocol == protocol::ICMP {
            AddressPort::new(self.source.address, 0)
        } else {
            self.source
        }
    }
}

fn is_query(kind: u8) -> bool {
    use icmp::kind::{ECHO_REPLY, ECHO_REQUEST, TIMESTAMP_REPLY, TIMESTAMP_REQUEST};
    matches!(kind, ECHO_REPLY | ECHO_REQUEST | TIMESTAMP_REPLY | TIMESTAMP_REQUEST)
}

/// Offset of the checksum in a transport header whose checksum covers the addresses.
pub(crate) fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(tcp::CHECKSUM),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => Some(udp::CHECKSUM),
        _ => None,
    }
}
