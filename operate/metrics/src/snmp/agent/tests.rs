//! Objects by their names, and what a master sends that is not as it should be.

use super::*;
use crate::{Filled, PoolFigures, PortFigures};
use natgate_engine::{Direction, MappingInfo, PoolConfig, SubscriberInfo};
use natgate_gateway::{MappingPlace, Page, SubscriberPlace};
use std::io::Cursor;
use std::os::unix::net::UnixListener;
use std::time::SystemTime;

fn settings() -> SnmpSettings {
    SnmpSettings {
        master: Master::Unix("/nowhere".into()),
        mappings_threshold: Some(90),
        subscribers_threshold: Some(50),
        pools_low_threshold: Some(10),
        interval: 20,
        subscribers: false,
    }
}

fn view(used: u64) -> View {
    let mut figures = Figures::new(SystemTime::now());
    figures.mappings = Filled { used, limit: 100 };
    View { config: Arc::new(Config::default()), figures }
}

fn objects() -> BTreeMap<Oid, Value> {
    tables(&settings(), &view(41), &PoolNumbers::default(), (7, 1000), &|_| 9)
}

/// No subscribers, no mappings.
struct Nobody;

impl Rows for Nobody {
    fn mappings_from(&self, _: MappingPlace, _: usize) -> Result<Page<MappingInfo>, String> {
        Ok(Page { entries: Vec::new(), is_last: true })
    }

    fn subscribers_from(
        &self,
        _: &dyn Fn(&SubscriberInfo) -> Option<u16>,
        _: SubscriberPlace,
        _: usize,
    ) -> Result<Page<SubscriberInfo>, String> {
        Ok(Page { entries: Vec::new(), is_last: true })
    }

    fn subscriber(&self, _: u16, _: Ipv4Addr) -> Result<Option<SubscriberInfo>, String> {
        Ok(None)
    }
}

fn sources() -> Sources {
    Sources { view: Box::new(|| Ok(view(1))), rows: Box::new(Nobody), reached: Box::new(Vec::new) }
}

/// The answer from these objects alone, with empty long tables.
fn look_up(all: &BTreeMap<Oid, Value>, request: &Request) -> Bindings {
    let (settings, config, pools) = (settings(), Config::default(), PoolNumbers::default());
    let context = RowContext::new(&settings, &config, &pools, 0);
    let mut objects = Objects { short: all, long: None, context: &context };
    let alone = objects.look_up(request).expect("there are objects");
    let mut empty = LongTables::new(Box::new(Nobody));
    objects.long = Some(&mut empty);
    assert_eq!(objects.look_up(request).expect("there are objects"), alone);
    alone
}

fn of(end: &[u32]) -> Oid {
    [&MIB[..], end].concat()
}

#[test]
fn an_object_is_found_or_it_is_said_what_is_missing() {
    let all = objects();
    for (name, expected) in [
        (of(&[2, 1, 1, 8, 1]), Value::Unsigned(41)),
        (of(&[2, 1, 1, 21, 1]), Value::Integer(90)),
        (of(&[2, 1, 1, 19, 1]), Value::Ticks(7)),
        (of(&[2, 1, 1, 8, 2]), Value::NoSuchInstance),
        (of(&[2, 1, 1, 99, 1]), Value::NoSuchObject),
        (of(&[2]), Value::NoSuchObject),
        (vec![], Value::NoSuchObject),
    ] {
        let found = look_up(&all, &Request::Get(vec![range(&name, &[])]));
        assert_eq!(found, [(name, expected)]);
    }
}

fn range(start: &[u32], end: &[u32]) -> Range {
    Range { start: start.to_vec(), included: false, end: end.to_vec() }
}

