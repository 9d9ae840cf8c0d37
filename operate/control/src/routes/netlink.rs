//! The kernel's routing tables by netlink: reading, following, adding and removing IPv4 routes.
//!
//! The crates `netlink-packet-*` encode and decode messages. This module has the requests that
//! natgate needs and the few attributes of a route that it reads.

use super::plan::AnnouncedRoute;
use natgate_engine::Prefix;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REPLACE,
    NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Size of the receive buffer, bytes. The kernel's dumps come in smaller messages.
const LARGEST: usize = 1 << 16;

/// Buffer for waiting notifications, bytes: some ten thousand routes.
const WAITING: usize = 8 << 20;

/// Time that the kernel has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Multicast groups as bits: links (1), IPv4 routes (7).
const GROUPS: u32 = 1 | ROUTES;
const ROUTES: u32 = 1 << 6;

/// A next hop and its interface index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHop {
    pub(super) via: Ipv4Addr,
    pub(super) device: u32,
}

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) prefix: Prefix,
    pub(super) table: u32,
    pub(super) protocol: u8,
    pub(super) metric: u32,
    /// True if the route drops packets.
    pub(super) blackhole: bool,
    /// True if the route applies to every type of service.
    pub(super) general: bool,
    /// Next hops in the kernel's order, without those that have no IPv4 address.
    pub(super) hops: Vec<NextHop>,
}

/// A notification of a changed table.
#[derive(Debug)]
pub(super) enum News {
    /// A route was added; its position among routes with the same prefix and metric.
    Came(KernelRoute, Place),
    /// A route was removed.
    Went(KernelRoute),
    /// A link changed, or notifications were lost: the table must be read again.
    Unknown,
}

/// Position of an added route among those with the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Replaces the first one.
    Instead,
    /// After the others.
    Behind,
    /// Before the others.
    Before,
}

