//! Flows through the translator: mappings of any transport, and their packets.
//!
//! Requirements for UDP, TCP, DCCP and ICMP queries share their tests; a [`Transport`] makes the
//! packets. A [`Connection`] is a TCP connection with both ends in the suite, including the
//! sequence numbers.

use crate::packet::{Packet, Received, Segment, dccp, describe};
use crate::stage::{Stage, Stop, failed};
use natgate_engine::Side;
use natgate_wire::icmp::kind;
use natgate_wire::tcp::flags::{ACK, FIN, SYN};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Data of test packets; long enough for partial quotes in ICMP errors.
pub(crate) const DATA: &[u8] = b"natgate conform: sixteen and more bytes";

/// Transport of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
    Dccp,
    /// ICMP echo; the query identifier takes the place of the port.
    Echo,
}

impl Transport {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Dccp => "DCCP",
            Self::Echo => "ICMP echo",
        }
    }

    /// The first packet of a flow.
    pub(crate) fn opening(self, from: SocketAddrV4, to: SocketAddrV4) -> Packet {
        match self {
            Self::Udp => Packet::udp(from, to, DATA),
            Self::Tcp => {
                let syn = Segment { flags: SYN, sequence: 1000, ..Segment::default() };
                Packet::tcp(from, to, syn)
            }
            Self::Dccp => Packet::dccp(from, to, dccp::REQUEST, DATA),
            Self::Echo => {
                Packet::query(kind::ECHO_REQUEST, *from.ip(), *to.ip(), from.port(), DATA)
            }
        }
    }

    /// First packet from outside, which a translator may refuse.
    pub(crate) fn calling(self, from: SocketAddrV4, to: SocketAddrV4) -> Packet {
        match self {
            Self::Dccp => Packet::dccp(from, to, dccp::LISTEN, b""),
            _ => self.opening(from, to),
        }
    }

    /// Answer of the remote end to the first packet.
    pub(crate) fn answer(self, from: SocketAddrV4, to: SocketAddrV4) -> Packet {
        match self {
            Self::Udp => Packet::udp(from, to, DATA),
            Self::Tcp => {
                let flags = SYN | ACK;
                let segment =
                    Segment { flags, sequence: 5000, acknowledgment: 1001, ..Segment::default() };
                Packet::tcp(from, to, segment)
            }
            Self::Dccp => Packet::dccp(from, to, dccp::RESPONSE, DATA),
            Self::Echo => Packet::query(kind::ECHO_REPLY, *from.ip(), *to.ip(), to.port(), DATA),
        }
    }
}

impl Stage {
    /// Sends a packet from a side and waits for its arrival at a host.
    pub(crate) async fn crosses(
        &self,
        side: Side,
        packet: &Packet,
        at: (Side, Ipv4Addr),
    ) -> Option<Received> {
        self.drain(at.0, at.1);
        self.send(side, packet);
        self.take(at, |came| packet.may_be(came)).await
    }

    /// Sends a packet from inside and waits for it at an outside host.
    pub(crate) async fn outward(&self, packet: &Packet) -> Option<Received> {
        self.crosses(Side::Inside, packet, (Side::Outside, packet.destination)).await
    }

    /// Sends a packet from outside, and waits for it at an inside host.
    pub(crate) async fn inward(&self, packet: &Packet, host: Ipv4Addr) -> Option<Received> {
        self.crosses(Side::Outside, packet, (Side::Inside, host)).await
    }

