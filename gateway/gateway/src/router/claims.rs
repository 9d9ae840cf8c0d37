//! Claims of ARP messages about neighbours, and the decision which claim to believe.
//!
//! ARP proves nothing: any station of a link can claim any address. So a message alone changes no
//! known hardware address. The station that has the address is asked first, by unicast, twice
//! within [`RETRY`]. If it answers, it keeps the address, and the claim is reported as a conflict.
//! If it is silent, a broadcast follows, and the first answer counts: so an address moves to other
//! hardware, as in VRRP. A neighbour that has only been learnt has proved nothing either: then the
//! broadcast is sent at once.
//!
//! Claims cost the link little: claims to one neighbour are checked once a second at most, later
//! ones wait, and all together no more often than [`MOST_VERIFIED_PER_SECOND`].

use super::neighbors::{Action, NeighborState, Neighbors, RETRY, TRIES, WaitingPacket};
use natgate_engine::Timestamp;
use natgate_wire::arp::Mac;
use std::net::Ipv4Addr;

/// Most claims that are checked in a second, a link. Next hops of routes do not count.
pub const MOST_VERIFIED_PER_SECOND: u32 = 500;

/// Content of a message about its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assertion {
    /// Address of the sender.
    pub(super) address: Ipv4Addr,
    /// Hardware address of the sender.
    pub(super) mac: Mac,
    /// True if the message is a reply to the gateway; false for requests and broadcasts.
    pub(super) is_reply: bool,
    /// True if the message may teach a neighbour.
    pub(super) teaches: bool,
    /// True if the message came to another worker, which checks it and reports it.
    pub(super) overheard: bool,
    /// True if the address is a route's next hop.
    pub(super) is_next_hop: bool,
}

/// A claim of other hardware to a neighbour's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    mac: Mac,
}

/// Result of a message.
#[derive(Debug, Default)]
pub(super) struct Reaction {
    /// Packets that waited for the neighbour.
    pub(super) released: Vec<WaitingPacket>,
    /// True if the neighbour could have been learnt, and there was no room.
    pub(super) refused: bool,
}

impl Neighbors {
    /// Processes a message about its sender.
    pub(super) fn told(
        &mut self,
        now: Timestamp,
        said: &Assertion,
        act: &mut dyn FnMut(Action),
    ) -> Reaction {
        let Some(neighbor) = self.table.get(&said.address) else {
            let refused = said.teaches && !self.learn(now, said.address, said.mac, act);
            return Reaction { refused, ..Reaction::default() };
        };
        let (state, tries, claim) = (neighbor.state, neighbor.tries, neighbor.claim);
        let released = match neighbor.mac {
            // An unrequested answer is not believed.
            Some(mac) if mac == said.mac && said.is_reply && tries == 0 => Vec::new(),
            Some(mac) if mac == said.mac && state == NeighborState::Static => Vec::new(),
            Some(mac) if mac == said.mac => {
                if let Some(claim) = claim.filter(|_| !said.overheard) {
                    let (address, claimed) = (said.address, claim.mac);
                    act(Action::Conflict { address, mac, claimed });
                }
                self.confirm(now, said)
            }
            Some(mac) if state == NeighborState::Static => {
                if !said.overheard {
                    let (address, claimed) = (said.address, said.mac);
                    act(Action::Conflict { address, mac, claimed });
                }
                Vec::new()
            }
            // The former owner has not answered, and the broadcast has been sent.
            Some(from) if tries >= TRIES => {
                if !said.overheard {
                    act(Action::Changed { address: said.address, from, to: said.mac });
                }
                self.confirm(now, said)
            }
            Some(_) => {
                self.contest(now, said, act);
                Vec::new()
            }
            None => self.confirm(now, said),
        };
        Reaction { released, refused: false }
    }

    /// Checks the claim of another hardware address to a neighbour's address.
    fn contest(&mut self, now: Timestamp, said: &Assertion, act: &mut dyn FnMut(Action)) {
        let Some(neighbor) = self.table.get_mut(&said.address) else { return };
        if neighbor.claim.is_some() {
            return;
        }
        neighbor.claim = Some(Claim { mac: said.mac });
        // The former owner is being asked already.
        if neighbor.tries > 0 {
            return;
        }
        if now < neighbor.quiet_until {
            let then = neighbor.quiet_until;
            return self.set_deadline(said.address, then);
        }
        if !said.is_next_hop && !self.verifications.take(now, MOST_VERIFIED_PER_SECOND) {
            neighbor.claim = None;
            return;
        }
        neighbor.quiet_until = now.plus(RETRY);
        if neighbor.state == NeighborState::Learnt {
            neighbor.tries = TRIES - 1;
        }
        if said.overheard {
            // Another worker asks. This one asks if no answer has come after that.
            self.ask_again(now, said.address, &mut |_| {});
        } else {
            self.ask_again(now, said.address, act);
        }
    }
}
