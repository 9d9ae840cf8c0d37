//! Event logs: syslog messages by UDP, sent to collectors by the gateway's own router.
//!
//! Events wait in the logs' usual queue (`natgate-logs`), whose size is configured. A gap in the
//! log reports lost events. Events wait while the collector's hardware address is unknown, or while
//! the card accepts no frame.

use natgate_engine::{Prefix, Side, Timestamp};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{LogSettings, LogTo, Settings, SyslogSettings, Transport};
use natgate_logs::{Damping, Host, Messages, Names, Queue, Record};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Source port of messages: the port of the syslog service. A receiver may ignore it (RFC 5426
/// section 3.3), and no answer comes.
pub const PORT: u16 = 514;

/// Messages of one log in one turn; packets wait during the turn.
const BUDGET: usize = 16;

/// Result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message was sent.
    Gone,
    /// The message can be sent later.
    Later,
    /// The message can never be sent.
    Never,
}

/// Path to the collectors.
pub trait Way {
    /// Returns true if a packet to an address could be sent at once. If the next hop is unknown,
    /// the call starts its resolution.
    fn is_open(&mut self, side: Side, to: Ipv4Addr) -> bool;

    /// Sends a datagram.
    fn send(&mut self, side: Side, to: SocketAddrV4, payload: &[u8]) -> Sent;
}

/// Counters of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events sent.
    pub sent: u64,
    /// Events that wait.
    pub waiting: u64,
    /// Events lost.
    pub lost: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// True if the latest attempt to send succeeded.
    pub up: bool,
}

/// Logs of the configuration.
#[derive(Debug, Default)]
pub struct Logs {
    names: Names,
    damping: Damping,
    /// Record that is being damped, behind that of its host.
    records: Vec<Record>,
    /// Records for the logs.
    damped: Vec<Record>,
    /// Events that only a summary counts.
    counted: Vec<Record>,
    logs: Vec<Log>,
}

/// One log.
#[derive(Debug)]
struct Log {
    side: Side,
    collector: SocketAddrV4,
    messages: Messages,
    remotes: bool,
    queue: Queue,
    /// Next record to send, behind that of its host.
    next: Vec<Record>,
    /// Numbers of sent events, and of events that could not be sent.
    sent: u64,
    unsent: u64,
    up: bool,
}

/// Checks that a log is possible here.
///
/// # Errors
/// The reason and the remedy, as the end of a sentence that begins with the log's name.
pub fn check(settings: &Settings, log: &LogSettings) -> Result<(), String> {
    let (_, collector) = by_udp(log)?;
    let is_own = [&settings.inside, &settings.outside]
        .into_iter()
        .filter_map(|side| side.address)
        .any(|(address, _)| address == *collector.ip());
    if is_own {
        return Err(format!("collector {collector} is the gateway itself; name another machine"));
    }
    side_towards(settings, *collector.ip()).map(drop).ok_or_else(|| {
        format!("no route leads to collector {collector}; give outside.gateway, or a route")
    })
}

/// Settings and collector of a log by UDP.
fn by_udp(log: &LogSettings) -> Result<(&SyslogSettings, SocketAddrV4), String> {
    let LogTo::Syslog(syslog) = &log.to else {
        return Err("kind needs an operating system, and there is none here; write kind = \
                    \"syslog\""
            .to_owned());
    };
    if syslog.collector.transport != Transport::Udp {
        return Err("transport needs an operating system, and there is none here; leave it out \
                    for UDP"
            .to_owned());
    }
    let collector = &syslog.collector.address;
    let address: SocketAddrV4 = collector.parse().map_err(|_| {
        format!(
            "collector {collector:?} is no IPv4 address with a port, and nobody here looks names \
             up; write one such as \"192.0.2.10:514\""
        )
    })?;
    Ok((syslog, address))
}

