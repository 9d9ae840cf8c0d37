//! Settings that change while packets flow: no packet of a session that stays allowed is lost.

use crate::world::*;
use natgate_engine::{AddressRange, Match, PoolConfig, Prefix, Rule, RuleAction, Side};
use natgate_gateway::{
    CommandError, Commander, InsideRoutes, Prepared, Reconfigured, Route, Settings, commands,
};
use natgate_wire::link::ethertype;
use natgate_wire::{Udp, arp};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// A host that some settings do not translate.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 5);
const SECOND_POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// Settings of one of several reloads: each has a difference that does not concern the subscriber's
/// session.
fn variant(number: usize) -> Settings {
    let mut settings = settings();
    let engine = &mut settings.engine;
    let prefix = |text: &str, len| Prefix::new(text.parse().expect("an address"), len);
    match number % 6 {
        1 => engine.subscribers = vec![prefix("10.0.0.0", 16)],
        2 => {
            let matches = Match::Source(Prefix::new(GUEST, 32), 0);
            engine.rules = vec![Rule::new(matches, RuleAction::Drop)];
        }
        3 => engine.timeouts.udp = Duration::from_secs(120 + number as u64),
        4 => engine.limits.udp_ports = 1 + number as u32 % 7,
        5 => engine.pools.push(PoolConfig {
            name: "second".into(),
            addresses: vec![AddressRange { first: SECOND_POOL, last: SECOND_POOL }],
            ports: (1024, 2047),
            ..PoolConfig::default()
        }),
        _ => {}
    }
    settings
}

/// Puts other settings in force, as the control plane does.
fn reload(
    commander: &Commander,
    old: &Settings,
    new: Settings,
) -> Result<Reconfigured, CommandError> {
    let numbered = commander.numbered()?;
    let prepared = Prepared::new(old, numbered, new).expect("the settings are right");
    commander.reconfigure(prepared)
}

/// A world that takes commands, and the sender of the commands.
fn commanded(settings: &Settings) -> (World, Commander, UnixStream) {
    let (wake, waker) = UnixStream::pair().expect("a pair of sockets");
    wake.set_nonblocking(true).expect("it can be set");
    let (commander, commands) = commands(waker);
    let mut world = World::with(settings);
    world.worker.obey(commands);
    (world, commander, wake)
}

#[test]
fn a_thousand_reloads_under_traffic_lose_nothing_on_flows_that_stay_allowed() {
    const RELOADS: usize = 1000;
    let (mut world, commander, _wake) = commanded(&settings());
    let flow = udp((SUBSCRIBER, 4000), (REMOTE, 53), b"subscriber");
    let guest = udp((GUEST, 4000), (REMOTE, 53), b"guest");
    world.inside.send(&to_inside(&flow));
    let external =
        Udp::new_checked(view(&world.next_outside()).payload()).expect("UDP").source_port();
    let reloads = thread::spawn(move || {
        let mut went = 0;
        for number in 0..RELOADS {
            let done = reload(&commander, &variant(number), variant(number + 1));
            let done = done.expect("it is put in force");
            assert!(done.stayed > 0, "{number}: {done:?}");
            went += done.went.iter().sum::<u64>();
        }
        went
    });
    let (mut sent, mut guests) = (0_u64, 0_u64);
    while !reloads.is_finished() {
        // Both ways, and a host that is a subscriber at times.
        world.inside.send(&to_inside(&flow));
        let packet = world.next_outside();
        let source = Udp::new_checked(view(&packet).payload()).expect("UDP").source_port();
        assert_eq!(source, external, "packet {sent} has the mapping's endpoint");
        world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, external), b"answer")));
        assert_eq!(view(&world.next_inside()).destination(), SUBSCRIBER.to_bits());
        world.inside.send(&to_inside(&guest));
        world.turn();
        // New external addresses are announced, too.
        let frames = std::iter::from_fn(|| world.outside.take());
        let packets = frames.filter(|frame| {
            arp::read_ethernet(frame).is_some_and(|(.., kind)| kind == ethertype::IPV4)
        });
        guests += packets.count() as u64;
        sent += 1;
    }
    let went = reloads.join().expect("the reloads go on to the end");
    assert!(sent > 0 && guests > 0 && guests < sent, "{guests} of {sent} guests' packets passed");
    assert!(went > 0, "the guest's mapping goes whenever it may not stay");
    println!(
        "{sent} packets each way during {RELOADS} reloads; {guests} of a guest; {went} mappings \
         went"
    );
}

