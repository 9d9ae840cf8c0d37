//! The stage of a test: a few hosts on either side, with functions to send and to wait.
//!
//! Tests are written as if each were alone: they send, wait, and check received packets.
//! Nevertheless many run at a time. Each has hosts that no other test has at that time, and ports
//! that no other test ever has. So mappings that one test leaves in the translator do not affect
//! another. The evidence for the verdict is the list of all packets that the stage's hosts sent and
//! received, in order.

use crate::bench::Bench;
use crate::hosts::Hosts;
use crate::hosts6::Hosts6;
use crate::packet::{Packet, Received, describe};
use crate::setup::{Options, Setup};
use natgate_engine::Side;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Hosts of a test on each side.
pub(crate) const HOSTS: usize = 3;

/// Most lines of evidence of a test.
const MOST_EVIDENCE: usize = 40;

/// Ports of tests; each is used once before any is used again.
const PORTS: std::ops::Range<u16> = 20_000..60_000;

/// Reason why a test ended before it passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The requirement is not met.
    Failed(String),
    /// The requirement does not apply to this translator, or is not visible from outside.
    NotApplicable(String),
    /// The test gave no result.
    NotTested(String),
}

/// Result of a test: the reason why it passed, or why it did not.
pub(crate) type Finding = Result<String, Stop>;

/// Ends a test: the requirement is not met.
pub(crate) fn failed<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(why.into()))
}

/// Ends a test: the requirement does not apply to this translator.
pub(crate) fn not_applicable<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::NotApplicable(why.into()))
}

/// Ends a test without a result.
pub(crate) fn not_tested<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::NotTested(why.into()))
}

/// State that all tests share.
pub(crate) struct World {
    pub(crate) bench: Box<dyn Bench>,
    pub(crate) hosts: Hosts,
    pub(crate) setup: Setup,
    pub(crate) options: Options,
    /// External addresses observed so far.
    pub(crate) externals: Vec<Ipv4Addr>,
    /// Earliest time that a test waits for.
    wake: Option<Duration>,
    next_port: u16,
    /// Free hosts, longest unused first.
    free: [VecDeque<Ipv4Addr>; 2],
}

impl World {
    pub(crate) fn new(bench: Box<dyn Bench>, setup: Setup, options: Options) -> Self {
        let mut hosts = Hosts::default();
        let free = [setup.inside_hosts.iter().collect(), setup.outside_hosts.iter().collect()];
        for (side, addresses) in [(Side::Inside, &free[0]), (Side::Outside, &free[1])] {
            let addresses: &VecDeque<Ipv4Addr> = addresses;
            addresses.iter().for_each(|address| hosts.appear(side, *address));
        }
        for host in
            setup.families.iter().flat_map(|six| free[0].iter().map(move |it| six.host(*it)))
        {
            hosts.six.appear(host);
        }
        for address in setup.outside_gateway.iter().chain(&setup.untranslated) {
            hosts.appear(Side::Outside, *address);
        }
        let externals = Vec::new();
        Self { bench, hosts, setup, options, externals, wake: None, next_port: PORTS.start, free }
    }

    /// Processes a received frame.
    pub(crate) fn take_in(&mut self, side: Side, frame: &[u8]) {
        self.hosts.take_in(&mut *self.bench, side, frame);
    }

    /// Takes the earliest time that a test waits for.
    pub(crate) fn take_wake(&mut self) -> Option<Duration> {
        self.wake.take()
    }

    /// Wakes the waiting test at a time, at the latest.
    pub(crate) fn wait_until(&mut self, deadline: Duration) {
        self.wake = Some(self.wake.map_or(deadline, |wake| wake.min(deadline)));
    }
}

/// Hosts of a test.
pub(crate) struct Stage {
    pub(crate) world: Rc<RefCell<World>>,
    /// Hosts, `[inside, outside]`.
    hosts: [Vec<Ipv4Addr>; 2],
    /// Additional inside hosts.
    more: RefCell<Vec<Ipv4Addr>>,
    evidence: RefCell<Vec<(Duration, String)>>,
    begin: Duration,
}

