//! The sending half: one write a packet. ARP is answered here; other frames without IP are
//! discarded.

use super::{ANSWERS, Answers, STATION, socket};
use crate::{BATCH, Frame, Lost};
use natgate_wire::arp::{self, Arp, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
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
        let Some((_, _, kind)) = arp::read_ethernet(frame) else { return Fate::Refused };
        let packet = &frame[ETHERNET_LEN..];
        match kind {
            ethertype::ARP => {
                if let Some(answer) = Arp::new_checked(packet).and_then(|arp| answer(arp.repr())) {
                    let mut waiting = answers.waiting();
                    if waiting.len() < ANSWERS {
                        waiting.push(answer);
                    }
                }
                Fate::Sent
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

/// Answer of the station: it has every address that the gateway asks for. A probe or an
/// announcement of the gateway's own address (RFC 5227) gets none.
fn answer(asked: Repr) -> Option<[u8; arp::FRAME_LEN]> {
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
    Some(answer.frame(asked.sender_mac))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::GATEWAY;
    use natgate_wire::arp::Mac;
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
        let reply = answer(asked([10, 0, 0, 1], [10, 9, 8, 7])).expect("it answers");
        assert_eq!(arp::read_ethernet(&reply), Some((GATEWAY, STATION, ethertype::ARP)));
        let reply = Arp::new_checked(&reply[ETHERNET_LEN..]).expect("it is ARP").repr();
        assert_eq!((reply.operation, reply.sender_mac), (Operation::Reply, STATION));
        assert_eq!(reply.sender, Ipv4Addr::new(10, 9, 8, 7));
        assert_eq!((reply.target_mac, reply.target), (GATEWAY, Ipv4Addr::new(10, 0, 0, 1)));
        assert!(answer(asked([10, 0, 0, 1], [10, 0, 0, 1])).is_none());
        assert!(answer(asked([0; 4], [10, 0, 0, 1])).is_none());
        let reply = Repr { operation: Operation::Reply, ..asked([10, 0, 0, 1], [10, 9, 8, 7]) };
        assert!(answer(reply).is_none());
    }
}
