//! The PCP service of one worker: admits requests, reads them and carries them out.

use super::queue::{Pushed, Waiting};
use super::{Announcer, CommonEpoch, Datagram, PcpCounters, PcpSettings, RequestClass, operations};
use natgate_engine::{AddressRange, Config, Engine, Prefix, Timestamp};
use natgate_ipv6::{Prefix6, Translator};
use natgate_pcp::{
    Answer, Client, Policy, Prefix64, Read, Refusal, Request, ResultCode, Server, announcement,
    nat_pmp_announcement,
};
use natgate_wire::arp::Mac;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Number of rate counters among which clients are spread.
const COUNTS: usize = 4096;
const SECOND: u64 = 1_000_000_000;
/// Addresses of the ends of DS-Lite's tunnels, which only B4s themselves have (RFC 6333 section
/// 5.7).
const OF_TUNNELS: Prefix = Prefix::new(Ipv4Addr::new(192, 0, 0, 0), 29);

/// A rate limiter: events come evenly, and one second's worth may come at once.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    due: u64,
}

impl Rate {
    /// Returns true, and counts the event, if one more is within the rate.
    fn spend(&mut self, now: u64, per_second: u32) -> bool {
        let permitted = self.next(per_second) <= now;
        if permitted {
            self.due = self.due.max(now) + spacing(per_second);
        }
        permitted
    }

    /// Time from which one more event is within the rate.
    fn next(self, per_second: u32) -> u64 {
        (self.due + spacing(per_second)).saturating_sub(SECOND)
    }
}

/// The time between events at a rate, nanoseconds.
fn spacing(per_second: u32) -> u64 {
    SECOND / u64::from(per_second.max(1))
}

/// Facts about the sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    /// True if the sender is a neighbour and the frame has the neighbour's hardware address, or if
    /// the frame comes from the next hop towards the sender, which is a subscriber that has
    /// mappings. Forged requests are not of this kind, unless the forger has that hardware.
    pub(crate) is_known: bool,
    /// The frame's source, if the frame's header is at hand.
    pub(crate) hardware: Option<Mac>,
    /// The first 24 bits of the sender's IPv4 address, or the bits of its IPv6 address that 256
    /// subscribers have in common, if hardware does not tell senders apart.
    pub(crate) prefix: Option<u128>,
    /// The client whose rate the request counts in: an IPv4 address, or the prefix of a subscriber
    /// of IPv6.
    pub(crate) account: u128,
}

/// Result of a packet to the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The packet is no request.
    NoRequest,
    /// The request waits.
    Waiting,
    /// The request is refused: too many wait or came.
    Refused,
}

/// Next step for a request.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Next {
    /// Do nothing.
    Nothing,
    /// Send this answer.
    Answer(Answer),
    /// Carry the request out, by the worker that owns its host.
    Ask(Request),
}

/// Part of a service in a pair of gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// The gateway is none of a pair.
    Alone,
    /// The epoch of the pair is not known yet.
    Waits,
    /// The epoch at the last agreement with the pair.
    Shares(Timestamp),
}

/// The PCP service of one worker.
#[derive(Debug)]
pub(crate) struct PcpService {
    settings: PcpSettings,
    server: Server,
    waiting: Waiting,
    hasher: RandomState,
    /// Rates of clients' requests, by hash.
    counts: Vec<Rate>,
    /// Rate of all requests that are served.
    all: Rate,
    /// Time of the last loss of mappings, or of the start.
    epoch: Timestamp,
    /// Mappings lost until then.
    lost: u64,
    /// External addresses in force.
    addresses: Vec<AddressRange>,
    announcer: Announcer,
    /// True if this worker makes the announcements to all hosts.
    speaks: bool,
    /// The part in a pair of gateways.
    sharing: Sharing,
    /// Prefixes of NAT64. They do not change while the gateway runs.
    prefixes: Vec<Prefix64>,
    /// Prefixes of B4s of DS-Lite, which are trusted in their tunnels alone. They do not change,
    /// either.
    b4s: Vec<Prefix6>,
    pub(crate) counters: PcpCounters,
}