/// A socket to the kernel.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for requests.
    pub(super) fn open() -> io::Result<Self> {
        Self::bind(0)
    }

    /// Opens a socket for notifications of links and IPv4 routes.
    pub(super) fn listen() -> io::Result<Self> {
        Self::listen_to(GROUPS)
    }

    /// Opens a socket for notifications of IPv4 routes only.
    pub(super) fn listen_to_routes() -> io::Result<Self> {
        Self::listen_to(ROUTES)
    }

    fn listen_to(groups: u32) -> io::Result<Self> {
        let netlink = Self::bind(groups)?;
        // Without the right to exceed the system's limit, the buffer is smaller. Notifications are
        // then lost sooner, and the table is read again.
        if sockopt::set_socket_recv_buffer_size_force(&netlink.socket, WAITING).is_err() {
            let _ = netlink.socket.set_rx_buf_sz(WAITING as i32);
        }
        Ok(netlink)
    }

    fn bind(groups: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, groups))?;
        socket.set_non_blocking(true)?;
        // The kernel then filters by the table of the request; before Linux 4.20 it sends all
        // tables.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Readable when there are notifications.
    pub(super) fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads all IPv4 routes of a table.
    pub(super) fn routes(&mut self, table: u32) -> io::Result<Vec<KernelRoute>> {
        const TRIES: usize = 5;
        for _ in 0..TRIES {
            if let Some(routes) = self.try_routes(table)? {
                return Ok(routes);
            }
        }
        Err(io::Error::other("the table changes faster than it can be read"))
    }

    /// Reads a table once. `None`: it changed while it was read, and routes may be missing.
    fn try_routes(&mut self, table: u32) -> io::Result<Option<Vec<KernelRoute>>> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.attributes.push(RouteAttribute::Table(table));
        self.send(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)?;
        let (mut routes, mut interrupted) = (Vec::new(), false);
        self.answers(|message| {
            interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) =
                message.payload
            {
                routes.extend(KernelRoute::of(&route).filter(|route| route.table == table));
            }
        })
        .or_else(|error| match error.kind() {
            // A table exists from its first route on.
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        Ok((!interrupted).then_some(routes))
    }

    /// Adds a route that drops packets without another route.
    pub(super) fn add_blackhole(
        &mut self,
        announced: AnnouncedRoute,
        table: u32,
        protocol: u8,
    ) -> io::Result<()> {
        let route = RouteNetlinkMessage::NewRoute(blackhole(announced, table, protocol));
        self.send(route, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)?;
        self.answers(|_| {})
    }

    /// Removes a blackhole route; returns false if it did not exist.
    pub(super) fn remove_blackhole(
        &mut self,
        announced: AnnouncedRoute,
        table: u32,
        protocol: u8,
    ) -> io::Result<bool> {
        const NO_SUCH_PROCESS: i32 = 3;
        let route = RouteNetlinkMessage::DelRoute(blackhole(announced, table, protocol));
        self.send(route, NLM_F_ACK)?;
        match self.answers(|_| {}) {
            Ok(()) => Ok(true),
            // The kernel's error for an absent route.
            Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes all waiting notifications.
    pub(super) fn news(&mut self, mut take: impl FnMut(News)) -> io::Result<()> {
        loop {
            let buffer = match self.read() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Notifications were lost.
                Err(error) if error.raw_os_error() == Some(NO_BUFFER_SPACE) => {
                    take(News::Unknown);
                    continue;
                }
                Err(error) => return Err(error),
            };
            each_message(&buffer, |message| take_news(message, &mut take));
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Takes the answers to the latest request.
    fn answers(
        &mut self,
        mut take: impl FnMut(NetlinkMessage<RouteNetlinkMessage>),
    ) -> io::Result<()> {
        let begin = Instant::now();
        let mut end = None;
        while end.is_none() {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let buffer = match self.read() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    natgate_io::wait(&[self.socket.as_fd()], left)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let sequence = self.sequence;
            each_message(&buffer, |message| match &message.payload {
                _ if message.header.sequence_number != sequence => {}
                NetlinkPayload::Error(error) => end = Some(error.code.map_or(0, i32::from)),
                NetlinkPayload::Done(done) => end = Some(done.code),
                _ => take(message),
            });
        }
        match end {
            Some(code) if code != 0 => Err(io::Error::from_raw_os_error(code.abs())),
            _ => Ok(()),
        }
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(LARGEST);
        self.socket.recv(&mut buffer, 0)?;
        Ok(buffer)
    }
}

/// ENOBUFS.
const NO_BUFFER_SPACE: i32 = 105;

/// Reads each message of a buffer; unreadable ones are skipped.
fn each_message(buffer: &[u8], mut take: impl FnMut(NetlinkMessage<RouteNetlinkMessage>)) {
    const ALIGNMENT: usize = 4;
    const HEADER: usize = 16;
    let mut rest = buffer;
    while let Some(len) = rest.first_chunk::<4>().map(|len| u32::from_ne_bytes(*len) as usize) {
        let Some(bytes) = rest.get(..len).filter(|_| len >= HEADER) else { return };
        if let Ok(message) = NetlinkMessage::deserialize(bytes) {
            take(message);
        }
        rest = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
}

fn take_news(message: NetlinkMessage<RouteNetlinkMessage>, take: &mut impl FnMut(News)) {
    let flags = message.header.flags;
    let NetlinkPayload::InnerMessage(message) = message.payload else { return };
    match message {
        RouteNetlinkMessage::NewRoute(route) => {
            let Some(route) = KernelRoute::of(&route) else { return };
            let place = match flags {
                flags if flags & NLM_F_REPLACE != 0 => Place::Instead,
                flags if flags & NLM_F_APPEND != 0 => Place::Behind,
                _ => Place::Before,
            };
            take(News::Came(route, place));
        }
        RouteNetlinkMessage::DelRoute(route) => {
            if let Some(route) = KernelRoute::of(&route) {
                take(News::Went(route));
            }
        }
        RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => take(News::Unknown),
        _ => {}
    }
}

impl KernelRoute {
    /// Reads a unicast or blackhole IPv4 route from a message.
    fn of(message: &RouteMessage) -> Option<Self> {
        let RouteHeader { address_family, destination_prefix_length: len, .. } = message.header;
        if address_family != AddressFamily::Inet || len > 32 {
            return None;
        }
        let blackhole = message.header.kind == RouteType::BlackHole;
        let mut route = Self {
            prefix: Prefix::new(Ipv4Addr::UNSPECIFIED, len),
            table: message.header.table.into(),
            protocol: message.header.protocol.into(),
            metric: 0,
            blackhole,
            general: message.header.tos == 0,
            hops: Vec::new(),
        };
        let (mut via, mut device) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                    route.prefix = Prefix::new(*address, len);
                }
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::Priority(metric) => route.metric = *metric,
                RouteAttribute::Gateway(RouteAddress::Inet(address)) => via = Some(*address),
                RouteAttribute::Oif(index) => device = Some(*index),
                RouteAttribute::MultiPath(hops) => {
                    route.hops.extend(hops.iter().filter_map(|hop| {
                        let via = hop.attributes.iter().find_map(gateway)?;
                        Some(NextHop { via, device: hop.interface_index })
                    }))
                }
                _ => {}
            }
        }
        if let (Some(via), Some(device)) = (via, device)
            && route.hops.is_empty()
        {
            route.hops.push(NextHop { via, device });
        }
        Some(route)
    }
}

fn gateway(attribute: &RouteAttribute) -> Option<Ipv4Addr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(address)) => Some(*address),
        _ => None,
    }
}

