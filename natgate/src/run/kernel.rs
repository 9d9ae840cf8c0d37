//! Settings that the gateway takes from the kernel, packets that it leaves to the kernel, and the
//! routes that both exchange.

use super::locks::Locks;
use super::{name, say};
use natgate_control::routes::{Announcer, Learner, RoutePlan};
use natgate_engine::{Prefix, Side, SideConfig};
use natgate_gateway::router6;
use natgate_gateway::{AnnounceSettings, Backend, Commander, Device, Settings, SideSettings};
use natgate_io::xdp::{KernelShare, MOST_SHARED};
use natgate_io::{Error, kernel_address, kernel_addresses, kernel_gateway};
use std::net::Ipv4Addr;

/// Completes the settings of a side from the kernel: the gateway's address there, the next hop, and
/// the kernel's own addresses.
pub(super) fn complete(settings: &mut Settings, side: Side) -> Result<(), Error> {
    let (own, engine): (&mut SideSettings, &mut SideConfig) = match side {
        Side::Inside => (&mut settings.inside, &mut settings.engine.inside),
        Side::Outside => (&mut settings.outside, &mut settings.engine.outside),
    };
    // The kernel has no address for a DPDK port, and its addresses on a TUN device belong to the
    // other end.
    if matches!(own.backend, Backend::Dpdk | Backend::Tun) {
        return Ok(());
    }
    let (device, first) = (own.device.clone(), kernel_address(&own.device)?);
    let is_named = own.address.is_some();
    if let (None, Some((address, len))) = (own.address, first) {
        own.address = Some((address, len));
        engine.address = Some(address);
        engine.network = Some(Prefix::new(address, len));
        own.gateway = own.gateway.or_else(|| kernel_gateway(&device));
    }
    let (address, backend) = (own.address, own.backend);
    let there = kernel_addresses(&device)?;
    if let Some((address, len)) = address.filter(|(address, _)| there.contains(address)) {
        let trouble = match backend {
            Backend::AfXdp => "is not reached there any more, since natgate gets its frames",
            _ => "answers there, too",
        };
        let and_write = match is_named {
            true => String::new(),
            false => format!(" and write {}.address = \"{address}/{len}\"", name(side)),
        };
        say(format!(
            "warning: the kernel has address {address} on {device} and {trouble}; take it away \
             with `ip addr del {address}/{len} dev {device}`{and_write}"
        ));
    }
    if settings.kernel.management_mut(side).is_none() {
        let found = managing(settings, side, there);
        *settings.kernel.management_mut(side) = Some(found);
    }
    let kernels = settings.kernel.management(side);
    if !kernels.is_empty() {
        let shown: Vec<String> = kernels.iter().map(ToString::to_string).collect();
        say(format!("on {device} the kernel keeps {}", shown.join(", ")));
    }
    Ok(())
}

/// Addresses on a side's device that are the kernel's and not natgate's.
fn managing(settings: &Settings, side: Side, there: Vec<Ipv4Addr>) -> Vec<Ipv4Addr> {
    let own = settings.side(side).address.map(|(address, _)| address);
    let engine = &settings.engine;
    let external = |address: &Ipv4Addr| {
        let mut pools = engine.pools.iter().flat_map(|pool| &pool.addresses);
        pools.any(|range| (range.first..=range.last).contains(address))
            || engine.statics.iter().any(|fixed| fixed.external.0 == *address)
    };
    let kernels = there.into_iter().filter(|address| own != Some(*address) && !external(address));
    kernels.take(MOST_SHARED).collect()
}

/// Starts to learn routes from the kernel, if the settings say so. Dropping the learner ends it.
pub(super) fn learn(settings: &Settings, commander: Commander) -> anyhow::Result<Option<Learner>> {
    let Some(learn) = &settings.kernel.learn else { return Ok(None) };
    let learner = Learner::start(learn, settings, commander, Box::new(say))?;
    Ok(Some(learner))
}

/// Starts to announce the external addresses to the kernel, if the settings say so. Dropping the
/// announcer ends it.
pub(super) fn announce(
    settings: &Settings,
    devices: &[Box<dyn Device>],
) -> anyhow::Result<Option<Announcer>> {
    let Some(announce) = &settings.kernel.announce else { return Ok(None) };
    let up = [0, 1].map(|place| devices[place].link().up);
    let routes = RoutePlan::of(settings).routes();
    Ok(Some(Announcer::start(announce, routes, up, Box::new(say))?))
}

/// Announced routes that a killed gateway left. The kernel keeps them. A start that fails removes
/// them: this value removes them when it is dropped, unless an announcer has found them.
pub(super) struct RoutesLeft(Option<AnnounceSettings>);

impl RoutesLeft {
    /// The routes of an earlier gateway, if this start `is_first`: if no running gateway announces
    /// them. The locks of the settings must be held until this value is dropped.
    pub(super) fn new(settings: &Settings, is_first: bool) -> Self {
        Self(settings.kernel.announce.clone().filter(|_| is_first))
    }

    /// The announcer has found the routes, and keeps or removes them.
    pub(super) fn are_found(mut self) {
        self.0 = None;
    }
}

impl Drop for RoutesLeft {
    fn drop(&mut self) {
        let Some(announce) = &self.0 else { return };
        match Announcer::remove_left(announce) {
            Ok(0) => {}
            Ok(count) => say(format!("removed announced routes of an earlier natgate: {count}")),
            Err(error) => say(format!("warning: {error}")),
        }
    }
}

/// Removes the routes that a killed gateway left, unless another gateway announces them.
pub(crate) fn remove_routes_left(settings: &Settings) {
    if settings.kernel.announce.is_some()
        && let Ok(locks) = Locks::take(settings, None)
    {
        drop(RoutesLeft::new(settings, true));
        drop(locks);
    }
}

/// Frames of a side that are left to the kernel if natgate receives them first. Outside, natgate
/// has no VLANs.
pub(super) fn share(settings: &Settings, side: Side) -> KernelShare {
    let addresses = settings.kernel.management(side).to_vec();
    let ipv6 = !router6::is_used(settings, side);
    KernelShare { addresses, tagged: side == Side::Outside, ipv6 }
}
