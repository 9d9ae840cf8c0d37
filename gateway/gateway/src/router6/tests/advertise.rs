//! Router advertisements.

use super::*;
use crate::settings6::AdvertiseSettings;
use natgate_ipv6::Pref64;

fn advertising() -> Settings {
    let pref64 = Pref64::new(prefix("64:ff9b::", 96)).expect("a prefix that embeds");
    let mut settings = settings();
    settings.router6.advertise = Some(AdvertiseSettings {
        interval: Duration::from_secs(600),
        lifetime: Duration::from_secs(1800),
        pref64: Some(pref64),
        dns: vec![ip("2001:db8::53"), ip("2001:db8::54")],
        ..AdvertiseSettings::default()
    });
    settings
}

/// The advertisements among the output that waits; all go to all nodes of the inside.
fn advertisements(router: &mut Router6) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((link, frame, _)) = router.poll_transmit() {
        let packet = &frame[ETHERNET_LEN..];
        if nd::read(packet) != Ok(Message::RouterAdvertisement) {
            continue;
        }
        let header = Ipv6::new_checked(packet).expect("a packet");
        let ends = [header.source(), header.destination()].map(Ipv6Addr::from_bits);
        assert_eq!((link, ends), (IN, [nd::link_local(INSIDE), nd::ALL_NODES]));
        let mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(arp::read_ethernet(&frame).map(|(to, ..)| to), Some(mac));
        all.push(packet[40..].to_vec());
    }
    all
}

/// The option of a type.
fn option(message: &[u8], kind: u8) -> Option<Vec<u8>> {
    let mut rest = &message[16..];
    while let [first, units, ..] = rest {
        let (option, others) = rest.split_at(usize::from(*units) * 8);
        if *first == kind {
            return Some(option.to_vec());
        }
        rest = others;
    }
    None
}

/// Lets time pass up to a time; returns the times of advertisements, milliseconds.
fn times(router: &mut Router6, until: u64) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(next) = router.next_deadline().filter(|next| *next <= at(until)) {
        let now = next.max(at(0));
        router.advance(now);
        let count = advertisements(router).len();
        times.extend(vec![now.since(at(0)).as_millis() as u64; count]);
    }
    times
}

//= test rfc4861#section-6.2.2
//= test rfc4861#section-6.2.3
//= test rfc8781#section-4
//= test rfc8781#section-4.1
//= test rfc8106#section-5.1
#[test]
fn an_advertisement_has_what_the_settings_say() {
    let mut router = new(&advertising());
    router.advance(at(0));
    assert_eq!(advertisements(&mut router), [] as [Vec<u8>; 0], "there is no address yet");
    router.advance(at(1000));
    let all = advertisements(&mut router);
    let [message] = &all[..] else { panic!("{all:?}") };
    // Hop limit 64, no flags, 1800 seconds, no times.
    assert_eq!(message[4..16], [64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0]);
    let expected =
        |kind: u8, bytes: &[u8]| assert_eq!(option(message, kind).as_deref(), Some(bytes));
    expected(1, &[1, 1, 2, 0, 0, 0, 0, 1]);
    expected(5, &[5, 1, 0, 0, 0, 0, 0x05, 0xdc]);
    let lifetimes = [2_592_000_u32.to_be_bytes(), 604_800_u32.to_be_bytes(), [0; 4]].concat();
    let network = ip("2001:db8:1::").octets();
    expected(3, &[&[3, 4, 64, 0xc0][..], &lifetimes, &network].concat());
    // 1800 seconds are 225 units of eight; the code of 96 bits is 0.
    let pref64 = [&[38, 2][..], &(225_u16 << 3).to_be_bytes(), &[0, 0x64, 0xff, 0x9b]].concat();
    expected(38, &[&pref64[..], &[0; 8]].concat());
    let servers = [ip("2001:db8::53").octets(), ip("2001:db8::54").octets()].concat();
    expected(25, &[&[25, 5, 0, 0, 0, 0, 0x07, 0x08][..], &servers].concat());
}

#[test]
fn flags_and_lengths_follow_the_settings() {
    for (len, code) in [(32, 5), (40, 4), (48, 3), (56, 2), (64, 1), (96, 0)] {
        let mut settings = advertising();
        let own = settings.router6.advertise.as_mut().expect("it is set");
        own.pref64 = Some(Pref64::new(prefix("2001:db8::", len)).expect("a prefix that embeds"));
        own.interval = Duration::from_secs(1799);
        (own.managed, own.other, own.autonomous) = (true, true, false);
        own.dns.clear();
        let mut router = new(&settings);
        router.advance(at(0));
        router.advance(at(1000));
        let message = &advertisements(&mut router)[0];
        assert_eq!(message[5], 0xc0, "both flags");
        assert_eq!(option(message, 3).expect("a prefix")[3], 0x80);
        // 5397 seconds are 675 units of eight, rounded up.
        let pref64 = option(message, 38).expect("a prefix");
        assert_eq!(pref64[2..4], (675_u16 << 3 | code).to_be_bytes(), "{len} bits");
        assert_eq!(option(message, 25), None);
    }
}

//= test rfc4861#section-6.2.4
#[test]
fn advertisements_are_frequent_at_first_and_then_at_random_times() {
    let mut router = new(&advertising());
    let times = times(&mut router, 100_000_000);
    let gaps: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps[..2].iter().all(|gap| *gap <= 16_000), "{gaps:?}");
    let later = &gaps[2..];
    assert!(later.iter().all(|gap| (200_000..=600_000).contains(gap)), "{later:?}");
    let (least, most) = (later.iter().min(), later.iter().max());
    assert!(least < Some(&250_000) && most > Some(&550_000), "{later:?}");
}

