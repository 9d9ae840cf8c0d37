//! Opens the devices, each by the back end that the configuration names, and reports the result.
//! Says which back ends this program has.
//!
//! Two sides that both use AF_XDP share the memory of their frames, and DPDK ports share one pool
//! of buffers. So no packet is copied between the sides.

use super::{kernel, name, say};
use anyhow::Context;
use natgate_engine::Side;
use natgate_gateway::{Backend, Settings, SideSettings, open_or_create, steering};
use natgate_io::decorate::{Faults, Faulty, Tap, Watched};
use natgate_io::packet::{self, AllGroups, PacketDevice, SendingDevice};
use natgate_io::tun::TunDevice;
use natgate_io::xdp::{self, Hook, Memory, XdpDevice};
use natgate_io::{Device, Error, Offload, Steering};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of packets in a recording.
const TAP_LIMIT: u64 = 1 << 30;

/// Devices in the order of [`Settings::devices`].
pub(super) type Devices = Vec<Box<dyn Device>>;

/// A recording of all devices.
pub(super) type Recording = Arc<Mutex<Tap<BufWriter<File>>>>;

/// Fails if these settings need a back end that this program lacks.
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

/// Opens the devices of both sides, then the devices of realms. Each worker gets its own.
pub(super) fn open(settings: &Settings) -> anyhow::Result<Vec<Devices>> {
    let workers = settings.workers.count;
    let sides = [(Side::Inside, &settings.inside), (Side::Outside, &settings.outside)];
    let with_xdp = sides.iter().filter(|(_, side)| side.backend == Backend::AfXdp);
    let with_xdp: Vec<_> = with_xdp.map(|(_, side)| *side).collect();
    let names: Vec<_> = with_xdp.iter().map(|side| side.device.as_str()).collect();
    let largest = with_xdp.iter().map(|side| xdp_config(side)).max_by_key(|config| config.frames);
    let memories = match largest {
        Some(config) => Memory::for_workers(&names, workers, &config)?,
        None => Vec::new(),
    };
    let steering = steering(settings);
    let mut all: Vec<Devices> = (0..workers).map(|_| Vec::new()).collect();
    for ((side, own), steering) in sides.into_iter().zip(&steering) {
        let group = match own.backend {
            Backend::AfXdp => open_xdp(side, settings, &memories)?,
            Backend::Dpdk => open_dpdk(settings, own)?,
            Backend::Tun => open_tun(&own.device, workers)?,
            Backend::AfPacket => {
                open_packet_as(&own.device, workers, Some(steering), &packet_config(own))?
            }
        };
        deal(&mut all, group);
    }
    for name in settings.devices().into_iter().skip(2) {
        deal(&mut all, open_packet(name, workers)?);
    }
    Ok(all)
}

/// Opens devices for a worker that joins later. It only sends, because the other workers receive.
pub(super) fn open_sending(settings: &Settings) -> Result<Devices, Error> {
    let open = |name: &str| -> Result<Box<dyn Device>, Error> {
        Ok(Box::new(SendingDevice::open(name, packet::Config::default())?))
    };
    settings.devices().into_iter().map(open).collect()
}

/// Gives each worker one device of a group.
fn deal(all: &mut [Devices], group: Devices) {
    all.iter_mut().zip(group).for_each(|(devices, device)| devices.push(device));
}

/// Wraps the workers' devices with fault injection and with a recording, as asked. Faults come
/// first, so the recording shows what the gateway receives and sends. `names` are the names of the
/// devices.
pub(super) fn decorate(
    devices: Vec<Devices>,
    names: &[&str],
    faults: Option<Faults>,
    file: Option<&Path>,
) -> anyhow::Result<(Vec<Devices>, Option<Recording>)> {
    let harm = |device| match faults {
        Some(faults) => Box::new(Faulty::new(device, faults)) as Box<dyn Device>,
        None => device,
    };
    let harmed = devices.into_iter().map(|own| own.into_iter().map(harm).collect::<Devices>());
    let Some(path) = file else { return Ok((harmed.collect(), None)) };
    let further = names.iter().skip(2).copied();
    let ports: Vec<&str> = ["inside", "outside"].into_iter().chain(further).collect();
    let tap = open_or_create(File::options().write(true), path).and_then(|file| {
        // A pipe or a device has no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(BufWriter::new(file))
    });
    let tap = tap.and_then(|file| Tap::new(file, &ports, TAP_LIMIT));
    let tap = tap.map_err(|error| {
        let why = natgate_service::explain(path, &error);
        anyhow::anyhow!("--tap: {} cannot be written: {why}", path.display())
    })?;
    let tap = Arc::new(Mutex::new(tap));
    let watch =
        |(port, device)| -> Box<dyn Device> { Box::new(Watched::new(device, port, tap.clone())) };
    let watched = harmed.map(|own| (0..).zip(own).map(watch).collect());
    Ok((watched.collect(), Some(tap)))
}

/// Ends the recording, if there is one.
pub(super) fn finish(recording: Option<Recording>) -> anyhow::Result<()> {
    let Some(tap) = recording else { return Ok(()) };
    let mut tap = tap.lock().unwrap_or_else(PoisonError::into_inner);
    let (recorded, missed) = tap.counts();
    say(format!("recorded {recorded} frames; {missed} came when the recording had ended"));
    tap.flush().context("--tap: the recording is not complete")
}

