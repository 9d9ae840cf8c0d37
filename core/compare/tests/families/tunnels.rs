//! Random settings of DS-Lite, and random packets of tunnels: fresh ones, answers, errors from
//! inside and behind a tunnel, and fragments.

use crate::configs::{self, prefix6};
use crate::packets;
use crate::rng::Rng;
use natgate_engine::Config;
use natgate_ipv6::Settings;
use natgate_ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_ipv6::{Requester, StaticHost};
use natgate_wire::Ipv6;
use natgate_wire::ipv6::Fragment;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The gateway's end of the tunnels, if it is no own address.
const AFTR: &str = "2001:db8:ffff::1";
/// The next header of IPv4.
const IPV4: u8 = 4;
/// Ends of tunnels; the last one is no B4.
const B4S: [&str; 5] =
    ["2001:db8:b4::1", "2001:db8:b4::2", "2001:db8:b4:1::1", "2001:db8:b6::1", "2001:db8:b5::1"];
/// Inner addresses. The last five may not send.
const INNER: [[u8; 4]; 10] = [
    [192, 168, 1, 2],
    [192, 168, 1, 2],
    [192, 168, 1, 3],
    [10, 0, 0, 5],
    [192, 0, 0, 2],
    [8, 8, 8, 8],
    [127, 0, 0, 1],
    [192, 0, 0, 8],
    [192, 0, 0, 1],
    [0, 0, 0, 0],
];

/// Settings with DS-Lite, and with other tables now and then.
pub(crate) fn settings(rng: &mut Rng) -> Settings {
    let others = configs::stateless(rng);
    let siit = others.siit.clone().filter(|_| rng.chance(4));
    let clat = others.clat.clone().filter(|_| rng.chance(4));
    beside(rng, Settings { siit, clat, ..others })
}

/// Adds DS-Lite to settings.
pub(crate) fn beside(rng: &mut Rng, others: Settings) -> Settings {
    let own = others.inside.address.filter(|_| rng.chance(2));
    // Two of the B4s are of one /48.
    let subscriber_length = rng.one_of(&[128, 128, 64, 48]);
    let dslite = DsliteSettings {
        subscriber_length,
        b4_change_interval: Duration::from_secs(rng.one_of(&[0, 1, 60])),
        address: own.map_or(AFTR.parse().expect("an address"), |(address, _)| address),
        b4: vec![prefix6("2001:db8:b4::", 47), prefix6("2001:db8:b6::1", 128)],
        softwire: SoftwireSettings {
            mtu: rng.one_of(&[None, None, Some(1280), Some(1400)]),
            path_mtu: !rng.chance(4),
        },
        static_hosts: static_hosts(rng, subscriber_length),
    };
    Settings { dslite: Some(dslite), ..others }
}

/// Hosts of static mappings, of one B4 or two.
fn static_hosts(rng: &mut Rng, subscriber_length: u8) -> Vec<StaticHost> {
    let of = |b4: usize, inner: usize| -> (Ipv6Addr, Ipv4Addr) {
        (B4S[b4].parse().expect("an address"), INNER[inner].into())
    };
    // A subscriber has one B4.
    let hosts = [of(0, 0), of(0, 2), of(if subscriber_length == 128 { 1 } else { 3 }, 0)];
    StaticHost::first_behind(&hosts[..rng.below(hosts.len() + 1)], subscriber_length, 1)
}

/// Limits and the segment size that DS-Lite has a part in.
pub(crate) fn limit(rng: &mut Rng, config: &mut Config) {
    config.tcp_mss = rng.one_of(&[None, Some(1452), Some(1000)]);
    config.limits.subscribers = Some(rng.one_of(&[2, 1000, 1000, 1000]));
    config.limits.udp_ports = rng.one_of(&[1, 2000]);
    config.limits.fragment_memory = rng.one_of(&[20_000, 1 << 24]);
    config.limits.icmp_errors_per_second = 1000;
}

fn address(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().expect("an address").to_bits()
}

/// The gateway's end of the tunnels.
fn aftr(settings: &Settings) -> u128 {
    settings.dslite.as_ref().expect("DS-Lite").address.to_bits()
}

fn b4(rng: &mut Rng) -> u128 {
    let any = rng.one_of(&B4S);
    address(if rng.chance(6) { any } else { B4S[rng.below(3)] })
}

/// A host that requests a mapping. Some may not.
pub(crate) fn requester(rng: &mut Rng) -> Requester {
    Requester::Tunneled { b4: b4(rng).into(), inner: inner_address(rng).into() }
}