#[test]
fn a_walk_finds_every_object_once_and_ends() {
    let all = objects();
    let (mut start, mut walked) = (MIB.to_vec(), Vec::new());
    loop {
        let found = look_up(&all, &Request::GetNext(vec![range(&start, &of(&[3]))]));
        let [(name, value)] = &found[..] else { panic!("one is asked for") };
        if *value == Value::EndOfView {
            assert_eq!(*name, start);
            break;
        }
        walked.push(name.clone());
        start.clone_from(name);
    }
    assert!(walked.iter().eq(all.keys()));
    // In one go, with more asked for than there is.
    let ranges = vec![range(&MIB, &[])];
    let bulk = look_up(&all, &Request::GetBulk { once: 0, most: u16::MAX, ranges });
    assert!(bulk.iter().map(|(name, _)| name).take(all.len()).eq(all.keys()));
    assert_eq!(bulk.len(), all.len() + 1);
    // The end of a range holds.
    let found = look_up(&all, &Request::GetNext(vec![range(&MIB, &of(&[2, 1, 1, 2, 1]))]));
    assert_eq!(found[0].1, Value::EndOfView);
    let itself = Range { included: true, ..range(&of(&[2, 1, 1, 8, 1]), &[]) };
    assert_eq!(look_up(&all, &Request::GetNext(vec![itself]))[0].1, Value::Unsigned(41));
}

#[test]
fn a_threshold_is_told_once_until_use_has_fallen_and_the_interval_has_passed() {
    let (mut notifier, begin) = (Notifier::default(), Instant::now());
    let mut told = |used, second| {
        let now = begin + Duration::from_secs(second);
        notifier.due(&settings(), &view(used), &PoolNumbers::default(), now).len()
    };
    assert_eq!(told(89, 0), 0);
    assert_eq!(told(90, 1), 1);
    assert_eq!(told(99, 2), 0);
    assert_eq!(told(50, 3), 0);
    assert_eq!(told(95, 4), 0, "within the interval");
    assert_eq!(told(95, 22), 1);
    assert_eq!(told(95, 99), 0);
}

/// Notifications about pools and subscribers: by second, their numbers and values.
fn told_of_pool(steps: &[(u64, u64)]) -> Vec<(u64, u32, u32)> {
    let pool = PoolConfig { name: "a".into(), thresholds: vec![80], ..PoolConfig::default() };
    let config = Arc::new(Config { pools: vec![pool], ..Config::default() });
    let (mut notifier, mut pools, begin) =
        (Notifier::default(), PoolNumbers::default(), Instant::now());
    pools.learn(&config, begin);
    let mut told = Vec::new();
    for &(second, used) in steps {
        let mut figures = Figures::new(SystemTime::now());
        let usage = PortFigures { free: 100 - used, used, held: 0, reserved: 0 };
        let (name, ports) = ("a".to_owned(), vec![("udp", usage)]);
        figures.pools = vec![PoolFigures { name, addresses: 1, ports, blocks: None }];
        let view = View { config: Arc::clone(&config), figures };
        let now = begin + Duration::from_secs(second);
        for said in notifier.due(&settings(), &view, &pools, now) {
            let [(_, Value::Oid(kind)), (_, Value::Unsigned(value)), ..] = &said[..] else {
                panic!("{said:?}")
            };
            told.push((second, kind[kind.len() - 1], *value));
        }
    }
    told
}

//= test rfc7659#section-4-monotone
#[test]
fn packets_that_turn_out_undeliverable_do_not_make_a_counter_fall() {
    let (_stop, stopped) = channel();
    let forwarded = Arc::new(std::sync::Mutex::new(1000_u64));
    let told = Arc::clone(&forwarded);
    let shown = move || {
        let mut view = view(1);
        let packets = &mut view.figures.counters.packets[Direction::Outbound as usize];
        packets[natgate_engine::Outcome::Forwarded as usize] = *told.lock().expect("nobody panics");
        Ok(view)
    };
    let sources = Sources { view: Box::new(shown), ..sources() };
    let mut work = AgentLoop::new(settings(), sources, stopped);
    let stream = Box::new(FixedStream(Cursor::new(Vec::new())));
    let session = Session { stream, number: 1, packet: 0, uptime: 0, opened: Instant::now() };
    let name = of(&[2, 1, 1, 9, 1]);
    let mut found = Vec::new();
    for count in [1000, 998, 1001] {
        *forwarded.lock().expect("nobody panics") = count;
        work.view = None;
        let request = Request::Get(vec![range(&name, &[])]);
        found.extend(work.answer(&session, &request).expect("there are figures"));
    }
    let values: Vec<_> = found.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [1000, 1000, 1001].map(Value::Counter));
}