/// Asks both sides' devices for the frames of all groups, if IPv6 is configured: neighbors ask for
/// an address in a group of its own. The devices do so until the returned values are dropped.
pub(super) fn join_groups(settings: &Settings) -> Vec<AllGroups> {
    if !settings.ipv6.configured {
        return Vec::new();
    }
    let join = |own: &SideSettings| match AllGroups::join(&own.device) {
        Ok(joined) => Some(joined),
        Err(error) => {
            say(format!(
                "warning: {} may not pass Neighbor Discovery: {error}; `ip link set {} \
                 allmulticast on` makes it do so",
                own.device, own.device
            ));
            None
        }
    };
    [&settings.inside, &settings.outside].into_iter().filter_map(join).collect()
}

/// Configuration of a side's packet sockets.
fn packet_config(own: &SideSettings) -> packet::Config {
    let usual = packet::Config::default();
    packet::Config { mode: own.mode, slots: own.ring.map_or(usual.slots, frames), ..usual }
}

/// Configuration of a side's AF_XDP sockets.
fn xdp_config(own: &SideSettings) -> xdp::Config {
    xdp::Config { frames: own.ring.map_or(xdp::Config::default().frames, frames) }
}

fn frames(ring: u32) -> usize {
    usize::try_from(ring).unwrap_or(usize::MAX)
}

/// Checks that there is a device that [`open_packet`] can open.
pub(super) fn find_packet(name: &str) -> Result<(), String> {
    PacketDevice::find(name).map_err(|error| error.to_string())
}

/// Opens a device by packet sockets, one for each worker.
pub(super) fn open_packet(name: &str, workers: usize) -> Result<Devices, Error> {
    open_packet_as(name, workers, None, &packet::Config::default())
}

fn open_packet_as(
    name: &str,
    workers: usize,
    steering: Option<&Steering>,
    config: &packet::Config,
) -> Result<Devices, Error> {
    let group = PacketDevice::open_group(name, workers, steering, config)?;
    if let Some(first) = group.first() {
        report_offloads(name, first.stop_merging());
    }
    Ok(boxed(group))
}

fn open_xdp(side: Side, settings: &Settings, memories: &[Memory]) -> Result<Devices, Error> {
    let name_of_device = &settings.side(side).device;
    let config = xdp_config(settings.side(side));
    let hook = Hook::sharing(name_of_device, kernel::share(settings, side));
    let group = XdpDevice::open_group(&hook, memories, &config)?;
    let idle = group.iter().filter(|device| device.queues() == 0).count();
    if let Some(device) = group.first() {
        report_offloads(name_of_device, device.stop_merging());
        if let Some(mode) = device.mode() {
            say(format!("{} device {name_of_device}: {mode}", name(side)));
        }
        if device.is_virtual() {
            say(format!(
                "note: hosts of this machine that send to {name_of_device} must finish their \
                 checksums themselves: `ethtool -K DEVICE tx off tso off gso off` on their devices"
            ));
        }
    }
    if idle > 0 {
        say(format!(
            "note: {name_of_device} has fewer queues than there are workers; {idle} of them get \
             its packets from the others (`ethtool -L {name_of_device} combined {}` makes more)",
            memories.len()
        ));
    }
    Ok(boxed(group))
}

fn open_tun(name: &str, workers: usize) -> Result<Devices, Error> {
    let group = TunDevice::open_group(name, workers)?;
    if group.first().is_some_and(TunDevice::is_made) {
        say(format!(
            "made TUN device {name}; give the kernel its address there with `ip addr add \
             ADDRESS/LEN dev {name}`, and switch it on with `ip link set dev {name} up`"
        ));
    }
    Ok(boxed(group))
}

fn boxed<D: Device + 'static>(group: Vec<D>) -> Devices {
    group.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect()
}

#[cfg(feature = "dpdk")]
fn open_dpdk(settings: &Settings, own: &SideSettings) -> anyhow::Result<Devices> {
    let ports = [&settings.inside, &settings.outside].into_iter();
    let ports = ports.filter(|side| side.backend == Backend::Dpdk);
    let longest = ports.map(|side| longest_packet(settings, side)).max().unwrap_or(own.mtu);
    let workers = u16::try_from(settings.workers.count)?;
    let eal = natgate_dpdk::start_for(settings.dpdk.as_deref(), longest, workers)?;
    let queues = eal.open(&own.device, longest_packet(settings, own), workers)?;
    if queues.len() < settings.workers.count {
        anyhow::bail!(
            "DPDK port {} has {} queues for {workers} workers; set workers.count = {0}, or give \
             the port more queues",
            own.device,
            queues.len()
        );
    }
    Ok(boxed(queues))
}

/// The largest MTU of the links on a side's device. A DPDK port is opened with one MTU for all of
/// them.
#[cfg(feature = "dpdk")]
fn longest_packet(settings: &Settings, own: &SideSettings) -> u16 {
    let realms = settings.realms.iter().map(|realm| &realm.inside);
    let there = realms.filter(|inside| inside.device == own.device);
    there.map(|inside| inside.mtu).fold(own.mtu, u16::max)
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(settings: &Settings, _: &SideSettings) -> anyhow::Result<Devices> {
    Err(anyhow::Error::msg(require(settings).err().unwrap_or_default()))
}

/// Reports the offloads that were switched off.
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