impl Stage {
    /// A stage with hosts of its own; `None` if there are not enough free hosts.
    pub(crate) fn lease(world: &Rc<RefCell<World>>) -> Option<Self> {
        let mut shared = world.borrow_mut();
        if shared.free.iter().any(|free| free.len() < HOSTS) {
            return None;
        }
        let hosts = [0, 1].map(|side: usize| shared.free[side].drain(..HOSTS).collect::<Vec<_>>());
        for (hosts, side) in hosts.iter().zip([Side::Inside, Side::Outside]) {
            hosts.iter().for_each(|host| shared.hosts.clear(side, *host));
        }
        let World { bench, setup, hosts: all, .. } = &mut *shared;
        for host in &hosts[0] {
            // With this request the translator need not send one at the first packet.
            Hosts::ask(&mut **bench, Side::Inside, *host, setup.inside_gateway);
            if let Some(families) = &setup.families {
                all.six.clear(families.host(*host));
                Hosts6::ask(&mut **bench, families.host(*host), families.gateway);
            }
        }
        let begin = shared.bench.now();
        drop(shared);
        let (more, evidence) = Default::default();
        Some(Self { world: Rc::clone(world), hosts, more, evidence, begin })
    }

    /// Returns the hosts. The packets left in their queues become the last evidence.
    pub(crate) fn finish(self) -> Vec<String> {
        for side in [Side::Inside, Side::Outside] {
            for host in &self.hosts[side as usize] {
                self.drain(side, *host);
            }
        }
        let mut world = self.world.borrow_mut();
        for (free, hosts) in world.free.iter_mut().zip(&self.hosts) {
            free.extend(hosts);
        }
        world.free[0].extend(self.more.borrow().iter());
        drop(world);
        let mut evidence = self.evidence.into_inner();
        evidence.sort_by_key(|(time, _)| *time);
        let line = |(time, what): (Duration, String)| {
            let seconds = time.saturating_sub(self.begin).as_secs_f64();
            format!("{seconds:9.3} s  {what}")
        };
        evidence.into_iter().map(line).collect()
    }

    /// An inside host of this test.
    pub(crate) fn inside(&self, number: usize) -> Ipv4Addr {
        self.hosts[0][number]
    }

    /// Takes one more inside host, if there is one.
    pub(crate) fn another(&self) -> Option<Ipv4Addr> {
        let mut world = self.world.borrow_mut();
        let host = world.free[0].pop_front()?;
        world.hosts.clear(Side::Inside, host);
        self.more.borrow_mut().push(host);
        Some(host)
    }

    /// Additional inside hosts, oldest first.
    pub(crate) fn others(&self) -> Vec<Ipv4Addr> {
        self.more.borrow().clone()
    }

    /// An outside host of this test.
    pub(crate) fn outside(&self, number: usize) -> Ipv4Addr {
        self.hosts[1][number]
    }

    /// A port that no test has had, unless forty thousand have been used since.
    pub(crate) fn port(&self) -> u16 {
        let mut world = self.world.borrow_mut();
        let port = world.next_port;
        world.next_port = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
        port
    }

    /// A new endpoint of an inside host.
    pub(crate) fn near(&self, number: usize) -> SocketAddrV4 {
        SocketAddrV4::new(self.inside(number), self.port())
    }

    /// A new endpoint of an outside host.
    pub(crate) fn far(&self, number: usize) -> SocketAddrV4 {
        SocketAddrV4::new(self.outside(number), self.port())
    }

    /// Surroundings of the translator.
    pub(crate) fn setup(&self) -> Setup {
        self.world.borrow().setup.clone()
    }

    /// Options of the suite.
    pub(crate) fn options(&self) -> Options {
        self.world.borrow().options.clone()
    }

    /// Longest packet on a side, bytes.
    pub(crate) fn mtu(&self, side: Side) -> usize {
        self.world.borrow().bench.mtu(side)
    }

    /// Present time.
    pub(crate) fn now(&self) -> Duration {
        self.world.borrow().bench.now()
    }

    /// External addresses that all tests have observed so far.
    pub(crate) fn externals(&self) -> Vec<Ipv4Addr> {
        self.world.borrow().externals.clone()
    }

    /// Records an external address of the translator.
    pub(crate) fn note_external(&self, address: Ipv4Addr) {
        let mut world = self.world.borrow_mut();
        if !world.externals.contains(&address) {
            world.externals.push(address);
        }
    }