fn inner_address(rng: &mut Rng) -> u32 {
    let all = if rng.chance(8) { INNER.len() } else { INNER.len() - 5 };
    u32::from_be_bytes(INNER[rng.below(all)])
}

/// A host that may send, and its tunnel.
pub(crate) fn host(rng: &mut Rng, settings: &Settings) -> ((u128, u128), u32) {
    ((address(B4S[rng.below(4)]), aftr(settings)), u32::from_be_bytes(INNER[rng.below(5)]))
}

/// The IPv4 packet of a packet that left into a tunnel, and the B4.
pub(crate) fn open(settings: &Settings, bytes: &[u8]) -> Option<(u128, Vec<u8>)> {
    let outer = Ipv6::new_checked(bytes).ok()?;
    let is_ours = outer.source() == aftr(settings) && outer.next_header() == IPV4;
    is_ours.then(|| (outer.destination(), outer.payload().to_vec()))
}

/// True if an IPv6 packet is in a tunnel, in either direction.
pub(crate) fn is_tunneled(settings: &Settings, bytes: &[u8]) -> bool {
    let Ok(outer) = Ipv6::new_checked(bytes) else { return false };
    let is_whole = outer.walk().is_ok_and(|walk| walk.protocol == IPV4);
    is_whole && [outer.source(), outer.destination()].contains(&aftr(settings))
}

/// A packet from a tunnel, or its fragments.
fn wrap(rng: &mut Rng, settings: &Settings, b4: u128, inner: &[u8]) -> Vec<Vec<u8>> {
    let ends = (b4, aftr(settings));
    if !rng.chance(4) || inner.len() < 64 {
        return vec![packets::wrap6(rng, ends, IPV4, None, inner)];
    }
    let identification = rng.one_of(&[1, 2, rng.0 as u32]);
    let step = rng.one_of(&[24, 64, 512, 1232]);
    let odd = usize::from(rng.chance(12));
    let step = step.max(inner.len().div_ceil(40).next_multiple_of(8));
    let count = inner.len().div_ceil(step);
    let piece = |(number, piece): (usize, &[u8])| {
        let (offset, more) = (number * step, number + 1 < count);
        let fragment = Fragment { next_header: IPV4, offset, more, identification };
        packets::wrap6(rng, ends, IPV4, Some(fragment), &piece[odd..])
    };
    inner.chunks(step).enumerate().map(piece).collect()
}

/// A fresh packet from a tunnel, in its fragments if it is cut.
pub(crate) fn fresh(rng: &mut Rng, settings: &Settings) -> Vec<Vec<u8>> {
    let ends = (inner_address(rng), configs::ipv4_address(rng));
    let mut inner = packets::four(rng, ends);
    if rng.chance(12) {
        packets::mutate(rng, &mut inner);
    }
    let b4 = b4(rng);
    wrap(rng, settings, b4, &inner)
}

/// A host's packet to the external endpoint that a packet left with.
pub(crate) fn turning(rng: &mut Rng, settings: &Settings, left: &[u8]) -> Vec<Vec<u8>> {
    let mut inner = packets::answer(rng, left);
    let source = inner_address(rng).to_be_bytes();
    packets::replace_source(&mut inner, source);
    let b4 = b4(rng);
    wrap(rng, settings, b4, &inner)
}

/// A host's answer to a packet that came through its tunnel.
pub(crate) fn answer(
    rng: &mut Rng,
    settings: &Settings,
    (b4, inner): (u128, Vec<u8>),
) -> Vec<Vec<u8>> {
    let inner = packets::answer(rng, &inner);
    wrap(rng, settings, b4, &inner)
}

/// An error about a packet that came through a tunnel: from behind the B4, or from a router in the
/// tunnel.
pub(crate) fn error(
    rng: &mut Rng,
    settings: &Settings,
    left: &[u8],
    (own, inner): (u128, Vec<u8>),
) -> Vec<Vec<u8>> {
    if rng.chance(2) {
        let ends = (configs::ipv6_address(rng, settings), aftr(settings));
        let make = if rng.chance(3) { packets::too_big } else { packets::error6 };
        return vec![make(rng, ends, left)];
    }
    let word =
        |at: usize| u32::from_be_bytes([inner[at], inner[at + 1], inner[at + 2], inner[at + 3]]);
    let source = if rng.chance(2) { inner_address(rng) } else { word(16) };
    let error = packets::error4(rng, (source, word(12)), &inner);
    let b4 = if rng.chance(8) { b4(rng) } else { own };
    wrap(rng, settings, b4, &error)
}
