//! Servers of services: all servers of a service are at one worker. Services may share servers, so
//! hosts that have come to one worker for this reason move together from then on.

use super::Host;
use std::collections::HashMap;

/// Groups of hosts. Groups that join are one group; each has a worker, and no two have the same.
struct Groups {
    /// The group that each group has joined; itself: none.
    joined: Vec<usize>,
    /// Number of groups that are one with a group that has joined none.
    sizes: Vec<usize>,
    /// Worker of each group that has joined none.
    workers: Vec<usize>,
    /// The group at each worker.
    at: Vec<Option<usize>>,
}

impl Groups {
    fn new(workers: usize) -> Self {
        let (joined, sizes) = (Vec::new(), Vec::new());
        Self { joined, sizes, workers: Vec::new(), at: vec![None; workers] }
    }

    /// The group at a worker, perhaps a new one.
    fn at(&mut self, worker: usize) -> usize {
        let new = self.joined.len();
        let group = *self.at[worker].get_or_insert(new);
        if group == new {
            self.joined.push(new);
            self.sizes.push(1);
            self.workers.push(worker);
        }
        group
    }

    fn root(&self, mut group: usize) -> usize {
        while self.joined[group] != group {
            group = self.joined[group];
        }
        group
    }

    /// Worker of a group, whatever it has joined.
    fn worker(&self, group: usize) -> usize {
        self.workers[self.root(group)]
    }

    /// Joins the groups at some workers. The group is at the first of these workers then.
    fn join(&mut self, workers: &[usize]) -> usize {
        let worker = workers[0];
        let mut all = self.at(worker);
        for &other in workers.iter().filter(|other| **other != worker) {
            if let Some(group) = self.at[other].take() {
                let (less, more) = match self.sizes[group] < self.sizes[all] {
                    true => (group, all),
                    false => (all, group),
                };
                self.joined[less] = more;
                self.sizes[more] += self.sizes[less];
                all = more;
            }
        }
        self.workers[all] = worker;
        self.at[worker] = Some(all);
        all
    }
}

/// Gives all servers of each service to one worker of `workers`. `known` has the hosts that have a
/// worker already. `by_number` gives the workers of hosts that never move, and `worker_of` those of
/// other hosts. Returns the workers of all known hosts and servers.
pub(super) fn together(
    workers: usize,
    known: HashMap<Host, usize>,
    services: &[Vec<Host>],
    by_number: impl Fn(Host) -> Option<usize>,
    worker_of: impl Fn(Host) -> usize,
) -> HashMap<Host, usize> {
    let mut groups = Groups::new(workers);
    let known = known.into_iter().map(|(host, worker)| (host, groups.at(worker)));
    let mut all: HashMap<Host, usize> = known.collect();
    for servers in services {
        let worker = |&host: &Host| match (by_number(host), all.get(&host)) {
            (Some(worker), _) => worker,
            (None, Some(group)) => groups.worker(*group),
            (None, None) => worker_of(host),
        };
        let of_servers: Vec<usize> = servers.iter().map(worker).collect();
        let group = groups.join(&of_servers);
        all.extend(servers.iter().map(|host| (*host, group)));
    }
    all.into_iter().map(|(host, group)| (host, groups.worker(group))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: usize = 5;

    fn arithmetic((_, address): Host) -> usize {
        address as usize * 7 % WORKERS
    }

    fn by_number((realm, address): Host) -> Option<usize> {
        (realm == 1).then_some(address as usize % WORKERS)
    }

    /// The same with a look at every host for every service.
    fn one_by_one(known: HashMap<Host, usize>, services: &[Vec<Host>]) -> HashMap<Host, usize> {
        let mut all = known;
        for servers in services {
            let worker = |host: &Host| {
                let moved = || all.get(host).copied().unwrap_or_else(|| arithmetic(*host));
                by_number(*host).unwrap_or_else(moved)
            };
            let workers: Vec<usize> = servers.iter().map(worker).collect();
            for other in all.values_mut().filter(|other| workers.contains(other)) {
                *other = workers[0];
            }
            all.extend(servers.iter().map(|host| (*host, workers[0])));
        }
        all
    }

    #[test]
    fn servers_are_where_a_look_at_every_host_puts_them() {
        for seed in 1..=500_u64 {
            let mut random = seed;
            let mut below = |bound: u32| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as u32 % bound
            };
            let mut host = || (u16::from(below(8) == 0), below(60));
            let hosts: Vec<Host> = (0..40).map(|_| host()).collect();
            let known = hosts[..10].iter().map(|host| (*host, arithmetic((0, host.1 + 1))));
            let known: HashMap<Host, usize> = known.collect();
            let mut services = Vec::new();
            while services.len() < seed as usize % 12 {
                let from = below(30) as usize;
                services.push(hosts[from..from + 2 + below(8) as usize].to_vec());
            }
            let found = together(WORKERS, known.clone(), &services, by_number, arithmetic);
            assert_eq!(found, one_by_one(known, &services), "seed {seed}");
        }
    }
}