fn blackhole(announced: AnnouncedRoute, table: u32, protocol: u8) -> RouteMessage {
    let AnnouncedRoute { prefix, metric } = announced;
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: AddressFamily::Inet,
        destination_prefix_length: prefix.len(),
        // Larger numbers are in the attribute only.
        table: u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
        protocol: RouteProtocol::from(protocol),
        scope: RouteScope::Universe,
        kind: RouteType::BlackHole,
        ..RouteHeader::default()
    };
    let destination = RouteAddress::Inet(Ipv4Addr::from_bits(prefix.first()));
    message.attributes.push(RouteAttribute::Destination(destination));
    message.attributes.push(RouteAttribute::Table(table));
    if metric > 0 {
        message.attributes.push(RouteAttribute::Priority(metric));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(message: RouteMessage, flags: u16) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let payload = NetlinkPayload::from(RouteNetlinkMessage::NewRoute(message));
        let mut message = NetlinkMessage::new(header, payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn came(buffer: &[u8]) -> Vec<(KernelRoute, Place)> {
        let mut routes = Vec::new();
        each_message(buffer, |message| {
            take_news(message, &mut |news| match news {
                News::Came(route, place) => routes.push((route, place)),
                other => panic!("{other:?}"),
            });
        });
        routes
    }

    #[test]
    fn what_is_announced_is_read_again() {
        let prefix = Prefix::new(Ipv4Addr::new(203, 0, 113, 16), 28);
        for (table, metric) in [(254, 0), (100_000, 0), (254, 100)] {
            let announced = AnnouncedRoute { prefix, metric };
            let buffer = bytes(blackhole(announced, table, 78), NLM_F_REPLACE);
            let expected = KernelRoute {
                prefix,
                table,
                protocol: 78,
                metric,
                blackhole: true,
                general: true,
                hops: Vec::new(),
            };
            assert_eq!(came(&buffer), [(expected, Place::Instead)]);
        }
    }

    #[test]
    fn a_route_may_have_several_next_hops() {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        let via = Ipv4Addr::new(192, 0, 2, 9);
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(via)));
        message.attributes.push(RouteAttribute::Oif(7));
        message.attributes.push(RouteAttribute::Priority(20));
        let routes = came(&[bytes(message.clone(), 0), bytes(message, NLM_F_APPEND)].concat());
        let places: Vec<Place> = routes.iter().map(|(_, place)| *place).collect();
        assert_eq!(places, [Place::Before, Place::Behind]);
        for (route, _) in routes {
            assert_eq!(route.prefix, Prefix::new(Ipv4Addr::UNSPECIFIED, 0));
            assert_eq!((route.metric, &route.hops[..]), (20, &[NextHop { via, device: 7 }][..]));
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let prefix = Prefix::new(Ipv4Addr::new(203, 0, 113, 0), 24);
        let whole = bytes(blackhole(AnnouncedRoute { prefix, metric: 7 }, 254, 78), 0);
        for len in 0..whole.len() {
            assert_eq!(came(&whole[..len]), [], "{len} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut harmed = whole.clone();
                harmed[at] = value;
                // Reading ends with any input.
                each_message(&harmed, |_| {});
            }
        }
    }
}