//= test rfc4861#section-6.2.1-default
//= test rfc4861#section-6.2.6-delay
//= test rfc4861#section-6.2.6-rate
//= test rfc4861#section-6.2.6-source
#[test]
fn a_solicitation_is_answered_soon_and_not_too_often() {
    let mut router = new(&advertising());
    times(&mut router, 100_000);
    let mut solicitation = vec![0; 48];
    let kind = icmpv6::kind::ROUTER_SOLICITATION;
    nd::finish(&mut solicitation, kind, (Ipv6Addr::UNSPECIFIED, nd::ALL_ROUTERS));
    let ask = |router: &mut Router6, millis| {
        assert_eq!(router.receive(at(millis), IN, HOST, &solicitation), Received::Discovery);
    };
    ask(&mut router, 100_000);
    assert_eq!(router.neighbors(IN), [], "it has no source");
    let first = times(&mut router, 101_000);
    assert!(first.len() == 1 && first[0] <= 100_500, "{first:?}");
    for millis in 101_000..102_000 {
        ask(&mut router, millis);
    }
    let second = times(&mut router, 150_000);
    assert!(second.len() == 1 && second[0] >= first[0] + 3000, "{second:?}");
    assert_eq!(router.counters().router_solicitations, 1001);
    // A router that does not advertise does not answer.
    let mut silent = router_of(&settings());
    ask(&mut silent, 0);
    assert_eq!(silent.next_deadline(), None);
}

//= test rfc4861#section-6.2.6-entry
#[test]
fn a_router_solicitation_tells_of_its_sender() {
    let mut router = router_of(&settings());
    let mut solicitation = vec![0; 56];
    solicitation[48..50].copy_from_slice(&[1, 1]);
    solicitation[50..].copy_from_slice(&HOST.0);
    let kind = icmpv6::kind::ROUTER_SOLICITATION;
    nd::finish(&mut solicitation, kind, (ip("fe80::5"), nd::ALL_ROUTERS));
    assert_eq!(router.receive(at(0), IN, HOST, &solicitation), Received::Discovery);
    assert_eq!(state(&router, IN, "fe80::5"), Some(NeighborState6::Stale));
}

//= test rfc4861#section-6.2.5
#[test]
fn hosts_are_told_when_advertisements_end_or_the_prefix_changes() {
    let mut other = advertising();
    other.ipv6.inside.address = Some((ip("2001:db8:7::1"), 64));
    for settings in [settings(), other] {
        let mut router = new(&advertising());
        times(&mut router, 100_000);
        router.reconfigure(&settings).expect("the settings are right");
        let all = advertisements(&mut router);
        let [message] = &all[..] else { panic!("{all:?}") };
        assert_eq!(message[6..8], [0, 0], "no default router");
        let former = option(message, 3).expect("the former prefix");
        assert_eq!(former[4..12], [7200_u32.to_be_bytes(), [0; 4]].concat());
        assert_eq!(former[16..], ip("2001:db8:1::").octets());
        assert_eq!(option(message, 38).expect("a prefix")[2..4], [0, 0]);
        assert_eq!(option(message, 25).expect("servers")[4..8], [0; 4]);
    }
    let mut router = new(&advertising());
    times(&mut router, 100_000);
    let mut same = advertising();
    same.router6.advertise.as_mut().expect("it is set").dns.clear();
    router.reconfigure(&same).expect("the settings are right");
    assert_eq!(advertisements(&mut router).len(), 0, "the prefix stays");
    router.advance(at(100_000));
    assert_eq!(advertisements(&mut router).len(), 1, "hosts learn the change");
}

//= test rfc4861#section-6.2.5
#[test]
fn hosts_are_told_when_the_router_ends() {
    let mut router = new(&advertising());
    router.take_leave();
    assert_eq!(advertisements(&mut router).len(), 0, "the router has no address yet");
    times(&mut router, 100_000);
    router.take_leave();
    let all = advertisements(&mut router);
    let [message] = &all[..] else { panic!("{all:?}") };
    assert_eq!(message[6..8], [0, 0], "no default router");
    let mut silent = router_of(&settings());
    silent.take_leave();
    assert_eq!(advertisements(&mut silent).len(), 0);
}

//= test rfc4861#section-6.2.6-rate
#[test]
fn reloads_do_not_hurry_advertisements() {
    let mut router = new(&advertising());
    let undisturbed = times(&mut new(&advertising()), 4_000_000);
    let mut seen = Vec::new();
    for reload in 0..400 {
        seen.extend(times(&mut router, reload * 10_000));
        let mut same = advertising();
        same.ipv6.inside.gateway = (reload % 2 == 0).then(|| ip("2001:db8:1::99"));
        router.reconfigure(&same).expect("the settings are right");
    }
    seen.extend(times(&mut router, 4_000_000));
    assert_eq!(seen, undisturbed, "the same settings are advertised at the same times");
    let mut router = new(&advertising());
    let mut seen = Vec::new();
    for reload in 0..400 {
        let mut other = advertising();
        let dns = &mut other.router6.advertise.as_mut().expect("it is set").dns;
        dns.truncate(reload as usize % 2);
        router.reconfigure(&other).expect("the settings are right");
        seen.extend(times(&mut router, reload * 100));
    }
    assert!(seen.len() > 10 && seen.windows(2).all(|pair| pair[1] - pair[0] >= 3000), "{seen:?}");
}