#[test]
fn a_reload_while_a_device_carries_less_is_done_and_the_device_is_followed_on() {
    let mut changed = settings();
    let (mut world, commander, _wake) = commanded(&changed);
    world.outside.set_mtu(900);
    world.pass(Duration::from_millis(1100));
    changed.engine.timeouts.udp = Duration::from_secs(333);
    let new = changed.clone();
    let asking = thread::spawn(move || reload(&commander, &settings(), new).map(drop));
    while !asking.is_finished() {
        world.pass(Duration::from_millis(1));
        thread::yield_now();
    }
    asking.join().expect("it has not panicked").expect("it is put in force");
    let mut packet = udp((SUBSCRIBER, 4000), (REMOTE, 53), &[0x5a; 1000]);
    let mut header = natgate_wire::Ipv4::new_checked(&mut packet[..]).expect("a packet");
    header.set_fragment_field(0x4000);
    header.fill_checksum();
    world.inside.send(&to_inside(&packet));
    let error = world.next_inside();
    let error = view(&error);
    let (kind, mtu) = (&error.payload()[..2], &error.payload()[6..8]);
    assert_eq!((kind, mtu), (&[3, 4][..], &900_u16.to_be_bytes()[..]));
}

#[test]
fn a_reload_decides_whether_inside_routes_hold_for_subscribers() {
    const BEYOND: Ipv4Addr = Ipv4Addr::new(172, 20, 5, 5);
    let with = |inside_routes| {
        let mut settings = settings();
        let (prefix, via) = (Prefix::new(BEYOND, 16), Ipv4Addr::new(10, 0, 0, 254));
        settings.routes = vec![
            Route { prefix, via, side: Side::Inside },
            Route { prefix: Prefix::new(BEYOND, 8), via: REMOTE, side: Side::Outside },
        ];
        settings.inside_routes = inside_routes;
        settings.derive_inside_routes();
        settings
    };
    let stages = [InsideRoutes::Translate, InsideRoutes::Forward, InsideRoutes::Translate];
    let (mut world, commander, _wake) = commanded(&with(stages[0]));
    let sent = udp((SUBSCRIBER, 4000), (BEYOND, 80), b"to the branch");
    for (number, stage) in stages.into_iter().enumerate() {
        if number > 0 {
            let (old, new) = (with(stages[number - 1]), with(stage));
            let asking = thread::scope(|scope| {
                let asking = scope.spawn(|| reload(&commander, &old, new).map(drop));
                while !asking.is_finished() {
                    world.pass(Duration::from_millis(1));
                    thread::yield_now();
                }
                asking.join().expect("it has not panicked")
            });
            asking.expect("it is put in force");
        }
        world.inside.send(&to_inside(&sent));
        let source = match stage {
            InsideRoutes::Forward => view(&world.next_inside()).source(),
            InsideRoutes::Translate => view(&world.next_outside()).source(),
        };
        let is_translated = stage == InsideRoutes::Translate;
        let expected = if is_translated { EXTERNAL } else { SUBSCRIBER };
        assert_eq!(source, expected.to_bits(), "{stage:?}");
    }
}

#[test]
fn a_worker_does_not_sleep_while_a_question_or_a_command_waits() {
    let (mut world, commander, mut wake) = commanded(&settings());
    wake.set_nonblocking(false).expect("it can be set");
    wake.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    let ask: [fn(&Commander) -> bool; 2] = [
        |commander| commander.figures().is_ok_and(|figures| figures.len() == 1),
        |commander| commander.numbered().is_ok(),
    ];
    for ask in ask {
        let commander = &commander;
        thread::scope(|scope| {
            let clients = [(); 3].map(|()| scope.spawn(move || ask(commander)));
            // Three wake-ups are read at once, as the worker's loop does.
            wake.read_exact(&mut [0; 3]).expect("a byte for each client");
            let mut turns = 0;
            loop {
                world.turn();
                turns += 1;
                if world.worker.next_deadline() > world.now {
                    break;
                }
            }
            while clients.iter().any(|client| !client.is_finished()) {
                world.turn();
            }
            assert!(turns >= 3, "the worker sleeps after {turns} turns");
            for client in clients {
                assert!(client.join().expect("no client panics"), "an answer");
            }
        });
    }
}
