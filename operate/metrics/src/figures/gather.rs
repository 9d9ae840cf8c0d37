//! Sums of the reports of workers.

use super::{
    DeviceFigures, DomainFigures, Figures, Filled, PoolFigures, PortFigures, WorkerFigures,
};
use natgate_engine::{Allocation, Blocking, Config, PoolConfig, Side};
use natgate_gateway::ipv6::Settings as Settings6;
use natgate_gateway::ipv6::softwire::{DomainCounters, MapMode};
use natgate_gateway::router::RouterCounters;
use natgate_gateway::{Figures as WorkerReport, Link, TimingNow};
use natgate_io::Statistics;
use std::time::SystemTime;

/// Protocols with ports, in the order of reports.
const PROTOCOLS: [&str; 4] = ["tcp", "udp", "icmp", "dccp"];

impl Figures {
    /// Sums the reports of workers. `began` is the start of the gateway; `timings` are the
    /// durations of each worker.
    pub fn gather(
        (config, ipv6): (&Config, &Settings6),
        began: SystemTime,
        reports: &[WorkerReport],
        mut timings: impl Iterator<Item = TimingNow>,
    ) -> Self {
        let mut all = Self {
            algs: WorkerReport::algs_of(reports),
            router6: WorkerReport::router6_of(reports),
            ..Self::new(began)
        };
        for one in reports {
            all.add(config, one);
            let timing = timings.next().unwrap_or_default();
            all.workers.push(WorkerFigures { load: one.load, timing });
        }
        let counters = WorkerReport::domains_of(reports);
        if !counters.is_empty() {
            all.domains = domains(ipv6, &counters);
        }
        for pool in &mut all.pools {
            if let Some(of) = config.pools.iter().find(|of| of.name == pool.name) {
                complete(config, of, pool);
            }
        }
        all
    }

    fn add(&mut self, config: &Config, report: &WorkerReport) {
        self.counters.add(&report.counters);
        add_router(&mut self.router, &report.router);
        self.own_lost += report.own_lost;
        self.not_addressed += report.not_addressed;
        let totals = &report.totals;
        let sessions = totals.mappings + totals.further_sessions;
        let most_sessions = totals.most_mappings + totals.most_further_sessions;
        add_filled(&mut self.mappings, totals.mappings, totals.most_mappings);
        add_filled(&mut self.sessions, sessions, most_sessions);
        add_filled(&mut self.subscribers, totals.subscribers, totals.most_subscribers);
        self.unanswered += totals.unanswered;
        for kind in 0..self.made.len() {
            self.made[kind] += totals.made[kind];
            self.gone[kind] += totals.gone[kind];
        }
        self.subscribers_made += totals.subscribers_made;
        for (place, pool) in report.pools.iter().enumerate() {
            if self.pools.len() == place {
                self.pools.push(PoolFigures {
                    name: pool.name.clone(),
                    addresses: 0,
                    ports: PROTOCOLS.map(|name| (name, PortFigures::default())).to_vec(),
                    blocks: None,
                });
            }
            let all = &mut self.pools[place];
            for (number, (_, ports)) in all.ports.iter_mut().enumerate() {
                ports.free += u64::from(pool.free[number]);
                ports.used += pool.used[number];
                ports.held += u64::from(pool.held[number]);
            }
            if let Some(free) = pool.free_blocks {
                // `complete` turns free blocks into used ones.
                all.blocks.get_or_insert_default().used += u64::from(free);
            }
        }
        for (place, link) in report.links.iter().enumerate() {
            if report.links[..place].iter().any(|before| before.device == link.device) {
                // The first link of a device report the frames of all its links.
                continue;
            }
            match self.devices.iter_mut().find(|device| device.name == link.device) {
                Some(device) => {
                    device.up |= link.up;
                    device.frames = Statistics::of_group([device.frames, link.frames]);
                }
                None => self.devices.push(DeviceFigures {
                    side: side_of(config, link.link),
                    name: link.device.clone(),
                    mtu: link.mtu,
                    up: link.up,
                    frames: link.frames,
                }),
            }
        }
    }
}

/// The names and the counters of lw4o6, the rules of MAP, and DS-Lite.
fn domains(ipv6: &Settings6, counters: &[DomainCounters]) -> Vec<DomainFigures> {
    let figures = |kind: &'static str, name: String, place: usize| {
        let counters = counters.get(place).copied().unwrap_or_default();
        DomainFigures { kind, name, counters }
    };
    let rules = (1..).zip(&ipv6.map).map(|(place, map)| {
        let parameters = map.rule.parameters();
        let kind = match parameters.mode {
            MapMode::Encapsulation(_) => "map-e",
            MapMode::Translation(_) => "map-t",
        };
        figures(kind, parameters.ipv6.to_string(), place)
    });
    let alone = |kind: &'static str, place: usize| figures(kind, kind.to_owned(), place);
    let relay = ipv6.lw4o6.iter().map(|_| alone("lw4o6", 0));
    let aftr = ipv6.dslite.iter().map(|_| alone("dslite", ipv6.map.len() + 1));
    relay.chain(rules).chain(aftr).collect()
}

