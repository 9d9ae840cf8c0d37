//! Opens the devices of a gateway by the back ends that its sides name, and says which back ends
//! this program has.

use super::say;
use crate::Failure;
use natgate_engine::Side;
use natgate_gateway::{Backend, Settings, SideSettings};
use natgate_io::Device;
use natgate_io::packet::{Config, PacketDevice};

/// Says what is missing in this program for these settings, if anything is.
pub(crate) fn require(settings: &Settings) -> Result<(), String> {
    for (name, side) in [("inside", Side::Inside), ("outside", Side::Outside)] {
        if settings.side(side).backend == Backend::Dpdk && !cfg!(feature = "dpdk") {
            return Err(format!(
                "{name}.backend is \"dpdk\", but this natgate was built without it; build it with \
                 `cargo build --release -p natgate --features dpdk`"
            ));
        }
    }
    Ok(())
}

/// Opens both sides' devices, `[inside, outside]`.
pub(super) fn open(settings: &Settings) -> Result<[Box<dyn Device>; 2], Failure> {
    Ok([open_side(settings, &settings.inside)?, open_side(settings, &settings.outside)?])
}

fn open_side(settings: &Settings, side: &SideSettings) -> Result<Box<dyn Device>, Failure> {
    match side.backend {
        Backend::AfPacket => open_packet(side),
        Backend::Dpdk => open_dpdk(settings, side),
    }
}

fn open_packet(side: &SideSettings) -> Result<Box<dyn Device>, Failure> {
    let device =
        PacketDevice::open(&side.device, Config::default()).map_err(anyhow::Error::from)?;
    match device.stop_merging() {
        Ok(stopped) => {
            for offload in stopped {
                say(format!("switched off {offload} of {}", side.device));
            }
        }
        Err(error) => say(format!("warning: frames longer than the MTU will be lost: {error}")),
    }
    Ok(Box::new(device))
}

#[cfg(feature = "dpdk")]
fn open_dpdk(settings: &Settings, side: &SideSettings) -> Result<Box<dyn Device>, Failure> {
    let ports = [&settings.inside, &settings.outside].into_iter();
    let ports = ports.filter(|side| side.backend == Backend::Dpdk);
    let longest = ports.map(|side| side.mtu).max().unwrap_or(side.mtu);
    let open = || {
        let eal = natgate_dpdk::start(settings.dpdk.as_deref(), longest)?;
        eal.open(&side.device, side.mtu, 1)
    };
    let mut queues = open().map_err(anyhow::Error::from)?;
    match queues.pop() {
        Some(queue) => Ok(Box::new(queue)),
        None => Err(anyhow::anyhow!("DPDK port {} has no queue", side.device).into()),
    }
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(settings: &Settings, _: &SideSettings) -> Result<Box<dyn Device>, Failure> {
    let lack = require(settings).err().unwrap_or_default();
    Err(Failure::Input(vec![lack]))
}