//= test rfc7659#section-4-notify-once
//= test rfc7659#section-4-notify-upper
#[test]
fn of_several_in_an_interval_the_worst_is_told_and_high_use_before_low() {
    // A pool that has not been used is no news.
    assert_eq!(told_of_pool(&[(0, 0), (30, 0), (60, 5)]), []);
    // Low use is told when the interval has passed, the lowest of it.
    let falls = [(0, 50), (1, 10), (2, 20), (3, 4), (4, 50), (20, 50), (21, 50), (60, 50)];
    assert_eq!(told_of_pool(&falls), [(21, 1, 4)]);
    // High use is told at once. Further high use in the interval is told at its end: the highest
    // value.
    let rises = [(0, 85), (1, 50), (2, 82), (3, 50), (4, 99), (5, 50), (6, 90), (19, 50), (20, 50)];
    assert_eq!(told_of_pool(&rises), [(0, 2, 85), (20, 2, 99)]);
    // If an interval has both, only the high use is notified, in either order.
    assert_eq!(told_of_pool(&[(0, 50), (1, 5), (2, 90), (21, 50), (60, 50)]), [(2, 2, 90)]);
    let both = [(0, 90), (1, 50), (2, 95), (3, 5), (20, 50), (60, 50)];
    assert_eq!(told_of_pool(&both), [(0, 2, 90), (20, 2, 95)]);
}

#[test]
fn subscribers_are_told_of_each_for_itself_and_not_too_many() {
    let (mut notifier, begin) = (Notifier::default(), Instant::now());
    let address = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number);
    let at = |second| begin + Duration::from_secs(second);
    let reach = |notifier: &mut Notifier, number, mappings, second| {
        notifier.subscriber_reached(&settings(), (0, address(number)), mappings, at(second));
    };
    let due = |notifier: &mut Notifier, second| {
        let all = notifier.due(&settings(), &view(1), &PoolNumbers::default(), at(second));
        all.iter().map(|said| said[1].1.clone()).collect::<Vec<_>>()
    };
    reach(&mut notifier, 5, 100, 0);
    reach(&mut notifier, 6, 70, 0);
    // Subscribers of other realms have no number.
    notifier.subscriber_reached(&settings(), (3, address(7)), 1, at(0));
    assert_eq!(due(&mut notifier, 0).len(), 2);
    for (mappings, second) in [(50, 1), (90, 2), (80, 3)] {
        reach(&mut notifier, 5, mappings, second);
    }
    assert_eq!(due(&mut notifier, 3), []);
    assert_eq!(due(&mut notifier, 20), [Value::Unsigned(90)]);
    for number in 0..10_000 {
        reach(&mut notifier, number, 1, 50);
    }
    assert_eq!(due(&mut notifier, 50).len(), 4096);
    assert_eq!(due(&mut notifier, 90), []);
}

/// A stream of given bytes.
struct FixedStream(Cursor<Vec<u8>>);

impl Read for FixedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for FixedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for FixedStream {}

#[test]
fn whatever_a_master_sends_ends_the_session_at_worst() {
    let whole = Header::new(kind::GET, 1, 2, 3).message(&[4, 2, 0, 0]);
    let samples = [
        vec![0; 7],
        vec![0xff; 64],
        whole[..21].to_vec(),
        whole,
        Header::new(kind::CLOSE, 1, 2, 3).message(&[1, 0, 0, 0]),
        Header::new(99, 1, 2, 3).message(&[]),
        Header::new(kind::TEST_SET, 1, 2, 3).message(&[9; 8]),
    ];
    for bytes in samples {
        let (_stop, stopped) = channel();
        let mut work = AgentLoop::new(settings(), sources(), stopped);
        let stream = Box::new(FixedStream(Cursor::new(bytes.clone())));
        let mut session =
            Session { stream, number: 1, packet: 0, uptime: 0, opened: Instant::now() };
        assert!(matches!(work.serve(&mut session), Err(SessionEnd::Lost(_))), "{bytes:?}");
    }
}

#[test]
fn an_agent_ends_though_its_master_is_silent() {
    let path = std::env::temp_dir().join(format!("natgate-agentx-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("it can be made");
    let settings = SnmpSettings { master: Master::Unix(path.clone()), ..settings() };
    let agent = Agent::start(settings, sources(), drop).expect("a thread");
    let (stream, _) = listener.accept().expect("it connects");
    drop(agent);
    drop(stream);
    let _ = std::fs::remove_file(&path);
}