impl PcpService {
    /// Creates a service whose epoch begins now.
    pub(crate) fn new(settings: &PcpSettings, config: &Config, now: Timestamp) -> Self {
        let mut service = Self {
            settings: settings.clone(),
            server: Server::new(policy(settings)),
            waiting: Waiting::default(),
            hasher: RandomState::new(),
            counts: vec![Rate::default(); COUNTS],
            all: Rate::default(),
            epoch: now,
            lost: 0,
            addresses: addresses(config),
            announcer: Announcer::default(),
            speaks: true,
            sharing: Sharing::Alone,
            prefixes: Vec::new(),
            b4s: Vec::new(),
            counters: PcpCounters::default(),
        };
        service.begin_announcing(now);
        service
    }

    /// Serves hosts of IPv6, too, for which a NAT64 with these prefixes translates. `b4s`: prefixes
    /// of the B4s of a DS-Lite beside it.
    pub(crate) fn serve_nat64(
        &mut self,
        prefixes: impl IntoIterator<Item = Prefix6>,
        b4s: &[Prefix6],
    ) {
        let prefixes = prefixes.into_iter();
        self.prefixes =
            prefixes.filter_map(|Prefix6 { address, len }| Prefix64::new(address, len)).collect();
        self.b4s = b4s.to_vec();
    }