    /// Opens a flow from inside; returns its external endpoint.
    pub(crate) async fn map(
        &self,
        transport: Transport,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Result<SocketAddrV4, Stop> {
        Ok(self.opened(transport, from, to).await?.source())
    }

    /// Opens a flow from inside; returns the first packet as it came out.
    pub(crate) async fn opened(
        &self,
        transport: Transport,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Result<Received, Stop> {
        let packet = transport.opening(from, to);
        let Some(came) = self.outward(&packet).await else {
            return failed(format!("{} did not come out.", describe(&packet.bytes())));
        };
        if !came.valid() {
            let line = describe(&came.bytes);
            return failed(format!("What came out has a wrong checksum: {line}."));
        }
        self.note_external(*came.source().ip());
        Ok(came)
    }

    /// Returns true if the first packet of a flow from outside gets to an inside host.
    pub(crate) async fn enters(
        &self,
        transport: Transport,
        from: SocketAddrV4,
        external: SocketAddrV4,
        host: Ipv4Addr,
    ) -> bool {
        // The echo request keeps its identifier, by which the test finds it.
        let packet = match transport {
            Transport::Echo => {
                let port = external.port();
                Packet::query(kind::ECHO_REQUEST, *from.ip(), *external.ip(), port, DATA)
            }
            _ => transport.opening(from, external),
        };
        self.inward(&packet, host).await.is_some()
    }

    /// Returns true if the remote end's answer gets to the host of an inside endpoint, with its
    /// port.
    pub(crate) async fn answers(
        &self,
        transport: Transport,
        from: SocketAddrV4,
        external: SocketAddrV4,
        to: SocketAddrV4,
    ) -> bool {
        let came = self.inward(&transport.answer(from, external), *to.ip()).await;
        came.is_some_and(|came| came.destination() == to && came.valid())
    }
}

/// A TCP connection through the translator.
pub(crate) struct Connection<'s> {
    stage: &'s Stage,
    pub(crate) internal: SocketAddrV4,
    pub(crate) remote: SocketAddrV4,
    /// External endpoint; `None` until a segment has gone out.
    pub(crate) external: Option<SocketAddrV4>,
    /// Next sequence number of each end, `[inside, outside]`.
    pub(crate) next: [u32; 2],
}

impl<'s> Connection<'s> {
    /// A connection before its first segment.
    pub(crate) fn new(
        stage: &'s Stage,
        internal: SocketAddrV4,
        remote: SocketAddrV4,
        external: Option<SocketAddrV4>,
    ) -> Self {
        Self { stage, internal, remote, external, next: [1000, 5000] }
    }

    /// Opens a connection from inside by a three-way handshake.
    pub(crate) async fn open(
        stage: &'s Stage,
        internal: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Result<Self, Stop> {
        let mut connection = Self::new(stage, internal, remote, None);
        connection.step(Side::Inside, SYN, b"").await?;
        connection.step(Side::Outside, SYN | ACK, b"").await?;
        connection.step(Side::Inside, ACK, b"").await?;
        Ok(connection)
    }

    /// Closes both directions with acknowledgments; the inside begins.
    pub(crate) async fn close(&mut self) -> Result<(), Stop> {
        self.step(Side::Inside, FIN | ACK, b"").await?;
        self.step(Side::Outside, FIN | ACK, b"").await?;
        self.step(Side::Inside, ACK, b"").await
    }

    /// Sends a segment, which must arrive.
    pub(crate) async fn step(&mut self, from: Side, flags: u8, data: &[u8]) -> Result<(), Stop> {
        match self.tries(from, flags, data).await {
            true => Ok(()),
            false => {
                let line = describe(&self.segment(from, flags, data).bytes());
                failed(format!("{line} did not arrive, or not as the connection's."))
            }
        }
    }

    /// Sends a segment; returns true if it arrives correctly. The sequence number advances in both
    /// cases.
    pub(crate) async fn tries(&mut self, from: Side, flags: u8, data: &[u8]) -> bool {
        let packet = self.segment(from, flags, data);
        let length = data.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.next[from as usize] = self.next[from as usize].wrapping_add(length);
        match from {
            Side::Inside => {
                let Some(came) = self.stage.outward(&packet).await else { return false };
                self.stage.note_external(*came.source().ip());
                let external = *self.external.get_or_insert(came.source());
                came.source() == external && came.valid() && came.data() == data
            }
            Side::Outside => {
                let came = self.stage.inward(&packet, *self.internal.ip()).await;
                came.is_some_and(|came| {
                    came.destination() == self.internal
                        && came.source() == self.remote
                        && came.valid()
                        && came.data() == data
                })
            }
        }
    }

    /// A segment with the connection's present sequence numbers.
    pub(crate) fn segment(&self, from: Side, flags: u8, data: &[u8]) -> Packet {
        let sequence = self.next[from as usize];
        let acknowledgment = if flags & ACK != 0 { self.next[from.other() as usize] } else { 0 };
        let segment = Segment { flags, sequence, acknowledgment, data };
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        match from {
            Side::Inside => Packet::tcp(self.internal, self.remote, segment),
            Side::Outside => Packet::tcp(self.remote, self.external.unwrap_or(nowhere), segment),
        }
    }
}
