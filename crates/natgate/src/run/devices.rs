//! Opens the devices, each by the back end that the configuration names, and tells what has come
//! of it; says which back ends this program has.
//!
//! Two sides that both use AF_XDP share their frames' memory, and ports of DPDK have one pool of
//! buffers, so that nothing is copied on the way from one to the other.

use super::{name, say};
use anyhow::Context;
use natgate_engine::Side;
use natgate_gateway::{Backend, Settings, SideSettings};
use natgate_io::decorate::{Faults, Faulty, Tap, Watched};
use natgate_io::packet::{self, PacketDevice};
use natgate_io::tun::TunDevice;
use natgate_io::xdp::{self, Hook, Memory, XdpDevice};
use natgate_io::{Device, Error, Offload};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of packets that are recorded.
const TAP_LIMIT: u64 = 1 << 30;

/// In the order of [`Settings::devices`].
type Devices = Vec<Box<dyn Device>>;

/// A recording of all devices.
pub(super) type Recording = Arc<Mutex<Tap<BufWriter<File>>>>;

/// Says what is missing in this program for these settings, if anything is.
pub(crate) fn require(settings: &Settings) -> Result<(), String> {
    for side in [Side::Inside, Side::Outside] {
        if settings.side(side).backend == Backend::Dpdk && !cfg!(feature = "dpdk") {
            return Err(format!(
                "{}.backend is \"dpdk\", but this natgate was built without it; build it with \
                 `cargo build --release -p natgate --features dpdk`",
                name(side)
            ));
        }
    }
    Ok(())
}

/// Opens the devices of both sides, then those that only realms have.
pub(super) fn open(settings: &Settings) -> anyhow::Result<Devices> {
    let sides = [(Side::Inside, &settings.inside), (Side::Outside, &settings.outside)];
    let with_xdp = sides.iter().filter(|(_, side)| side.backend == Backend::AfXdp);
    let with_xdp: Vec<_> = with_xdp.map(|(_, side)| *side).collect();
    let names: Vec<_> = with_xdp.iter().map(|side| side.device.as_str()).collect();
    let largest = with_xdp.iter().map(|side| xdp_config(side)).max_by_key(|config| config.frames);
    let memory = largest.map(|config| Memory::new(&names, &config)).transpose()?;
    let sides = sides.into_iter().map(|(side, own)| match (own.backend, &memory) {
        (Backend::AfXdp, Some(memory)) => Ok(open_xdp(side, own, memory)?),
        (Backend::Dpdk, _) => open_dpdk(settings, own),
        (Backend::Tun, _) => Ok(open_tun(&own.device)?),
        _ => Ok(open_packet_as(&own.device, packet_config(own))?),
    });
    let further = settings.devices().into_iter().skip(2).map(|name| Ok(open_packet(name)?));
    sides.chain(further).collect()
}

/// Puts around the devices, whose names are given, what was asked for: harm first, so that what is
/// recorded is what the gateway gets and what it sends.
pub(super) fn decorate(
    devices: Devices,
    names: &[&str],
    faults: Option<Faults>,
    file: Option<&Path>,
) -> anyhow::Result<(Devices, Option<Recording>)> {
    let harmed = devices.into_iter().map(|device| match faults {
        Some(faults) => Box::new(Faulty::new(device, faults)) as Box<dyn Device>,
        None => device,
    });
    let Some(path) = file else { return Ok((harmed.collect(), None)) };
    let further = names.iter().skip(2).copied();
    let ports: Vec<&str> = ["inside", "outside"].into_iter().chain(further).collect();
    let tap = File::create(path).map(BufWriter::new);
    let tap = tap.and_then(|file| Tap::new(file, &ports, TAP_LIMIT));
    let tap = tap.with_context(|| format!("--tap: {} cannot be written", path.display()))?;
    let tap = Arc::new(Mutex::new(tap));
    let watch =
        |(port, device)| -> Box<dyn Device> { Box::new(Watched::new(device, port, tap.clone())) };
    Ok(((0..).zip(harmed).map(watch).collect(), Some(tap)))
}

