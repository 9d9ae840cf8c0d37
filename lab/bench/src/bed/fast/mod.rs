//! A prototype of a NAT's data path in the driver. It shows the possible gain and is no part of
//! natgate.
//!
//! An XDP program runs at both of the subject's interfaces. It looks up the endpoints of each UDP
//! packet in a hash table of the kernel. The entry holds everything that the program writes into
//! the frame. The program sends the frame by the other interface. The kernel handles all other
//! frames, and answers ARP. The table is filled beforehand: the prototype makes no mappings,
//! filters nothing, does not follow TCP, and expires nothing. It records the latest use of each
//! entry, as a NAT must. [`Path::Forward`] omits the table and the translation.

mod program;

use super::{BedError, LinkNames, bpf, kernel::Kernel};
use natgate_io::bpf::{Map, Mode, Plain};
use natgate_tester::{Endpoint, Place};
use natgate_testnet::Network;
use natgate_wire::checksum::fold;
use serde::Serialize;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Work of the program on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Writes the next hop's hardware address, and sends the packet.
    Forward,
    /// Translates the packet as well.
    Translate,
}

/// First external address, and the number of flows of each external address.
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const FLOWS_PER_ADDRESS: u32 = 50_000;
const FIRST_PORT: u16 = 10_000;

const UDP: u32 = 17;

/// Key of a table entry: every field as it lies in the packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    source: [u8; 4],
    destination: [u8; 4],
    ports: [[u8; 2]; 2],
    protocol: u32,
}

/// Value of a table entry: the changes to a packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Action {
    /// Time of the latest use, nanoseconds of the kernel's clock.
    used: u64,
    /// Destination and source of the frame.
    stations: [[u8; 6]; 2],
    source: [u8; 4],
    destination: [u8; 4],
    ports: [[u8; 2]; 2],
    /// Number to add to the inverse of each checksum, as it lies in memory.
    header_delta: u16,
    payload_delta: u16,
    interface: u32,
}

// SAFETY: numbers and arrays of numbers, 16 bytes without a gap.
unsafe impl Plain for Key {}
// SAFETY: numbers and arrays of numbers, 40 bytes without a gap.
unsafe impl Plain for Action {}
const _: () = assert!(size_of::<Key>() == 16 && size_of::<Action>() == 40);

type Table = Map<Key, Action>;

/// Next hop of the packets that leave by one side.
#[derive(Clone, Copy, Debug, Default)]
struct Hop {
    /// Hardware addresses of the next station and of this side's interface.
    stations: [[u8; 6]; 2],
    interface: u32,
}

/// The running data path; it ends when dropped.
pub(super) struct FastPath {
    _table: Table,
    _attached: [OwnedFd; 2],
}

impl FastPath {
    pub(super) fn start(
        path: Path,
        place: &Place,
        network: &Network,
        links: &LinkNames,
    ) -> Result<Self, BedError> {
        Kernel::prepare(network, &links.subject)?;
        let hops = [hop(network, links, 0)?, hop(network, links, 1)?];
        let table = match path {
            Path::Forward => table(1)?,
            Path::Translate => fill(place, hops)?,
        };
        let attach = |side: usize| {
            let code = match path {
                Path::Forward => program::forward(hops[1 - side]),
                Path::Translate => program::translate(table.descriptor()),
            };
            let program = bpf::load("the fast path's program", &code)?;
            let interface = hops[side].interface;
            network.node("nat").enter(|| bpf::attach(&program, interface, Mode::Native))?
        };
        Ok(Self { _attached: [attach(0)?, attach(1)?], _table: table })
    }
}

fn hop(network: &Network, links: &LinkNames, side: usize) -> io::Result<Hop> {
    let (own, next) = (&links.subject[side], &links.tester[side]);
    let interface = read(network, "nat", own, "ifindex")?.parse().map_err(io::Error::other)?;
    let stations = [station(network, "tester", next)?, station(network, "nat", own)?];
    Ok(Hop { stations, interface })
}

fn station(network: &Network, node: &str, name: &str) -> io::Result<[u8; 6]> {
    let text = read(network, node, name, "address")?;
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let mut station = [0; 6];
    for place in &mut station {
        let byte = bytes.next().and_then(Result::ok);
        *place = byte.ok_or_else(|| io::Error::other(format!("{name} has the address {text}")))?;
    }
    Ok(station)
}