    /// True if hosts of IPv6 are served, too.
    pub(crate) fn serves_nat64(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Leaves the announcements to another worker.
    pub(crate) fn be_silent(&mut self) {
        self.speaks = false;
        self.announcer.stop();
    }

    /// Puts new settings in force.
    pub(crate) fn renew(&mut self, settings: &PcpSettings, config: &Config, now: Timestamp) {
        self.server = Server::new(policy(settings));
        self.settings = settings.clone();
        //= rfc6887#section-8.5-address
        let addresses = addresses(config);
        if addresses != self.addresses {
            self.addresses = addresses;
            self.begin_epoch(now);
        }
    }

    /// True if requests are answered: the service is enabled and, in a pair, knows the epoch.
    pub(crate) fn is_open(&self) -> bool {
        self.settings.enabled && self.sharing != Sharing::Waits
    }

    /// Becomes the service of one of a pair: it is silent until it knows the epoch.
    pub(crate) fn join_pair(&mut self) {
        self.sharing = Sharing::Waits;
        self.announcer.stop();
    }

    /// Time of the next work.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        match self.waiting.is_empty() || !self.is_open() {
            true => self.announcer.next(),
            false => {
                let request = Timestamp(self.all.next(self.settings.requests_per_second.1));
                Some(self.announcer.next().map_or(request, |next| next.min(request)))
            }
        }
    }

    // ---- the epoch ----

    /// Time of the last loss of mappings, or of the start.
    pub(crate) fn epoch(&self) -> Timestamp {
        self.epoch
    }

    /// External addresses in force.
    pub(crate) fn addresses(&self) -> &[AddressRange] {
        &self.addresses
    }

    /// Continues the epoch of another service that has lost no mapping since. Hosts get no
    /// announcement. If the external addresses differ, the service keeps its own epoch.
    pub(crate) fn go_on(&mut self, epoch: Timestamp, addresses: &[AddressRange], now: Timestamp) {
        if self.addresses == addresses {
            self.epoch = epoch.min(now);
            self.announcer.stop();
        }
    }

    /// Makes the epoch agree with that of the pair. A loss here is a loss of the pair. Hosts learn
    /// a new epoch; one that they know already tells them nothing new.
    //= rfc6887#section-8.5-reset
    pub(crate) fn agree(&mut self, common: &mut CommonEpoch, now: Timestamp) {
        if matches!(self.sharing, Sharing::Shares(former) if former != self.epoch) {
            common.begin(self.epoch);
        }
        let Some(began) = common.began() else { return };
        if self.sharing != Sharing::Shares(began) {
            (self.sharing, self.epoch) = (Sharing::Shares(began), began);
            self.begin_announcing(now);
        }
    }

    /// Seconds since the last loss of mappings.
    fn seconds(&self, now: Timestamp) -> u32 {
        u32::try_from(now.since(self.epoch).as_secs()).unwrap_or(u32::MAX)
    }

    /// Begins a new epoch if mappings were removed and their hosts do not know it.
    //= rfc6887#section-8.5-reset
    //= rfc6886#section-3.6
    pub(crate) fn watch(&mut self, engine: &Engine, now: Timestamp) {
        let lost = engine.explicit_lost();
        if lost != self.lost {
            self.lost = lost;
            self.begin_epoch(now);
            if self.settings.announce {
                self.announcer.begin(now);
            }
        }
    }

    fn begin_epoch(&mut self, now: Timestamp) {
        self.epoch = now;
        self.begin_announcing(now);
    }

    //= rfc6887#section-14.1.3-inform
    //= rfc6887#section-14-either
    fn begin_announcing(&mut self, now: Timestamp) {
        if self.is_open() && self.settings.announce && self.speaks {
            self.announcer.begin(now);
        }
    }

    /// The message of an announcement to hosts of IPv6. They learn the prefixes of NAT64 anew.
    //= rfc7225#section-4.2-announce
    pub(crate) fn message_to_nat64(&self, announcement: Announcement) -> Answer {
        natgate_pcp::announcement(announcement.epoch, &self.prefixes)
    }

    /// The announcement that is due now to all hosts, if any.
    pub(crate) fn announcement(&mut self, now: Timestamp) -> Option<Announcement> {
        if !self.is_open() || !self.announcer.is_due(now) {
            return None;
        }
        self.counters.announced += 1;
        Some(Announcement { epoch: self.seconds(now), nat_pmp: self.settings.nat_pmp })
    }

    // ---- requests ----

    /// Admits a request to the gateway itself.
    pub(crate) fn admit(
        &mut self,
        now: Timestamp,
        mut datagram: Datagram,
        sender: Sender,
    ) -> Admission {
        let Sender { is_known, hardware, prefix, account } = sender;
        let (realm, is_ipv4) = (datagram.realm, datagram.client.0.is_ipv4());
        // Requests with a client's address and other hardware do not use up the client's own rate.
        let client = (realm, is_ipv4, account, is_known);
        let count = self.hasher.hash_one(client) as usize % COUNTS;
        let group = self.hasher.hash_one((realm, hardware, prefix)) as u8;
        let queue = self.waiting.of(is_known);
        //= rfc6887#section-8.2-overload
        let served = queue.has_room(group)
            && self.counts[count].spend(now.0, self.settings.requests_per_second.0);
        if !served {
            self.counters.dropped += 1;
            return Admission::Refused;
        }
        datagram.class = RequestClass { is_known, group };
        self.wait(&datagram);
        Admission::Waiting
    }

    /// Takes a request about a host of this worker from another worker, which has admitted it to a
    /// class.
    pub(crate) fn take_over(&mut self, realm: u16, class: RequestClass, packet: &[u8]) {
        let own = natgate_wire::Ipv4::new_checked(packet).ok().map(|ip| ip.destination());
        let Some(mut datagram) = Datagram::read(realm, packet, own.map(Ipv4Addr::from_bits)) else {
            self.counters.dropped += 1;
            return;
        };
        datagram.is_here = true;
        datagram.class = class;
        self.wait(&datagram);
    }

    fn wait(&mut self, datagram: &Datagram) {
        let RequestClass { is_known, group } = datagram.class;
        let pushed = self.waiting.of(is_known).push(group, datagram);
        self.counters.dropped += u64::from(pushed != Pushed::Waits);
    }

    /// Returns the next request, if the rate permits one more now.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Datagram> {
        if self.waiting.is_empty() || !self.all.spend(now.0, self.settings.requests_per_second.1) {
            return None;
        }
        self.waiting.next()
    }

    /// Reads a request; returns the next step.
    pub(crate) fn read(&mut self, datagram: &Datagram, now: Timestamp) -> Next {
        let address = datagram.client.0;
        let PcpSettings { third_party, third_party_ipv6, .. } = &self.settings;
        //= rfc6887#section-13.1-permitted
        let may_speak_for_others = match address {
            IpAddr::V4(host) if datagram.tunnel.is_some() => {
                let b4 = datagram.tunnel.map(|tunnel| tunnel.b4);
                let is_end = OF_TUNNELS.contains(host.to_bits());
                b4.is_some_and(|b4| third_party_ipv6.iter().any(|prefix| prefix.contains(b4)))
                    || is_end && third_party.iter().any(|one| one.contains(host.to_bits()))
            }
            IpAddr::V4(host) => third_party.iter().any(|prefix| prefix.contains(host.to_bits())),
            // A B4 speaks for hosts behind it, and for no hosts of NAT64.
            IpAddr::V6(host) => {
                let is_among = |all: &[Prefix6]| all.iter().any(|prefix| prefix.contains(host));
                is_among(third_party_ipv6) && !is_among(&self.b4s)
            }
        };
        let prefixes = self.prefixes_for(address);
        let client = Client { address, may_speak_for_others, prefixes };
        match self.server.read(datagram.request(), client, self.seconds(now)) {
            Read::Silence(_) => {
                self.counters.ignored += 1;
                Next::Nothing
            }
            Read::Answer(answer) => {
                self.count(code_of(&answer));
                Next::Answer(answer)
            }
            Read::Ask(request) => Next::Ask(request),
        }
    }

    /// Prefixes of NAT64, if it translates for a client.
    fn prefixes_for(&self, client: IpAddr) -> &[Prefix64] {
        if client.is_ipv6() { &self.prefixes } else { &[] }
    }

    fn count(&mut self, code: ResultCode) {
        self.counters.results[code as usize] += 1;
    }

    /// Carries a request out. The translator has the hosts of NAT64 and DS-Lite.
    //= rfc6888#REQ-9
    pub(crate) fn carry_out(
        &mut self,
        (engine, translator): (&mut Engine, Option<&mut Translator>),
        datagram: &Datagram,
        request: &Request,
        now: Timestamp,
    ) -> Answer {
        let operation = &request.operation;
        let done = match (request.host, datagram.numbered(request.host), translator) {
            (_, Some(host), Some(translator)) => {
                let least = policy(&self.settings).lifetime.0;
                let asked = (operation, least);
                operations::carry_out_for_numbered(engine, translator, now, host, asked)
            }
            (IpAddr::V4(host), None, _) => {
                operations::carry_out(engine, now, (datagram.realm, host), operation)
            }
            _ => Err(Refusal::new(ResultCode::NotAuthorized)),
        };
        let (bytes, epoch) = (datagram.request(), self.seconds(now));
        self.count(done.map_or_else(|refusal| refusal.code, |_| ResultCode::Success));
        match done {
            Ok(granted) => {
                request.grant(bytes, &granted, self.prefixes_for(datagram.client.0), epoch)
            }
            Err(refusal) => request.refuse(bytes, refusal, epoch),
        }
    }
}

