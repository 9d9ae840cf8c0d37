//! Reports of a running worker to its program: events, changes and the state.

use crate::alg::{AlgCounters, AlgExpectation, Kind as AlgKind};
use crate::fleet::SliceChange;
use crate::health::ServerChange;
use crate::load::LoadNow;
use crate::pcp::PcpCounters;
use crate::router::{NeighborInfo, NeighborReport, RouterCounters};
use crate::router6::{AddressState, NeighborInfo6, Router6Counters};
use crate::settings::Settings;
use crate::team::Member;
use natgate_engine::{Counters, Engine, Event, MappingId, Side, Timestamp};
use natgate_io::{Change, LinkInfo, Statistics};
use natgate_ipv6::{HostName, Translator};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Receiver of a gateway's reports.
pub trait Observer {
    /// Reports a change of the translator's state. Called in order of time.
    fn event(&mut self, event: &Event);

    /// Reports a change of the translator's state, as [`Observer::event`] does. `host` is the host
    /// of NAT64 that the change is about, if it is about one.
    fn event_of(&mut self, event: &Event, _host: Option<&HostName>) {
        self.event(event);
    }

    /// Reports an expectation that an application-level gateway has made, after the changes that it
    /// caused. `_host` is the internal host, if it is one of NAT64.
    fn expectation(&mut self, _: &AlgExpectation, _host: Option<&HostName>) {}

    /// Reports that a slice of a pair has another owner, or another epoch.
    fn slice(&mut self, _: &SliceChange) {}

    /// Reports the loss of `_count` changes between two times: they came faster than they could be
    /// taken. The loss is after the last reported event and before the next one.
    fn events_lost(&mut self, _count: u64, _from: Timestamp, _to: Timestamp) {}

    /// Reports the change of a device.
    fn link(&mut self, side: Side, link: &LinkInfo, change: &Change);

    /// Reports a claim to the address of a neighbour.
    fn neighbor(&mut self, _: &NeighborReport) {}

    /// Reports that a server of a service has gone down or come up.
    fn server(&mut self, _: &ServerChange) {}

    /// Reports the state, because it was asked for.
    fn status(&mut self, status: &Status<'_>);

    /// Reports the result of writing the ports in use to the state file.
    fn ports_written(&mut self, _: &io::Result<()>) {}

    /// Reports that other settings are in force.
    fn reconfigured(&mut self, _: Settings) {}

    /// Reports that all events until that time have been reported. Called about once a second, and
    /// before [`Observer::idle`].
    fn passed(&mut self, _: Timestamp) {}

    /// Reports that no traffic is waiting: a good time to write out events.
    fn idle(&mut self);
}

/// A gateway's state.
#[derive(Debug)]
pub struct Status<'a> {
    /// Time of the state.
    pub now: Timestamp,
    /// Mappings, sessions and pools.
    pub engine: &'a Engine,
    /// Packets, with what was lost after translation counted as dropped.
    pub counters: Counters,
    /// Counters of the router besides those of packets.
    pub router: RouterCounters,
    /// Packets of the gateway's own making that were lost.
    pub own_lost: u64,
    /// Frames addressed to other stations.
    pub not_addressed: u64,
    /// Each side's link, frames and neighbours: `[inside, outside]`.
    pub sides: [SideStatus; 2],
    /// Links, frames and neighbours of the realms beside number 0, by number.
    pub realms: Vec<(u16, SideStatus)>,
    /// Load of the worker.
    pub load: LoadNow,
    /// Counters of requests for mappings.
    pub pcp: PcpCounters,
    /// State of IPv6, if it is configured.
    pub ipv6: Option<Status6<'a>>,
    /// Counters of the application-level gateways that are on.
    pub algs: Vec<(AlgKind, AlgCounters)>,
    pub(crate) member: Option<&'a Member>,
}

/// State of IPv6.
#[derive(Debug)]
pub struct Status6<'a> {
    /// Hosts behind the numbers of NAT64.
    pub translator: &'a Translator,
    /// Counters of the router besides those of packets.
    pub router: Router6Counters,
    /// Own addresses and neighbours of each side: `[inside, outside]`.
    pub sides: [SideStatus6; 2],
}

/// One side's part of a [`Status6`].
#[derive(Debug)]
pub struct SideStatus6 {
    /// The gateway's own addresses.
    pub addresses: Vec<(Ipv6Addr, AddressState)>,
    /// Neighbours, in order of address.
    pub neighbors: Vec<NeighborInfo6>,
}

impl Status<'_> {
    /// Number of the worker among the workers, and the number of workers.
    pub fn worker(&self) -> (usize, usize) {
        self.member.map_or((0, 1), |member| (member.number(), member.workers()))
    }

    /// Name of the host with a number in a realm, if NAT64 translates for it.
    pub fn host(&self, realm: u16, number: Ipv4Addr) -> Option<HostName> {
        self.ipv6.as_ref().and_then(|ipv6| ipv6.translator.host(realm, number))
    }

    /// True if this worker owns a mapping: every worker has the static ones.
    pub fn is_own(&self, mapping: &MappingId) -> bool {
        self.member.is_none_or(|member| member.has(mapping.realm, mapping.internal.address))
    }
}

/// One side's part of a [`Status`].
#[derive(Debug)]
pub struct SideStatus {
    /// The link.
    pub link: LinkInfo,
    /// Frames.
    pub frames: Statistics,
    /// Neighbours, in order of address.
    pub neighbors: Vec<NeighborInfo>,
}

/// Ignores all reports.
impl Observer for () {
    fn event(&mut self, _: &Event) {}

    fn link(&mut self, _: Side, _: &LinkInfo, _: &Change) {}

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}
