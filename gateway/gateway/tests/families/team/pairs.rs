//! Pairs of prefixes that a reload exchanges while packets pass two workers.

use super::*;
use natgate_gateway::Prepared;
use std::thread;

const FAR_HOST: &str = "2600::7";
/// Internal and external prefix, of 48 bits.
type Pair = (&'static str, &'static str);
const STAYS: [Pair; 2] = [("fd00:1::", "2001:db8:8001::"), ("fd00:9::", "2001:db8:8009::")];

fn pair(&(internal, external): &Pair) -> Nptv6Settings {
    let pair = Nptv6::new(prefix6(internal, 48), prefix6(external, 48)).unwrap();
    Nptv6Settings { pair, icmp_errors: true }
}

/// Settings with the pairs that stay, and others.
fn with_pairs(others: &[Pair]) -> Settings {
    let mut settings = routed(settings());
    settings.workers.count = 2;
    settings.ipv6.filter = Filter::OutboundOnly;
    settings.ipv6.nptv6 = others.iter().chain(&STAYS).map(pair).collect();
    settings
}

/// A host of the internal prefix, one of each worker's several.
fn inside_of(&(internal, _): &Pair, number: usize) -> String {
    let first = v6(internal);
    Ipv6Addr::from_bits(first | (number as u128 + 1) << 64 | 5).to_string()
}

impl Team {
    /// Sends a packet from a host and its answer; returns the external address.
    fn there_and_back(&mut self, inside: &str) -> String {
        let question = ip6(inside, FAR_HOST, UDP, &udp(4000, 53, b"question"));
        let out = self.through(Side::Inside, &question, Side::Outside);
        let (external, _) = ends6(&out);
        self.back(&external, inside);
        external
    }

    /// Sends an answer to an external address, which has to reach a host.
    fn back(&mut self, external: &str, inside: &str) {
        let answer = ip6(FAR_HOST, external, UDP, &udp(53, 4000, b"answer"));
        let back = self.through(Side::Outside, &answer, Side::Inside);
        assert_eq!(ends6(&back), ends(FAR_HOST, inside));
    }

    /// Puts settings in force from another thread. Meanwhile each packet of the pairs that stay
    /// passes, by either worker.
    fn exchange(&mut self, before: &Settings, after: &Settings, answered: &[(String, String)]) {
        let commander = self.commander.clone();
        let (before, after) = (before.clone(), after.clone());
        let change = thread::spawn(move || {
            let numbered = commander.numbered_for(&[]).expect("the workers answer");
            let prepared = Prepared::new(&before, numbered, after).expect("settings that agree");
            commander.reconfigure(prepared).expect("they come into force");
        });
        let mut rounds = 0;
        while !change.is_finished() || rounds < 2 {
            for (inside, external) in answered {
                // First the answer: its record was made before the change.
                self.back(external, inside);
                assert_eq!(self.there_and_back(inside), *external);
            }
            rounds += 1;
        }
        change.join().expect("the change succeeds");
    }
}

#[test]
fn packets_of_other_pairs_pass_while_pairs_change() {
    let steps: [&[Pair]; 5] = [
        &[("fd00:2::", "2001:db8:8002::"), ("fd00:3::", "2001:db8:8003::")],
        // Another external prefix, and a pair less.
        &[("fd00:2::", "2001:db8:8022::")],
        // A pair more. A prefix passes from one pair to another.
        &[("fd00:4::", "2001:db8:8022::"), ("fd00:2::", "2001:db8:8002::")],
        &[],
        &[("fd00:2::", "2001:db8:8003::"), ("fd00:3::", "2001:db8:8002::")],
    ];
    let mut before = with_pairs(steps[0]);
    let mut team = Team::new(&before);
    let hosts: Vec<String> =
        STAYS.iter().flat_map(|pair| (0..8).map(|number| inside_of(pair, number))).collect();
    let answered: Vec<(String, String)> =
        hosts.into_iter().map(|host| (host.clone(), team.there_and_back(&host))).collect();
    for (number, others) in steps.iter().enumerate() {
        if number > 0 {
            let after = with_pairs(others);
            team.exchange(&before, &after, &answered);
            before = after;
        }
        for other in *others {
            for host in 0..HOSTS {
                let inside = inside_of(other, host);
                let external = team.there_and_back(&inside);
                let expected = pair(other).pair.outbound(inside.parse().unwrap());
                assert_eq!(external, expected.unwrap().unwrap().to_string(), "step {number}");
            }
        }
        let forgotten = ("fd00:3::", "");
        if !others.iter().any(|(internal, _)| *internal == forgotten.0) {
            let inside = inside_of(&forgotten, number);
            let question = ip6(&inside, FAR_HOST, UDP, &udp(4000, 53, b"question"));
            let out = team.through(Side::Inside, &question, Side::Outside);
            assert_eq!(ends6(&out), ends(&inside, FAR_HOST), "step {number}: it is routed");
        }
    }
    assert!(team.handed_over() > 0, "both workers have hosts");
}

#[test]
fn pairs_that_overlap_are_refused() {
    let settings = with_pairs(&[]);
    let mut team = Team::new(&settings);
    let overlapping = with_pairs(&[("fd00:1::", "2001:db8:8005::")]);
    let commander = team.commander.clone();
    let change = thread::spawn(move || {
        let numbered = commander.numbered_for(&[]).expect("the workers answer");
        Prepared::new(&settings, numbered, overlapping).map(drop)
    });
    while !change.is_finished() {
        team.settle();
    }
    let error = change.join().unwrap().expect_err("two pairs have one prefix");
    assert!(error.message.contains("fd00:1::/48"), "{}", error.message);
}