/// Adds the figures that follow from the configuration: addresses, reserved ports, and blocks.
fn complete(config: &Config, of: &PoolConfig, pool: &mut PoolFigures) {
    pool.addresses = of.count() as u64;
    let each = u64::from(of.ports.1) + 1 - u64::from(of.ports.0.max(1));
    for (_, ports) in &mut pool.ports {
        let known = ports.free + ports.used + ports.held;
        ports.reserved = (pool.addresses * each).saturating_sub(known);
    }
    let each_address = match config.allocation_of(of) {
        Allocation::Block(block) => Some(Blocking::new(of.ports, block.size)),
        Allocation::Address => Some(Blocking::whole()),
        _ => None,
    };
    if let (Some(blocks), Some(blocking)) = (&mut pool.blocks, each_address) {
        let all = pool.addresses * u64::from(blocking.count());
        *blocks = Filled { used: all.saturating_sub(blocks.used), limit: all };
    }
}

fn add_filled(all: &mut Filled, used: u64, limit: u64) {
    all.used += used;
    all.limit += limit;
}

fn side_of(config: &Config, link: Link) -> String {
    let realm = usize::from(link.realm).checked_sub(1).and_then(|place| config.realms.get(place));
    match (link.side, realm) {
        (Side::Outside, _) => "outside".to_owned(),
        (Side::Inside, None) => "inside".to_owned(),
        (Side::Inside, Some(realm)) => realm.name.clone(),
    }
}

fn add_router(all: &mut RouterCounters, one: &RouterCounters) {
    all.arp_received += one.arp_received;
    all.arp_answered += one.arp_answered;
    all.arp_asked += one.arp_asked;
    all.arp_ignored += one.arp_ignored;
    all.arp_conflicts += one.arp_conflicts;
    all.left_to_the_kernel += one.left_to_the_kernel;
    // All have the same.
    all.learnt_routes = all.learnt_routes.max(one.learnt_routes);
    all.neighbors_lost += one.neighbors_lost;
    all.neighbors_refused += one.neighbors_refused;
    all.sources_refused += one.sources_refused;
    all.neighbor_conflicts += one.neighbor_conflicts;
    all.neighbor_changes += one.neighbor_changes;
    all.errors_made += one.errors_made;
    all.errors_suppressed += one.errors_suppressed;
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{AddressRange, BlockConfig};
    use natgate_gateway::router6::Router6Counters;
    use natgate_gateway::{LinkFigures, PoolFigures as Pool};
    use natgate_wire::arp::Mac;
    use std::net::Ipv4Addr;

    fn link(link: Link, device: &str, received: u64) -> LinkFigures {
        let frames = Statistics { received, link_losses: 1, ..Statistics::default() };
        let device = device.to_owned();
        LinkFigures { link, device, mac: Mac::default(), mtu: 1500, up: true, frames }
    }

    fn worker(free: u32, used: u64, free_blocks: u32) -> WorkerReport {
        let mut report = WorkerReport::default();
        report.totals.mappings = used;
        report.totals.most_mappings = 100;
        report.totals.further_sessions = 5;
        report.totals.made = [0, used + 2, 0];
        report.totals.gone = [0, 2, 0];
        report.router.learnt_routes = 7;
        report.router6 = Some(Router6Counters { advertisements_sent: 3, ..Default::default() });
        report.pools.push(Pool {
            name: "default".into(),
            free: [free; 4],
            held: [0, 3, 0, 0],
            used: [0, used, 0, 0, 0],
            free_blocks: Some(free_blocks),
        });
        report.links = vec![
            link(Link::inside(0), "eth1", 10),
            link(Link::inside(1), "eth1", 10),
            link(Link::OUTSIDE, "eth0", 20),
        ];
        report
    }

    #[test]
    fn workers_add_up_and_what_is_one_for_all_stays_one() {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let pool = PoolConfig {
            name: "default".into(),
            addresses: vec![AddressRange { first: address, last: address }],
            ports: (1024, 2047),
            allocation: Some(Allocation::Block(BlockConfig { size: 64, ..Default::default() })),
            ..PoolConfig::default()
        };
        let config = Config { pools: vec![pool], ..Config::default() };
        let reports = [worker(400, 30, 5), worker(500, 40, 7)];
        let began = SystemTime::now();
        let all =
            Figures::gather((&config, &Settings6::default()), began, &reports, std::iter::empty());
        assert_eq!(all.mappings, Filled { used: 70, limit: 200 });
        assert_eq!(all.sessions.used, 80);
        assert_eq!((all.made, all.gone), ([0, 74, 0], [0, 4, 0]));
        let pool = &all.pools[0];
        assert_eq!(
            pool.ports[1],
            ("udp", PortFigures { free: 900, used: 70, held: 6, reserved: 48 })
        );
        assert_eq!(pool.blocks, Some(Filled { used: 4, limit: 16 }));
        assert_eq!(all.router.learnt_routes, 7);
        assert_eq!(all.router6.map(|one| one.advertisements_sent), Some(6));
        let devices: Vec<_> =
            all.devices.iter().map(|one| (&one.side[..], &one.name[..])).collect();
        assert_eq!(devices, [("inside", "eth1"), ("outside", "eth0")]);
        assert_eq!(all.devices[0].frames.received, 20);
        assert_eq!(all.devices[1].frames.link_losses, 1);
        assert_eq!(all.workers.len(), 2);
    }
}
