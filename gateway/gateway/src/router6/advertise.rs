//! Router advertisements on the inside link (RFC 4861 section 6.2), with the prefix of the link,
//! its MTU, the prefix of NAT64 (RFC 8781) and servers of names (RFC 8106).
//!
//! Advertisements go to all nodes: a few at once after the start, then at random times of the
//! configured interval, and soon after a solicitation, but never two within three seconds. The
//! random times follow from the hardware address, so that routers of one link differ.

use crate::settings6::AdvertiseSettings;
use natgate_engine::Timestamp;
use natgate_ipv6::{Pref64, Prefix6};
use natgate_wire::arp::Mac;
use natgate_wire::icmpv6::kind;
use natgate_wire::{ipv6, nd};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Number of advertisements after the start with shorter intervals (MAX_INITIAL_RTR_ADVERTISEMENTS,
/// RFC 4861 section 10).
const INITIAL: u8 = 3;

/// Longest interval of these (MAX_INITIAL_RTR_ADVERT_INTERVAL).
const INITIAL_INTERVAL: Duration = Duration::from_secs(16);

/// Least time between two advertisements (MIN_DELAY_BETWEEN_RAS).
const LEAST_INTERVAL: Duration = Duration::from_secs(3);

/// Longest delay of an answer to a solicitation (MAX_RA_DELAY_TIME).
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// Time to wait for an own link-local address.
const WAIT: Duration = Duration::from_secs(1);

/// Time for which addresses of a former prefix stay valid (RFC 4862 section 5.5.3).
const FORMER_PREFIX: Duration = Duration::from_secs(7200);

/// Hop limit that hosts get for their packets.
const HOP_LIMIT: u8 = 64;

/// Offset of the router's lifetime in an advertisement, bytes.
const LIFETIME: usize = ipv6::HEADER_LEN + 6;

/// Length of an advertisement without options, bytes.
const LEN: usize = 16;

const MANAGED: u8 = 0x80;
const OTHER: u8 = 0x40;
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// The sender of advertisements on a link.
#[derive(Debug)]
pub(super) struct Advertiser {
    settings: AdvertiseSettings,
    /// The link's network, if it has one.
    network: Option<Prefix6>,
    /// Advertisements sent since the start, at most [`INITIAL`].
    sent: u8,
    last: Option<Timestamp>,
    next: Timestamp,
    /// State of the random numbers.
    random: u64,
}

impl Advertiser {
    pub(super) fn new(settings: AdvertiseSettings, network: Option<Prefix6>, mac: Mac) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        let random = u64::from_be_bytes([0x6e, 0x67, a, b, c, d, e, f]);
        Self { settings, network, sent: 0, last: None, next: Timestamp(0), random }
    }

    /// Time of the next work.
    pub(super) fn next_deadline(&self) -> Timestamp {
        self.next
    }

    /// Notes that a host has asked for an advertisement.
    pub(super) fn solicit(&mut self, now: Timestamp) {
        //= rfc4861#section-6.2.6-delay
        let delay = self.between(Duration::ZERO, LONGEST_DELAY);
        //= rfc4861#section-6.2.6-rate
        let earliest = self.last.map_or(now, |last| now.max(last.plus(LEAST_INTERVAL)));
        self.next = self.next.min(earliest.plus(delay));
    }

    /// Returns the advertisement that is due, from the router's link-local address.
    //= rfc4861#section-6.2.4
    pub(super) fn advance(
        &mut self,
        now: Timestamp,
        (mac, source): (Mac, Option<Ipv6Addr>),
        mtu: usize,
    ) -> Option<Vec<u8>> {
        if self.next > now {
            return None;
        }
        //= rfc4861#section-6.2.2
        let Some(source) = source else {
            self.next = now.plus(WAIT);
            return None;
        };
        let longest = self.settings.interval;
        let mut interval = self.between(longest / 3, longest);
        self.sent = self.sent.saturating_add(1).min(INITIAL);
        if self.sent < INITIAL {
            interval = interval.min(INITIAL_INTERVAL);
        }
        self.last = Some(now);
        self.next = now.plus(interval.max(LEAST_INTERVAL));
        Some(self.packet((mac, source), mtu))
    }

    /// The last advertisement: hosts no longer use this router nor its prefixes for new
    /// connections.
    //= rfc4861#section-6.2.5
    pub(super) fn farewell(&self, (mac, source): (Mac, Ipv6Addr), mtu: usize) -> Vec<u8> {
        let settings = AdvertiseSettings {
            lifetime: Duration::ZERO,
            interval: Duration::ZERO,
            preferred_lifetime: Duration::ZERO,
            valid_lifetime: self.settings.valid_lifetime.min(FORMER_PREFIX),
            ..self.settings.clone()
        };
        Self::new(settings, self.network, mac).packet((mac, source), mtu)
    }

    /// Takes the place of another sender of the link. Hosts learn changed settings as soon as the
    /// least time between two advertisements allows.
    pub(super) fn succeed(&mut self, former: Self) {
        if self.settings == former.settings && self.network == former.network {
            *self = former;
            return;
        }
        (self.last, self.random) = (former.last, former.random);
        //= rfc4861#section-6.2.6-rate
        self.next = self.last.map_or(Timestamp(0), |last| last.plus(LEAST_INTERVAL));
    }

    /// True if both senders tell hosts of the same prefix.
    pub(super) fn has_network_of(&self, former: &Self) -> bool {
        self.network == former.network
    }

    /// A duration between two others, evenly distributed.
    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        // The generator splitmix64 (Steele, Lea, Flood 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let span = (most - least).as_nanos() as u64;
        least + Duration::from_nanos(mixed % span.saturating_add(1))
    }

    /// Writes an advertisement.
    //= rfc4861#section-6.2.3
    fn packet(&self, (mac, source): (Mac, Ipv6Addr), mtu: usize) -> Vec<u8> {
        let own = &self.settings;
        let mut packet = vec![0; ipv6::HEADER_LEN + LEN];
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        packet[ipv6::HEADER_LEN + 4] = HOP_LIMIT;
        packet[ipv6::HEADER_LEN + 5] = flag(own.managed, MANAGED) | flag(own.other, OTHER);
        let lifetime = u16::try_from(own.lifetime.as_secs()).unwrap_or(u16::MAX);
        packet[LIFETIME..LIFETIME + 2].copy_from_slice(&lifetime.to_be_bytes());
        packet.extend([nd::option::SOURCE_LINK_ADDRESS, 1]);
        packet.extend(mac.0);
        packet.extend([nd::option::MTU, 1, 0, 0]);
        packet.extend((mtu as u32).to_be_bytes());
        if let Some(network) = self.network {
            packet.extend(self.prefix(network));
        }
        // Three intervals: hosts may miss two advertisements.
        let kept = own.interval * 3;
        if let Some(pref64) = own.pref64 {
            packet.extend(pref64_option(pref64, kept));
        }
        if !own.dns.is_empty() {
            packet.extend(servers(&own.dns, kept));
        }
        nd::finish(&mut packet, kind::ROUTER_ADVERTISEMENT, (source, nd::ALL_NODES));
        packet
    }

    /// The option about the link's prefix (RFC 4861 section 4.6.2).
    fn prefix(&self, network: Prefix6) -> Vec<u8> {
        let own = &self.settings;
        let flags = ON_LINK | if own.autonomous { AUTONOMOUS } else { 0 };
        let mut option = vec![nd::option::PREFIX_INFORMATION, 4, network.len, flags];
        option.extend(seconds(own.valid_lifetime).to_be_bytes());
        option.extend(seconds(own.preferred_lifetime).to_be_bytes());
        option.extend([0; 4]);
        option.extend(network.first().octets());
        option
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// The option about the prefix of NAT64: the lifetime counts in units of eight seconds, and shares
/// its word with the code of the prefix's length.
//= rfc8781#section-4
//= rfc8781#section-4.1
fn pref64_option(pref64: Pref64, kept: Duration) -> Vec<u8> {
    const MOST: u64 = 65_528;
    let prefix = pref64.prefix();
    let code: u16 = match prefix.len {
        64 => 1,
        56 => 2,
        48 => 3,
        40 => 4,
        32 => 5,
        _ => 0,
    };
    let units = kept.as_secs().min(MOST).div_ceil(8) as u16;
    let mut option = vec![nd::option::PREF64, 2];
    option.extend((units << 3 | code).to_be_bytes());
    option.extend(&prefix.first().octets()[..12]);
    option
}

/// The option about servers of names.
//= rfc8106#section-5.1
fn servers(dns: &[Ipv6Addr], kept: Duration) -> Vec<u8> {
    let mut option = vec![nd::option::RDNSS, (1 + 2 * dns.len()) as u8, 0, 0];
    option.extend(seconds(kept).to_be_bytes());
    option.extend(dns.iter().flat_map(Ipv6Addr::octets));
    option
}
