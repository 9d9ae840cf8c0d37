//! Reports of a running worker to its program: events, changes and the state.

use crate::load::LoadNow;
use crate::pcp::PcpCounters;
use crate::router::{NeighborInfo, NeighborReport, RouterCounters};
use crate::settings::Settings;
use crate::team::Member;
use natgate_engine::{Counters, Engine, Event, MappingId, Side, Timestamp};
use natgate_io::{Change, LinkInfo, Statistics};
use std::io;

/// What a gateway tells while it runs.
pub trait Observer {
    /// The translator's state changed. Called in order of time.
    fn event(&mut self, event: &Event);

    /// So many changes, between these times, were not told, because they came faster than they
    /// could be taken: after the event told last, before the next.
    fn events_lost(&mut self, _count: u64, _from: Timestamp, _to: Timestamp) {}

    /// A device changed.
    fn link(&mut self, side: Side, link: &LinkInfo, change: &Change);

    /// Somebody claimed the address of a neighbour.
    fn neighbor(&mut self, _: &NeighborReport) {}

    /// Somebody asked for the state.
    fn status(&mut self, status: &Status<'_>);

    /// The ports in use have been written to the state file, or could not be.
    fn ports_written(&mut self, _: &io::Result<()>) {}

    /// Other settings are in force.
    fn reconfigured(&mut self, _: Settings) {}

    /// All events until that time have been told. Called about once a second, and before
    /// [`Observer::idle`].
    fn passed(&mut self, _: Timestamp) {}

    /// Nothing is going on: a good time to write out what was told.
    fn idle(&mut self);
}

/// A gateway's state, to show.
#[derive(Debug)]
pub struct Status<'a> {
    /// The time it is of.
    pub now: Timestamp,
    /// Mappings, sessions and pools.
    pub engine: &'a Engine,
    /// Packets, with what was lost after translation counted as dropped.
    pub counters: Counters,
    /// What the router has counted besides.
    pub router: RouterCounters,
    /// Packets of the gateway's own making that were lost.
    pub own_lost: u64,
    /// Frames that were not sent to the gateway.
    pub not_addressed: u64,
    /// Each side's link, frames and neighbours: `[inside, outside]`.
    pub sides: [SideStatus; 2],
    /// Those of the realms beside number 0, by number.
    pub realms: Vec<(u16, SideStatus)>,
    /// What the worker has done.
    pub load: LoadNow,
    /// Requests for mappings.
    pub pcp: PcpCounters,
    pub(crate) member: Option<&'a Member>,
}

impl Status<'_> {
    /// Its place among the workers, and how many there are.
    pub fn worker(&self) -> (usize, usize) {
        self.member.map_or((0, 1), |member| (member.number(), member.workers()))
    }

    /// Whether a mapping is this worker's: all of them know the static ones.
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