/// Ends the recording, if there is one.
pub(super) fn finish(recording: Option<Recording>) -> anyhow::Result<()> {
    let Some(tap) = recording else { return Ok(()) };
    let mut tap = tap.lock().unwrap_or_else(PoisonError::into_inner);
    let (recorded, missed) = tap.counts();
    say(format!("recorded {recorded} frames; {missed} came when the recording had ended"));
    tap.flush().context("--tap: the recording is not complete")
}

/// What a side's packet sockets are to be.
fn packet_config(own: &SideSettings) -> packet::Config {
    let usual = packet::Config::default();
    packet::Config { mode: own.mode, slots: own.ring.map_or(usual.slots, frames), ..usual }
}

/// What a side's AF_XDP sockets are to be.
fn xdp_config(own: &SideSettings) -> xdp::Config {
    xdp::Config { frames: own.ring.map_or(xdp::Config::default().frames, frames) }
}

fn frames(ring: u32) -> usize {
    usize::try_from(ring).unwrap_or(usize::MAX)
}

/// Opens a device by packet sockets.
pub(super) fn open_packet(name: &str) -> Result<Box<dyn Device>, Error> {
    open_packet_as(name, packet::Config::default())
}

fn open_packet_as(name: &str, config: packet::Config) -> Result<Box<dyn Device>, Error> {
    let device = PacketDevice::open(name, config)?;
    report_offloads(name, device.stop_merging());
    Ok(Box::new(device))
}

fn open_xdp(side: Side, own: &SideSettings, memory: &Memory) -> Result<Box<dyn Device>, Error> {
    let name_of_device = &own.device;
    let hook = Hook::new(name_of_device);
    let device = XdpDevice::open_queues(&hook, None, memory, xdp_config(own))?;
    report_offloads(name_of_device, device.stop_merging());
    if let Some(mode) = device.mode() {
        say(format!("{} device {name_of_device}: {mode}", name(side)));
    }
    if device.is_virtual() {
        say(format!(
            "note: hosts of this machine that send to {name_of_device} must finish their checksums \
             themselves: `ethtool -K DEVICE tx off tso off gso off` on their devices"
        ));
    }
    Ok(Box::new(device))
}

fn open_tun(name: &str) -> Result<Box<dyn Device>, Error> {
    let device = TunDevice::open(name)?;
    if device.is_made() {
        say(format!(
            "made TUN device {name}; give the kernel its address there with `ip addr add \
             ADDRESS/LEN dev {name}`, and switch it on with `ip link set dev {name} up`"
        ));
    }
    Ok(Box::new(device))
}

#[cfg(feature = "dpdk")]
fn open_dpdk(settings: &Settings, own: &SideSettings) -> anyhow::Result<Box<dyn Device>> {
    let ports = [&settings.inside, &settings.outside].into_iter();
    let ports = ports.filter(|side| side.backend == Backend::Dpdk);
    let longest = ports.map(|side| longest_packet(settings, side)).max().unwrap_or(own.mtu);
    let eal = natgate_dpdk::start(settings.dpdk.as_deref(), longest)?;
    let mut queues = eal.open(&own.device, longest_packet(settings, own), 1)?;
    match queues.pop() {
        Some(queue) => Ok(Box::new(queue)),
        None => anyhow::bail!("DPDK port {} has no queue", own.device),
    }
}

/// The largest MTU of the links that a side's device carries: a port is opened with one for all.
#[cfg(feature = "dpdk")]
fn longest_packet(settings: &Settings, own: &SideSettings) -> u16 {
    let realms = settings.realms.iter().map(|realm| &realm.inside);
    let there = realms.filter(|inside| inside.device == own.device);
    there.map(|inside| inside.mtu).fold(own.mtu, u16::max)
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(settings: &Settings, _: &SideSettings) -> anyhow::Result<Box<dyn Device>> {
    Err(anyhow::Error::msg(require(settings).err().unwrap_or_default()))
}

/// Tells what has been switched off.
fn report_offloads(device: &str, stopped: Result<Vec<Offload>, Error>) {
    match stopped {
        Ok(stopped) => {
            for offload in stopped {
                say(format!("switched off {offload} of {device}"));
            }
        }
        Err(error) => say(format!("warning: frames longer than the MTU will be lost: {error}")),
    }
}