/// Side that reaches an address: the side with the longest matching prefix; the outside if both are
/// equal.
fn side_towards(settings: &Settings, address: Ipv4Addr) -> Option<Side> {
    let of_side = |side: Side| {
        let own = settings.side(side);
        let network = own.address.map(|(address, len)| Prefix::new(address, len));
        let default = own.gateway.map(|_| Prefix::new(Ipv4Addr::UNSPECIFIED, 0));
        let routes = settings.routes.iter().filter(move |route| route.side == side);
        network.into_iter().chain(default).chain(routes.map(|route| route.prefix))
    };
    let longest = |side: Side| {
        let there = of_side(side).filter(|prefix| prefix.contains(address.to_bits()));
        there.map(|prefix| prefix.len()).max().map(|len| (len, side))
    };
    let sides = [Side::Inside, Side::Outside].into_iter().filter_map(longest);
    sides.max_by_key(|(len, _)| *len).map(|(_, side)| side)
}

/// Most bytes of the logs' queues. While a queue grows, the old one and one of twice its size
/// exist.
pub fn memory(settings: &Settings) -> u64 {
    let of_log = |log: &LogSettings| 3 * log.queue as u64 * size_of::<Record>() as u64;
    settings.logs.iter().map(of_log).sum()
}

impl Logs {
    /// Creates the possible logs of the settings.
    pub fn new(settings: &Settings) -> Self {
        let logs = settings.logs.iter().filter_map(|log| Log::new(settings, log)).collect();
        Self { names: Names::of(&settings.engine), logs, ..Self::default() }
    }

    /// Adds a record. Records must come in order of time. `host` is the host of NAT64 or DS-Lite
    /// that the record is about, if it is about one.
    pub fn take(&mut self, record: Record, host: Option<&HostName>) {
        self.records.extend(host.map(|host| Record::Host(Host::new(record.time(), host))));
        self.records.push(record);
        self.deal(None);
    }

    /// Writes the summaries that are due.
    pub fn summarize(&mut self, now: Timestamp) {
        self.deal(Some(now));
    }

    /// Gives the logs the records that the damping passes. With `until` no record of an earlier
    /// time follows.
    fn deal(&mut self, until: Option<Timestamp>) {
        self.damping.apply(&mut self.records, until, &mut self.damped, &mut self.counted);
        self.logs.iter().for_each(|log| log.queue.offer(&self.damped));
        self.damped.clear();
        self.counted.clear();
    }

    /// Sends some waiting messages; returns true if any was sent.
    pub fn turn(&mut self, way: &mut dyn Way) -> bool {
        let names = &self.names;
        // All logs must have their turn.
        self.logs.iter_mut().map(|log| log.turn(names, way)).filter(|sent| *sent).count() > 0
    }

    /// Names and counters of the logs, in the order of the configuration.
    pub fn figures(&self) -> impl Iterator<Item = (String, Figures)> + '_ {
        self.logs.iter().map(|log| (format!("syslog udp {}", log.collector), log.figures()))
    }

    /// Sum of the counters; `None` if there are no logs.
    pub fn total(&self) -> Option<Figures> {
        let figures = self.logs.iter().map(Log::figures);
        figures.reduce(|sum, one| Figures {
            sent: sum.sent + one.sent,
            waiting: sum.waiting + one.waiting,
            lost: sum.lost + one.lost,
            gaps: sum.gaps + one.gaps,
            up: sum.up && one.up,
        })
    }
}

impl Log {
    fn new(settings: &Settings, log: &LogSettings) -> Option<Self> {
        let (syslog, collector) = by_udp(log).ok()?;
        let side = side_towards(settings, *collector.ip())?;
        // A host without a name has its address as its name (RFC 5424 section 6.2.4).
        let host = settings.side(side).address.map(|(address, _)| address.to_string());
        Some(Self {
            side,
            collector,
            messages: Messages::new(syslog, host.as_deref().unwrap_or("-"), "-"),
            remotes: log.remotes,
            queue: Queue::new(log.queue, log.what),
            next: Vec::with_capacity(2),
            sent: 0,
            unsent: 0,
            up: true,
        })
    }

    fn turn(&mut self, names: &Names, way: &mut dyn Way) -> bool {
        for done in 0..BUDGET {
            self.queue.take(1, &mut self.next);
            let Some(record) = self.next.last() else { return done > 0 };
            self.up = way.is_open(self.side, *self.collector.ip());
            if !self.up {
                return done > 0;
            }
            let place = self.next.len() - 1;
            let message = self.messages.message(&self.next, place, names, self.remotes);
            // The last record is never that of a host.
            let Some(message) = message else { return done > 0 };
            let is_event = u64::from(matches!(record, Record::Event(_)));
            match way.send(self.side, self.collector, message.as_bytes()) {
                Sent::Gone => self.sent += is_event,
                Sent::Never => self.unsent += is_event,
                Sent::Later => return done > 0,
            }
            self.next.clear();
        }
        true
    }

