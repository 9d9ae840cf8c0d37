//! Requests for mappings that wait at the gateway: some are served each turn, between batches.

use super::Worker;
use super::stages::{Stages, transmitters};
use crate::link::Link;
use crate::pcp::{Datagram, Next, Sender, write_datagram};
use crate::router::{Onward, Router};
use crate::team::Way;
use natgate_engine::{Cursor, Engine, Filter, Prefix, Side, SubscriberInfo, Timestamp};
use natgate_io::{Frame, HEADROOM};
use natgate_pcp::{ALL_HOSTS, CLIENT_PORT, SERVER_PORT};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN};
use std::net::Ipv4Addr;

/// Requests that are served in one turn. One request may ask for a whole port set; packets wait for
/// it.
const BUDGET: usize = 2;
/// TTL of an announcement to all hosts of a link.
const ONE_LINK: u8 = 1;

impl Worker {
    /// Serves some requests, and sends announcements that are due.
    pub(super) fn serve(&mut self, now: Timestamp) {
        if !self.stages.pcp.is_open() {
            return;
        }
        let Self { stages, devices, scratch, .. } = self;
        stages.pcp.watch(&stages.engine, now);
        for _ in 0..BUDGET {
            let Some(datagram) = stages.pcp.next(now) else { break };
            let len = stages.answer(now, &datagram, &mut scratch[HEADROOM..]);
            if len > 0 {
                let link = Link::inside(datagram.realm);
                stages.send_own(now, link, (scratch, len), &mut transmitters(devices));
            }
        }
        stages.announce(now, scratch);
    }
}

impl Stages {
    /// Serves a request. Writes the packet with the answer to the front of a buffer; returns its
    /// length, 0 if there is none.
    fn answer(&mut self, now: Timestamp, datagram: &Datagram, into: &mut [u8]) -> usize {
        let answer = match self.pcp.read(datagram, now) {
            Next::Nothing => return 0,
            Next::Answer(answer) => answer,
            Next::Ask(request) => {
                if request.is_third_party
                    && !datagram.is_here
                    && let Some(team) = &mut self.team
                {
                    let len = datagram.packet(into);
                    let host = (datagram.realm, request.host);
                    let (class, packet) = (datagram.class, &into[..len]);
                    if team.dispatch_request(&self.engine, host, class, packet) != Way::Here {
                        return 0;
                    }
                }
                self.pcp.carry_out(&mut self.engine, datagram, &request, now)
            }
        };
        datagram.reply(&answer, into)
    }

    /// Announces to all hosts inside that mappings may have been lost.
    //= rfc6887#section-14.1.3-inform
    fn announce(&mut self, now: Timestamp, scratch: &mut [u8]) {
        let Some(announcement) = self.pcp.announcement(now) else { return };
        let further: Vec<u16> = self.cables.further().collect();
        for realm in std::iter::once(0).chain(further) {
            let link = Link::new(Side::Inside, realm);
            //= rfc6887#section-14.1.3-source
            let ends = ((self.router.address(link), SERVER_PORT), (ALL_HOSTS, CLIENT_PORT));
            for message in announcement.messages(self.engine.sole_address(realm)) {
                let len = write_datagram(ends, ONE_LINK, &message, scratch);
                if self.captures.is_on() {
                    self.captures.leaving(now, Side::Inside, &scratch[..len]);
                }
                self.router.send_to_all(link, &scratch[..len]);
            }
        }
    }
}

/// Facts about the source address of a request from a realm; `hardware`: see [`Sender::hardware`].
pub(super) fn sender(
    (router, engine): (&Router, &Engine),
    realm: u16,
    hardware: Option<Mac>,
    client: Ipv4Addr,
) -> Sender {
    let link = Link::inside(realm);
    let (hop, expected) = match router.onward(link, client, 0, false) {
        Onward::Hop { address, mac, .. } => (Some(address), mac),
        Onward::NoRoute | Onward::Everybody => (None, None),
    };
    let agrees = expected.is_some() && (hardware.is_none() || hardware == expected);
    let is_neighbor = hop == Some(client);
    let is_known = agrees && (is_neighbor || is_subscriber(engine, realm, client));
    let is_routed = agrees && !is_neighbor;
    let prefix = (is_routed || hardware.is_none()).then(|| client.to_bits() >> 8);
    Sender { is_known, hardware, prefix }
}

/// The source of the Ethernet frame to `own` that a packet came in, or `None` if the packet came
/// without a frame. A packet that another worker has handed over has a header with the source.
pub(super) fn source(frame: &mut Frame<'_>, own: Mac) -> Option<Mac> {
    let (start, _) = frame.range();
    [ETHERNET_LEN, ETHERNET_LEN + VLAN_LEN].into_iter().find_map(|len| {
        let header = frame.buffer_mut().get(start.checked_sub(len)?..start)?;
        let (destination, source, _) = arp::read_ethernet(header)?;
        (destination == own).then_some(source)
    })
}

/// True if a host has mappings.
fn is_subscriber(engine: &Engine, realm: u16, host: Ipv4Addr) -> bool {
    let subscriber = Some(Prefix::new(host, 32));
    let filter = Filter { realm: Some(realm), subscriber, ..Filter::default() };
    let mut found: Vec<SubscriberInfo> = Vec::with_capacity(1);
    engine.scan_subscribers(&mut Cursor::default(), 1, &filter, &mut found);
    !found.is_empty()
}