/// An announcement to all hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcement {
    epoch: u32,
    nat_pmp: bool,
}

impl Announcement {
    /// Messages of the announcement: by PCP and, if all hosts have the same external address, by
    /// NAT-PMP.
    pub(crate) fn messages(self, external: Option<Ipv4Addr>) -> impl Iterator<Item = Answer> {
        let old = external.filter(|_| self.nat_pmp);
        let old = old.map(|external| nat_pmp_announcement(external, self.epoch));
        std::iter::once(announcement(self.epoch, &[])).chain(old)
    }
}

/// Result code of an answer to a request that was not carried out.
fn code_of(answer: &[u8]) -> ResultCode {
    match (answer[0], answer[3]) {
        (natgate_pcp::VERSION, code) => ResultCode::ALL[usize::from(code)],
        (_, 5) => ResultCode::UnsupportedOpcode,
        _ => ResultCode::NotAuthorized,
    }
}

fn policy(settings: &PcpSettings) -> Policy {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    Policy {
        lifetime: (seconds(settings.lifetime.0), seconds(settings.lifetime.1)),
        nat_pmp: settings.nat_pmp,
        port_set: settings.port_set,
    }
}

fn addresses(config: &Config) -> Vec<AddressRange> {
    let mut all: Vec<AddressRange> =
        config.pools.iter().flat_map(|pool| pool.addresses.iter().copied()).collect();
    all.sort_unstable_by_key(|range| range.first);
    all
}

