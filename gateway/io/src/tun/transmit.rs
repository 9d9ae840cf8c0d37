//! The sending half: one write a packet. ARP and neighbor solicitations are answered here; other
//! frames without IP are discarded.

use super::{ANSWERS, Answer, Answers, STATION, socket};
use crate::{BATCH, Frame, Lost};
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::nd::{self, Advertisement, Message};
use natgate_wire::{Ipv6, protocol};
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames counted on the way out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) full: u64,
    pub(super) refused: u64,
}

/// Sender of a device that exists.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) file: Arc<OwnedFd>,
    pub(super) mtu: usize,
}

/// Fate of a frame.
enum Fate {
    Sent,
    Full,
    Refused,
}

impl Sender {
    pub(super) fn transmit(
        &self,
        frames: &[Frame<'_>],
        answers: &Answers,
        counts: &mut Counts,
    ) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut lost = Lost::NONE;
        for (index, frame) in frames.iter().enumerate() {
            let counter = match self.send(frame.bytes(), answers) {
                Fate::Sent => {
                    counts.sent += 1;
                    continue;
                }
                Fate::Full => &mut counts.full,
                Fate::Refused => &mut counts.refused,
            };
            *counter += 1;
            lost.mark(index);
        }
        lost
    }

    fn send(&self, frame: &[u8], answers: &Answers) -> Fate {
        let Some((_, asker, kind)) = arp::read_ethernet(frame) else { return Fate::Refused };
        let packet = &frame[ETHERNET_LEN..];
        let answer = |answer: Option<Answer>| {
            let mut waiting = answers.waiting();
            if let Some(answer) = answer
                && waiting.len() < ANSWERS
            {
                waiting.push(answer);
            }
            Fate::Sent
        };
        match kind {
            ethertype::ARP => {
                let asked = Arp::new_checked(packet).map(|arp| arp.repr());
                answer(asked.and_then(answer_to_request))
            }
            ethertype::IPV6 if let Some((target, source)) = solicitation(packet) => {
                answer(answer_to_solicitation(asker, target, source))
            }
            ethertype::IPV4 | ethertype::IPV6 if packet.len() <= self.mtu => {
                let Err(error) = socket::write(&self.file, packet) else { return Fate::Sent };
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Fate::Full,
                    _ => Fate::Refused,
                }
            }
            _ => Fate::Refused,
        }
    }
}

/// Target and source of a neighbor solicitation; `None` for other packets.
fn solicitation(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let header = Ipv6::new_checked(packet).ok()?;
    if header.next_header() != protocol::ICMPV6 || header.hop_limit() != nd::HOP_LIMIT {
        return None;
    }
    match nd::read(packet) {
        Ok(Message::NeighborSolicitation { target, .. }) => {
            Some((target, Ipv6Addr::from_bits(header.source())))
        }
        _ => None,
    }
}

/// Answer of the station, which has every address. The question whether another host has the
/// gateway's own address (RFC 4862) has no source and gets no answer.
fn answer_to_solicitation(asker: Mac, target: Ipv6Addr, source: Ipv6Addr) -> Option<Answer> {
    if source.is_unspecified() || source == target {
        return None;
    }
    let advertisement =
        Advertisement { target, mac: Some(STATION), router: true, solicited: true, replaces: true };
    let mut header = [0; ETHERNET_LEN];
    arp::write_ethernet(&mut header, asker, STATION, ethertype::IPV6);
    Some(header.into_iter().chain(advertisement.packet(target, source)).collect())
}

/// Answer of the station: it has every address that the gateway asks for. A probe or an
/// announcement of the gateway's own address (RFC 5227) gets none.
fn answer_to_request(asked: Repr) -> Option<Answer> {
    let own = asked.sender.is_unspecified() || asked.sender == asked.target;
    if asked.operation != Operation::Request || own {
        return None;
    }
    let answer = Repr {
        operation: Operation::Reply,
        sender_mac: STATION,
        sender: asked.target,
        target_mac: asked.sender_mac,
        target: asked.sender,
    };
    Some(answer.frame(asked.sender_mac).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::GATEWAY;
    use std::net::Ipv4Addr;

    fn asked(sender: [u8; 4], target: [u8; 4]) -> Repr {
        Repr {
            operation: Operation::Request,
            sender_mac: GATEWAY,
            sender: sender.into(),
            target_mac: Mac::default(),
            target: target.into(),
        }
    }

    #[test]
    fn the_station_has_every_address_but_the_askers() {
        let reply = answer_to_request(asked([10, 0, 0, 1], [10, 9, 8, 7])).expect("it answers");
        assert_eq!(arp::read_ethernet(&reply), Some((GATEWAY, STATION, ethertype::ARP)));
        let reply = Arp::new_checked(&reply[ETHERNET_LEN..]).expect("it is ARP").repr();
        assert_eq!((reply.operation, reply.sender_mac), (Operation::Reply, STATION));
        assert_eq!(reply.sender, Ipv4Addr::new(10, 9, 8, 7));
        assert_eq!((reply.target_mac, reply.target), (GATEWAY, Ipv4Addr::new(10, 0, 0, 1)));
        assert!(answer_to_request(asked([10, 0, 0, 1], [10, 0, 0, 1])).is_none());
        assert!(answer_to_request(asked([0; 4], [10, 0, 0, 1])).is_none());
        let reply = Repr { operation: Operation::Reply, ..asked([10, 0, 0, 1], [10, 9, 8, 7]) };
        assert!(answer_to_request(reply).is_none());
    }

    #[test]
    fn the_station_has_every_address_of_ipv6_too() {
        let [own, other] = ["fe80::1", "2001:db8::7"].map(|text| text.parse().expect("an address"));
        let asked = nd::Solicitation { target: other, mac: GATEWAY };
        let packet = asked.packet(Some(own), nd::solicited_node(other));
        assert_eq!(solicitation(packet.bytes()), Some((other, own)));
        let reply = answer_to_solicitation(GATEWAY, other, own).expect("it answers");
        assert_eq!(arp::read_ethernet(&reply), Some((GATEWAY, STATION, ethertype::IPV6)));
        let Ok(Message::NeighborAdvertisement(told)) = nd::read(&reply[ETHERNET_LEN..]) else {
            panic!("no advertisement: {reply:?}");
        };
        assert_eq!((told.target, told.mac, told.solicited), (other, Some(STATION), true));
        let packet = asked.packet(None, nd::solicited_node(other));
        let (target, source) = solicitation(packet.bytes()).expect("a solicitation");
        assert_eq!(answer_to_solicitation(GATEWAY, target, source), None, "a probe");
        assert_eq!(solicitation(&reply[ETHERNET_LEN..]), None, "an answer is none");
    }
}