    /// Writes a line of evidence.
    pub(crate) fn note(&self, time: Duration, line: String) {
        let mut evidence = self.evidence.borrow_mut();
        match evidence.len() {
            MOST_EVIDENCE.. => {}
            len if len + 1 == MOST_EVIDENCE => evidence.push((time, "and more of it".to_owned())),
            _ => evidence.push((time, line)),
        }
    }

    /// Sends a packet from a side to the translator.
    pub(crate) fn send(&self, side: Side, packet: &Packet) {
        self.send_bytes(side, &packet.bytes());
    }

    /// Sends these bytes as a packet.
    pub(crate) fn send_bytes(&self, side: Side, packet: &[u8]) {
        let to = self.world.borrow().hosts.translator(side);
        self.send_frame(side, to.unwrap_or(Mac::BROADCAST), packet);
    }

    /// Sends these bytes as a packet in a frame to this hardware address.
    pub(crate) fn send_frame(&self, side: Side, to: Mac, packet: &[u8]) {
        self.note(self.now(), format!("sent {}: {}", name(side), describe(packet)));
        let mut world = self.world.borrow_mut();
        let mut frame = vec![0; ETHERNET_LEN];
        if let Some(header) = frame.first_chunk_mut() {
            arp::write_ethernet(header, to, world.bench.mac(side), ethertype::IPV4);
        }
        frame.extend(packet);
        world.bench.send(side, &frame);
    }

    /// Waits until a time for something that may come at any moment.
    pub(crate) async fn wait_for<T>(
        &self,
        deadline: Duration,
        look: impl Fn() -> Option<T>,
    ) -> Option<T> {
        std::future::poll_fn(|_| {
            if let Some(found) = look() {
                return Poll::Ready(Some(found));
            }
            let mut world = self.world.borrow_mut();
            if world.bench.now() >= deadline {
                return Poll::Ready(None);
            }
            world.wait_until(deadline);
            Poll::Pending
        })
        .await
    }

    /// Waits until a time.
    pub(crate) async fn until(&self, time: Duration) {
        self.wait_for(time, || None::<()>).await;
    }

    /// Waits for a duration.
    pub(crate) async fn rest(&self, time: Duration) {
        self.until(self.now() + time).await;
    }

    /// Waits until a time for the next packet to a host that satisfies a condition.
    pub(crate) async fn take_until(
        &self,
        deadline: Duration,
        (side, host): (Side, Ipv4Addr),
        wanted: impl Fn(&Received) -> bool,
    ) -> Option<Received> {
        self.wait_for(deadline, || self.take_now(side, host, &wanted)).await
    }

    /// Waits for the next packet to a host that satisfies a condition, for the transit time of a
    /// packet.
    pub(crate) async fn take(
        &self,
        at: (Side, Ipv4Addr),
        wanted: impl Fn(&Received) -> bool,
    ) -> Option<Received> {
        let deadline = self.now() + self.transit();
        self.take_until(deadline, at, wanted).await
    }

    /// Longest time of a packet through the translator.
    pub(crate) fn transit(&self) -> Duration {
        self.world.borrow().options.transit
    }

    fn take_now(
        &self,
        side: Side,
        host: Ipv4Addr,
        wanted: &dyn Fn(&Received) -> bool,
    ) -> Option<Received> {
        let found = self.world.borrow_mut().hosts.take(side, host, wanted)?;
        self.note(found.at, format!("came {}: {}", name(side), describe(&found.bytes)));
        Some(found)
    }

    /// Makes packets to invalid addresses visible on the outside.
    pub(crate) fn watch_everybody(&self) {
        let mut world = self.world.borrow_mut();
        let odd = [[0, 1, 2, 3], [127, 9, 9, 9], [224, 0, 0, 5], [240, 0, 0, 1], [255; 4]];
        odd.iter().for_each(|address| world.hosts.appear(Side::Outside, (*address).into()));
    }

    /// Takes all packets that have come to a host.
    pub(crate) fn drain(&self, side: Side, host: Ipv4Addr) -> Vec<Received> {
        std::iter::from_fn(|| self.take_now(side, host, &|_| true)).collect()
    }
}

/// Name of a side in evidence.
pub(crate) fn name(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}
