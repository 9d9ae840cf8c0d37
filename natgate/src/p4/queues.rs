//! The two devices of `natgate p4 run`, opened with a queue for each worker.

#[cfg(not(feature = "dpdk"))]
use super::WITHOUT_DPDK;
use anyhow::ensure;
use clap::ValueEnum;
use natgate_io::Device;
use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{self, Hook, Memory, XdpDevice};

/// Packet I/O.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Backend {
    /// Packet sockets
    AfPacket,
    /// AF_XDP
    AfXdp,
    /// Ports of DPDK
    Dpdk,
}

/// Queues of the two devices, for one worker.
pub(super) type Devices = [Box<dyn Device>; 2];

/// Queues of one device, one for each worker.
type Queues = Vec<Box<dyn Device>>;

/// Opens the devices with these names for `workers` workers.
pub(super) fn open(
    backend: Backend,
    names: [&str; 2],
    workers: usize,
) -> anyhow::Result<Vec<Devices>> {
    let [inside, outside] = match backend {
        Backend::AfPacket => [open_packet(names[0], workers)?, open_packet(names[1], workers)?],
        Backend::AfXdp => {
            let memories = Memory::for_workers(&names, workers, &xdp::Config::default())?;
            [open_xdp(names[0], &memories)?, open_xdp(names[1], &memories)?]
        }
        Backend::Dpdk => [open_dpdk(names[0], workers)?, open_dpdk(names[1], workers)?],
    };
    Ok(inside.into_iter().zip(outside).map(|(inside, outside)| [inside, outside]).collect())
}

/// Sockets among which the kernel divides the flows.
fn open_packet(name: &str, workers: usize) -> anyhow::Result<Queues> {
    let group = PacketDevice::open_group(name, workers, None, &packet::Config::default())?;
    group.first().map(PacketDevice::stop_merging).transpose()?;
    Ok(boxed(group))
}

fn open_xdp(name: &str, memories: &[Memory]) -> anyhow::Result<Queues> {
    let group = XdpDevice::open_group(&Hook::new(name), memories, &xdp::Config::default())?;
    let queues = group.iter().map(XdpDevice::queues).sum();
    check_queues(name, queues, memories.len(), |workers| {
        format!("make more: `ethtool -L {name} combined {workers}` (or rx {workers} tx {workers})")
    })?;
    group.first().map(XdpDevice::stop_merging).transpose()?;
    Ok(boxed(group))
}

/// Refuses a device with fewer queues than workers: some workers would have no work.
fn check_queues(
    name: &str,
    queues: usize,
    workers: usize,
    remedy: impl FnOnce(usize) -> String,
) -> anyhow::Result<()> {
    ensure!(
        queues >= workers,
        "the number of receive queues of {name} is {queues}, and that of --workers {workers}; {}",
        remedy(workers)
    );
    Ok(())
}

fn boxed<D: Device + 'static>(group: Vec<D>) -> Queues {
    group.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect()
}

#[cfg(feature = "dpdk")]
fn open_dpdk(name: &str, workers: usize) -> anyhow::Result<Queues> {
    const MTU: u16 = 1500;
    let count = u16::try_from(workers)?;
    let queues = natgate_dpdk::start_for(None, MTU, count)?.open(name, MTU, count)?;
    check_queues(name, queues.len(), workers, |_| {
        "give the port more, by an argument of its driver".to_owned()
    })?;
    Ok(boxed(queues))
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(_: &str, _: usize) -> anyhow::Result<Queues> {
    anyhow::bail!(WITHOUT_DPDK)
}
