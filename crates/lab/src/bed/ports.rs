//! The devices: both the tester's and those of the forwarder that does not translate.

use super::{BackEnd, BedError};
use natgate_io::Device;
use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{self, XdpDevice};
use natgate_testnet::Network;

pub(super) type Devices = [Box<dyn Device>; 2];

/// Packet sockets, on interfaces of this thread's namespace.
pub(super) fn open_packet([inside, outside]: &[String; 2]) -> Result<Devices, BedError> {
    let config = packet::Config { slots: 16_384, ..packet::Config::default() };
    let open = |name| PacketDevice::open(name, config.clone());
    Ok([Box::new(open(inside)?), Box::new(open(outside)?)])
}

/// The forwarder's, on interfaces of this thread's namespace.
pub(super) fn open(
    back_end: BackEnd,
    network: &Network,
    ends: &[String; 2],
) -> Result<Devices, BedError> {
    match back_end {
        BackEnd::AfPacket => {
            let open = |name| PacketDevice::open(name, packet::Config::default());
            Ok([Box::new(open(&ends[0])?), Box::new(open(&ends[1])?)])
        }
        BackEnd::AfXdp => {
            let names = [ends[0].as_str(), ends[1].as_str()];
            let [inside, outside] = XdpDevice::open_pair(names, &xdp::Config::default())?;
            Ok([Box::new(inside), Box::new(outside)])
        }
        BackEnd::Dpdk => open_subject(network),
    }
}

/// The subject's ports: names and arguments. A client's buffers are what is shared, so it need not copy.
pub(super) fn subject(network: &Network) -> [String; 2] {
    memif(network, [("in", 0), ("out", 1)], "client,zero-copy=yes")
}

/// The tester's, which have to be there first.
#[cfg(feature = "dpdk")]
fn tester(network: &Network) -> [String; 2] {
    memif(network, [("in", 2), ("out", 3)], "server")
}

fn memif(network: &Network, ends: [(&str, u8); 2], role: &str) -> [String; 2] {
    ends.map(|(end, number)| {
        let socket = network.file(&format!("{end}.sock"));
        let socket = socket.display();
        format!("net_memif{number},role={role},id=0,socket-abstract=no,socket={socket}")
    })
}

#[cfg(feature = "dpdk")]
mod memory {
    use super::{BedError, Devices, subject, tester};
    use natgate_io::Device;
    use natgate_testnet::Network;

    const MTU: u16 = 1500;

    pub(in super::super) fn open_tester(network: &Network) -> Result<Devices, BedError> {
        open(&tester(network))
    }

    pub(super) fn open_subject(network: &Network) -> Result<Devices, BedError> {
        open(&subject(network))
    }

    fn open([inside, outside]: &[String; 2]) -> Result<Devices, BedError> {
        Ok([port(inside)?, port(outside)?])
    }

    fn port(name: &str) -> Result<Box<dyn Device>, BedError> {
        let mut queues = natgate_dpdk::start(None, MTU)?.open(name, MTU, 1)?;
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

    pub(in super::super) fn open_tester(_: &Network) -> Result<Devices, BedError> {
        Err(LACKING)
    }

    pub(super) fn open_subject(_: &Network) -> Result<Devices, BedError> {
        Err(LACKING)
    }
}

use memory::open_subject;
pub(super) use memory::open_tester;