#[cfg(test)]
mod tests {
    use super::operations::{refusal, tell_address};
    use super::*;
    use natgate_engine::{ExplicitError, Limits, PoolConfig};
    use std::net::Ipv6Addr;

    fn config(last: u8) -> Config {
        let address = |last| Ipv4Addr::new(203, 0, 113, last);
        let pool = PoolConfig {
            addresses: vec![AddressRange { first: address(1), last: address(last) }],
            ..PoolConfig::default()
        };
        let limits = Limits { explicit_mappings: 16, ..Limits::default() };
        Config { pools: vec![pool], limits, ..Config::default() }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * SECOND)
    }

    //= test rfc6887#section-8.5-address
    #[test]
    fn the_epoch_begins_anew_with_other_addresses() {
        let settings = PcpSettings { enabled: true, ..PcpSettings::default() };
        let mut service = PcpService::new(&settings, &config(1), at(10));
        while service.announcer.next().is_some_and(|next| service.announcer.is_due(next)) {}
        service.renew(&settings, &config(1), at(300));
        assert_eq!((service.seconds(at(310)), service.announcer.next()), (300, None));
        service.renew(&settings, &config(2), at(400));
        assert_eq!((service.seconds(at(410)), service.announcer.next()), (10, Some(at(400))));
        service.be_silent();
        assert!(service.announcement(at(411)).is_none());
    }

    #[test]
    fn a_service_that_goes_on_for_another_has_its_epoch() {
        let settings = PcpSettings { enabled: true, ..PcpSettings::default() };
        let mut service = PcpService::new(&settings, &config(1), at(500));
        service.go_on(at(10), &addresses(&config(1)), at(500));
        assert_eq!((service.seconds(at(510)), service.announcer.next()), (500, None));
        let mut service = PcpService::new(&settings, &config(2), at(500));
        service.go_on(at(10), &addresses(&config(1)), at(500));
        assert_eq!((service.seconds(at(510)), service.announcer.next()), (10, Some(at(500))));
    }

    #[test]
    fn a_request_keeps_its_class_when_another_worker_takes_it_over() {
        let settings = PcpSettings { enabled: true, ..PcpSettings::default() };
        let mut service = PcpService::new(&settings, &config(1), at(10));
        let (client, own) = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 1));
        let mut packet = [0; 64];
        let ends = ((client, 4000), (own, natgate_pcp::SERVER_PORT));
        let len = crate::pcp::write_datagram(ends, 64, &[2; 24], &mut packet);
        let forged = RequestClass { is_known: false, group: 7 };
        service.take_over(0, forged, &packet[..len]);
        assert!(service.waiting.of(true).is_empty());
        let datagram = service.next(at(11)).expect("the request waits");
        assert_eq!((datagram.class, datagram.is_here), (forged, true));
    }

    //= test rfc6887#section-13.1-permitted
    #[test]
    fn a_b4_speaks_for_no_host_of_nat64() {
        let ipv6 = |text: &str| -> Ipv6Addr { text.parse().unwrap() };
        let prefix = |text: &str, len| Prefix6 { address: ipv6(text), len };
        let (b4, host, own) = (ipv6("2001:db8:b4::1"), ipv6("2001:db8:5::5"), ipv6("2001:db8::1"));
        let trusted = vec![prefix("2001:db8::", 32)];
        let settings =
            PcpSettings { enabled: true, third_party_ipv6: trusted, ..PcpSettings::default() };
        let code = |b4s: &[Prefix6], client: Ipv6Addr| {
            let mut service = PcpService::new(&settings, &config(1), at(10));
            service.serve_nat64([prefix("64:ff9b::", 96)], b4s);
            let lifetime = [0, 0, 0, 120];
            let mut request = [&[2, 1, 0, 0][..], &lifetime, &client.octets(), &[9; 12]].concat();
            request.extend([17, 0, 0, 0, 0x1b, 0x58, 0, 0]);
            request.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
            request.extend([1, 0, 0, 16]);
            request.extend(ipv6("2001:db8:7::7").octets());
            let mut packet = [0; 200];
            let ends = ((client, 40_000), (own, natgate_pcp::SERVER_PORT));
            let len = crate::pcp::write_datagram_ipv6(ends, 64, &request, &mut packet);
            let datagram = Datagram::read_ipv6(&packet[..len], |address| address == own).unwrap();
            match service.read(&datagram, at(11)) {
                Next::Answer(answer) => Some(answer[3]),
                Next::Ask(_) => None,
                Next::Nothing => panic!("the request is right"),
            }
        };
        let b4s = [prefix("2001:db8:b4::", 48)];
        assert_eq!((code(&[], b4), code(&[], host), code(&b4s, host)), (None, None, None));
        assert_eq!(code(&b4s, b4), Some(5), "UNSUPP_OPTION");
    }

    #[test]
    fn requests_come_evenly() {
        let mut rate = Rate::default();
        let permitted = (0..100).filter(|_| rate.spend(SECOND, 10)).count();
        assert_eq!(permitted, 10);
        assert!(!rate.spend(SECOND + SECOND / 20, 10) && rate.spend(SECOND + SECOND / 10, 10));
    }

    #[test]
    fn every_error_has_a_code() {
        let codes = [
            (ExplicitError::NotSubscriber, ResultCode::NotAuthorized),
            (ExplicitError::NotExplicit, ResultCode::NotAuthorized),
            (ExplicitError::Protocol, ResultCode::UnsupportedProtocol),
            (ExplicitError::Quota, ResultCode::UserExceededQuota),
            (ExplicitError::Full, ResultCode::NoResources),
            (ExplicitError::External, ResultCode::CannotProvideExternal),
            (ExplicitError::Filters, ResultCode::ExcessiveRemotePeers),
            (ExplicitError::Remote, ResultCode::MalformedRequest),
            (ExplicitError::Others, ResultCode::NetworkFailure),
        ];
        for (error, code) in codes {
            assert_eq!(refusal(error), Refusal::new(code));
        }
        let nonce = refusal(ExplicitError::Nonce(Duration::from_millis(9900)));
        assert_eq!(nonce, Refusal { code: ResultCode::NotAuthorized, lifetime: 9 });
    }

    #[test]
    fn who_has_no_address_yet_gets_one_for_a_while() {
        let mut engine = Engine::new(&config(4), [1; 32], at(0)).unwrap();
        let host = (0, Ipv4Addr::new(10, 0, 0, 5));
        let first = tell_address(&mut engine, at(1), host).unwrap();
        assert_eq!(engine.mappings().count(), 1);
        let again = tell_address(&mut engine, at(2), host).unwrap();
        assert_eq!((again.external, engine.mappings().count()), (first.external, 1));
        let stranger = tell_address(&mut engine, at(2), (0, Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(stranger.unwrap_err().code, ResultCode::NotAuthorized);
        // If all hosts share one external address, no mapping is needed to learn it.
        let mut engine = Engine::new(&config(1), [1; 32], at(0)).unwrap();
        tell_address(&mut engine, at(1), host).unwrap();
        assert_eq!(engine.mappings().count(), 0);
    }
}