/// Reads an attribute of an interface from the kernel.
fn read(network: &Network, node: &str, name: &str, what: &str) -> io::Result<String> {
    let file = format!("/sys/class/net/{name}/{what}");
    let output = network.node(node).run(5, "cat", &[&file])?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn table(entries: u32) -> io::Result<Table> {
    Table::table(entries).map_err(bpf::refused(format!("a map of {entries} entries")))
}

/// Creates a table with two entries for each flow.
fn fill(place: &Place, hops: [Hop; 2]) -> io::Result<Table> {
    let table = table(place.flows * 2)?;
    for flow in 0..place.flows {
        for (key, action) in entries(place, hops, flow) {
            table.update(&key, &action)?;
        }
    }
    Ok(table)
}

/// Table entries of one flow, outbound and inbound.
fn entries(place: &Place, [inside, outside]: [Hop; 2], flow: u32) -> [(Key, Action); 2] {
    let [internal, external, remote] =
        [place.internal(flow), external(flow), place.remote_of(flow)];
    [
        (key(internal, remote), action(outside, [internal, remote], [external, remote])),
        (key(remote, external), action(inside, [remote, external], [remote, internal])),
    ]
}

fn external(flow: u32) -> Endpoint {
    Endpoint {
        address: POOL.to_bits() + flow / FLOWS_PER_ADDRESS,
        port: FIRST_PORT + (flow % FLOWS_PER_ADDRESS) as u16,
    }
}

fn key(source: Endpoint, destination: Endpoint) -> Key {
    Key {
        source: source.address.to_be_bytes(),
        destination: destination.address.to_be_bytes(),
        ports: [source, destination].map(|end| end.port.to_be_bytes()),
        protocol: UDP,
    }
}

fn action(hop: Hop, old: [Endpoint; 2], new: [Endpoint; 2]) -> Action {
    // RFC 1624, equation 3: the inverse of the old value, and the new value.
    let mut addresses = 0;
    let mut ports = 0;
    for (old, new) in old.iter().zip(new) {
        let inverse = !old.address;
        addresses += (inverse >> 16) + (inverse & 0xffff);
        addresses += (new.address >> 16) + (new.address & 0xffff);
        ports += u32::from(!old.port) + u32::from(new.port);
    }
    // The time to live is the upper half of its word and decreases by one.
    let time_to_live = u32::from(!0x0100_u16);
    let in_memory = |sum| u16::from_ne_bytes(fold(sum).to_be_bytes());
    let Key { source, destination, ports: new_ports, .. } = key(new[0], new[1]);
    Action {
        used: 0,
        stations: hop.stations,
        source,
        destination,
        ports: new_ports,
        header_delta: in_memory(addresses + time_to_live),
        payload_delta: in_memory(addresses + ports),
        interface: hop.interface,
    }
}

/// Cost of a table, and of the program alone.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Price {
    /// Flows in the table; each flow has two entries.
    pub flows: u32,
    /// Bytes of kernel memory for each flow.
    pub bytes_per_flow: f64,
    /// Time to insert one entry, nanoseconds.
    pub insert_ns: f64,
    /// Time to read the latest use of one entry, nanoseconds.
    pub read_ns: f64,
    /// Time of one run of the program on one repeated packet, without sending, nanoseconds. The
    /// table has the packet's entry.
    pub found_ns: f64,
    /// The time of such a run for a packet without an entry, nanoseconds.
    pub missed_ns: f64,
}

impl Price {
    /// Fills a table with `flows` flows and measures it; needs root.
    ///
    /// # Errors
    /// The system's.
    pub fn of(flows: u32) -> io::Result<Self> {
        let place = super::place(flows);
        let begin = Instant::now();
        let table = fill(&place, [Hop::default(); 2])?;
        let filled = begin.elapsed();
        let begin = Instant::now();
        for flow in 0..flows {
            for (key, _) in entries(&place, [Hop::default(); 2], flow) {
                table.look_up(&key)?;
            }
        }
        let read = begin.elapsed();
        let bytes = table.memory()? as f64;
        let each = f64::from(flows) * 2.0;
        Ok(Self {
            flows,
            bytes_per_flow: bytes / f64::from(flows),
            insert_ns: filled.as_nanos() as f64 / each,
            read_ns: read.as_nanos() as f64 / each,
            found_ns: program::time(true)?,
            missed_ns: program::time(false)?,
        })
    }
}
