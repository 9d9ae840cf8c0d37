//! Devices of the tester and of the forwarder that does not translate.

use super::{BackEnd, BedError};
use natgate_io::Device;
use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{self, XdpDevice};
use natgate_testnet::Network;

pub(super) type Devices = [Box<dyn Device>; 2];

/// Opens packet sockets on interfaces of this thread's namespace.
pub(super) fn open_packet([inside, outside]: &[String; 2]) -> Result<Devices, BedError> {
    let config = packet::Config { slots: 16_384, ..packet::Config::default() };
    let open = |name| PacketDevice::open(name, config.clone());
    Ok([Box::new(open(inside)?), Box::new(open(outside)?)])
}

/// Opens the subject's devices on interfaces of this thread's namespace, for each of its workers.
pub(super) fn open(
    back_end: BackEnd,
    network: &Network,
    ends: &[String; 2],
    workers: usize,
) -> Result<Vec<Devices>, BedError> {
    const ONE_QUEUE: BedError = BedError::Lacking(
        "the tester fills one queue of a device; only packet sockets divide it among workers",
    );
    let names = [ends[0].as_str(), ends[1].as_str()];
    match back_end {
        BackEnd::AfPacket => {
            let config = packet::Config::default();
            let open = |name| PacketDevice::open_group(name, workers, None, &config);
            let pairs = open(names[0])?.into_iter().zip(open(names[1])?);
            let boxed = |(inside, outside): (PacketDevice, PacketDevice)| -> Devices {
                [Box::new(inside), Box::new(outside)]
            };
            Ok(pairs.map(boxed).collect())
        }
        _ if workers > 1 => Err(ONE_QUEUE),
        BackEnd::AfXdp => {
            let [inside, outside] = XdpDevice::open_pair(names, &xdp::Config::default())?;
            Ok(vec![[Box::new(inside), Box::new(outside)]])
        }
        BackEnd::Dpdk => Ok(vec![open_servers(network)?]),
    }
}

/// Names and arguments of the subject's ports.
pub(super) fn servers(network: &Network) -> [String; 2] {
    ["in", "out"].map(|end| memif(network, end, "server"))
}

fn memif(network: &Network, end: &str, role: &str) -> String {
    let number = match (end, role) {
        ("in", "server") => 0,
        (_, "server") => 1,
        ("in", _) => 2,
        _ => 3,
    };
    let socket = network.file(&format!("{end}.sock"));
    format!("net_memif{number},role={role},id=0,socket-abstract=no,socket={}", socket.display())
}

#[cfg(feature = "dpdk")]
mod memory {
    use super::{BedError, Devices, memif, servers};
    use natgate_io::Device;
    use natgate_testnet::Network;
    use std::time::Duration;

    const MTU: u16 = 1500;
    /// A client cannot be created before its server exists.
    const TRIES: usize = 50;

    pub(in super::super) fn open_client(network: &Network) -> Result<Devices, BedError> {
        let [inside, outside] = ["in", "out"].map(|end| memif(network, end, "client"));
        Ok([port(&inside)?, port(&outside)?])
    }

    pub(super) fn open_servers(network: &Network) -> Result<Devices, BedError> {
        let [inside, outside] = servers(network);
        Ok([port(&inside)?, port(&outside)?])
    }

    fn port(name: &str) -> Result<Box<dyn Device>, BedError> {
        let eal = natgate_dpdk::start(None, MTU)?;
        for _ in 1..TRIES {
            if let Some(queue) = eal.open(name, MTU, 1).ok().and_then(|mut queues| queues.pop()) {
                return Ok(Box::new(queue));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut queues = eal.open(name, MTU, 1)?;
        match queues.pop() {
            Some(queue) => Ok(Box::new(queue)),
            None => Err(BedError::Lacking("a port of DPDK has no queue")),
        }
    }
}

#[cfg(not(feature = "dpdk"))]
mod memory {
    use super::{BedError, Devices};
    use natgate_testnet::Network;

    const LACKING: BedError = BedError::Lacking(
        "this natgate was built without DPDK; build it with `cargo build --release -p natgate \
         --features dpdk`",
    );

    pub(in super::super) fn open_client(_: &Network) -> Result<Devices, BedError> {
        Err(LACKING)
    }

    pub(super) fn open_servers(_: &Network) -> Result<Devices, BedError> {
        Err(LACKING)
    }
}

pub(super) use memory::open_client;
use memory::open_servers;