    fn figures(&self) -> Figures {
        let (waiting, lost, gaps) = self.queue.figures();
        let waiting = waiting + u64::from(!self.next.is_empty());
        Figures { sent: self.sent, waiting, lost: lost + self.unsent, gaps, up: self.up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;
    use natgate_engine::{BlockId, Change, Event};

    const BASE: &str = "[inside]\ndevice = \"eth0\"\naddress = \"10.0.0.1/24\"\n\
        [outside]\ndevice = \"eth1\"\naddress = \"192.0.2.254/24\"\ngateway = \"192.0.2.1\"\n\
        [[pool]]\naddresses = [\"203.0.113.0/28\"]\n\
        [[route]]\nprefix = \"198.51.100.0/24\"\nvia = \"10.0.0.9\"\nside = \"inside\"\n";

    fn with(log: &str) -> Result<Settings, Vec<String>> {
        let text = format!("{BASE}[[log]]\nkind = \"syslog\"\n{log}");
        settings::read(text.into(), 1 << 40).map(|good| good.settings)
    }

    /// A path that accepts a number of messages and keeps them.
    #[derive(Default)]
    struct Road {
        open: bool,
        room: usize,
        came: Vec<(Side, SocketAddrV4, String)>,
    }

    impl Way for Road {
        fn is_open(&mut self, _: Side, _: Ipv4Addr) -> bool {
            self.open
        }

        fn send(&mut self, side: Side, to: SocketAddrV4, payload: &[u8]) -> Sent {
            if self.came.len() == self.room {
                return Sent::Later;
            }
            self.came.push((side, to, String::from_utf8_lossy(payload).into_owned()));
            Sent::Gone
        }
    }

    fn at(second: u64, change: Change) -> Record {
        Record::Event(Event { time: Timestamp(second * 1_000_000_000), change })
    }

    /// Assignment of a port block to a subscriber, which every log reports.
    fn block(second: u64) -> Record {
        let subscriber = Ipv4Addr::new(10, 0, 0, 7);
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let block = BlockId { realm: 0, subscriber, external, ports: (1024, 1535) };
        at(second, Change::BlockAssigned(block))
    }

    /// An exhausted pool, which every log reports.
    fn event(second: u64) -> Record {
        at(second, Change::PoolExhausted { pool: 0, protocol: 17 })
    }

    #[test]
    fn the_way_is_that_of_the_longest_prefix() {
        for (collector, side) in [
            ("10.0.0.7:514", Side::Inside),
            ("192.0.2.7:514", Side::Outside),
            ("198.51.100.7:514", Side::Inside),
            ("1.2.3.4:5514", Side::Outside),
        ] {
            let settings = with(&format!("collector = \"{collector}\"\n")).expect("it is good");
            let mut logs = Logs::new(&settings);
            logs.take(event(1_700_000_000), None);
            let mut road = Road { open: true, room: 9, ..Road::default() };
            logs.turn(&mut road);
            let (by, to, message) = &road.came[0];
            assert_eq!((*by, to.to_string()), (side, collector.to_owned()));
            let own = if side == Side::Inside { "10.0.0.1" } else { "192.0.2.254" };
            let begin =
                format!("<132>1 2023-11-14T22:13:20.000000Z {own} natgate - pool_exhausted ");
            assert!(message.starts_with(&begin), "{message}");
        }
    }

    #[test]
    fn what_cannot_be_here_is_refused() {
        for (log, told) in [
            ("collector = \"logs.example.net:514\"\n", "nobody here looks names up"),
            ("collector = \"[2001:db8::1]:514\"\n", "no IPv4 address"),
            ("collector = \"192.0.2.254:514\"\n", "is the gateway itself"),
            (
                "collector = \"192.0.2.7:601\"\ntransport = \"tcp\"\n",
                "transport needs an operating",
            ),
        ] {
            let problems = with(log).expect_err("it is refused");
            let is_told = |problem: &String| problem.contains("log[0]: ") && problem.contains(told);
            assert!(problems.iter().any(is_told), "{problems:?}");
        }
        let text = format!("{BASE}[[log]]\nkind = \"file\"\npath = \"/var/log/natgate\"\n");
        let problems = settings::read(text.as_bytes().into(), 1 << 40).expect_err("it is refused");
        assert!(problems[0].contains("log[0]: kind needs an operating system"), "{problems:?}");
        let text = text.replace("gateway = \"192.0.2.1\"\n", "").replace("\"file\"", "\"syslog\"");
        let text = text.replace("path = \"/var/log/natgate\"", "collector = \"1.2.3.4:514\"");
        let problems = settings::read(text.as_bytes().into(), 1 << 40).expect_err("it is refused");
        assert!(problems[0].contains("no route leads to collector 1.2.3.4:514"), "{problems:?}");
        let text = text.replace("1.2.3.4", "192.0.2.7") + "queue = 16777216\n";
        let problems = settings::read(text.as_bytes().into(), 1 << 30).expect_err("it is refused");
        assert!(problems[0].contains("log.queue"), "{problems:?}");
    }

    #[test]
    fn an_event_has_the_name_of_its_host() {
        let mut logs = Logs::new(&with("collector = \"192.0.2.7:514\"\n").expect("it is good"));
        let address: std::net::Ipv6Addr = "2001:db8:1::5".parse().expect("an address");
        let host = HostName { address: Some(address), prefix: address, len: 128 };
        logs.take(block(1), Some(&host));
        logs.take(block(2), None);
        let mut road = Road { open: true, room: 9, ..Road::default() };
        while logs.turn(&mut road) {}
        let told: Vec<bool> =
            road.came.iter().map(|(_, _, message)| message.contains("2001:db8:1::5")).collect();
        assert_eq!(told, [true, false], "{:?}", road.came);
        assert_eq!(logs.total().map(|all| (all.sent, all.waiting)), Some((2, 0)));
    }

    #[test]
    fn events_wait_and_what_does_not_fit_is_counted() {
        let settings = with("collector = \"192.0.2.7:514\"\nqueue = 1024\n").expect("it is good");
        let mut logs = Logs::new(&settings);
        assert_eq!(logs.total(), Some(Figures { up: true, ..Figures::default() }));
        (0..1100).for_each(|second| logs.take(block(second), None));
        let mut road = Road::default();
        assert!(!logs.turn(&mut road));
        // One record has left the queue and waits to be sent.
        let waits = Figures { waiting: 1024, lost: 76, gaps: 1, sent: 0, up: false };
        assert_eq!(logs.total(), Some(waits));
        road = Road { open: true, room: 20, ..Road::default() };
        assert!(logs.turn(&mut road));
        assert_eq!(road.came.len(), BUDGET);
        assert!(logs.turn(&mut road));
        assert_eq!((road.came.len(), logs.total().map(|all| all.waiting)), (20, Some(1004)));
        road.room = usize::MAX;
        while logs.turn(&mut road) {}
        // All events in their order, and the gap at the end.
        assert_eq!(road.came.len(), 1025);
        assert!(road.came[1023].2.contains("1970-01-01T00:17:03"), "{}", road.came[1023].2);
        assert!(road.came[1024].2.contains(" gap ") && road.came[1024].2.contains("lost=\"76\""));
        let done = Figures { sent: 1024, waiting: 0, up: true, ..waits };
        assert_eq!(logs.total(), Some(done));
        assert_eq!(logs.figures().next(), Some(("syslog udp 192.0.2.7:514".to_owned(), done)));
    }

    #[test]
    fn a_limit_that_is_reached_each_second_is_damped_and_summed_up() {
        let settings = with("collector = \"192.0.2.7:514\"\n").expect("it is good");
        let mut logs = Logs::new(&settings);
        (0..600).for_each(|second| logs.take(event(second), None));
        logs.summarize(Timestamp(10_000 * 1_000_000_000));
        let mut road = Road { open: true, room: usize::MAX, ..Road::default() };
        while logs.turn(&mut road) {}
        assert!((3..10).contains(&road.came.len()), "{:?}", road.came);
        let (_, _, last) = road.came.last().expect("the summary");
        assert!(last.contains("600"), "{last}");
    }
}
