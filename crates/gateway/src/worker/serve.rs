//! Requests for mappings that wait at the gateway: some are served each turn, between batches.

use super::Worker;
use super::stages::{Stages, transmitters};
use crate::links::Link;
use crate::pcp::{Letter, Next, write_datagram};
use crate::team::Way;
use natgate_engine::{Side, Timestamp};
use natgate_io::HEADROOM;
use natgate_pcp::{ALL_HOSTS, CLIENT_PORT, SERVER_PORT};

/// Requests that are served in one turn. One asks for up to a port set; packets wait for them.
const BUDGET: usize = 2;
/// What is said to all hosts of a link stays there.
const ONE_LINK: u8 = 1;

impl Worker {
    /// Serves some requests, and tells hosts what they should know.
    pub(super) fn serve(&mut self, now: Timestamp) {
        if !self.stages.desk.is_open() {
            return;
        }
        let Self { stages, devices, scratch, .. } = self;
        stages.desk.watch(&stages.engine, now);
        for _ in 0..BUDGET {
            let Some(letter) = stages.desk.next() else { break };
            let len = stages.answer(now, &letter, &mut scratch[HEADROOM..]);
            if len > 0 {
                let link = Link::inside(letter.realm);
                stages.send_own(now, link, (scratch, len), &mut transmitters(devices));
            }
        }
        stages.announce(now, scratch);
    }
}

impl Stages {
    /// Deals with a request; writes the packet that answers it to the front of a buffer and returns its
    /// length, 0 if there is none.
    fn answer(&mut self, now: Timestamp, letter: &Letter, into: &mut [u8]) -> usize {
        let answer = match self.desk.read(letter, now) {
            Next::Nothing => return 0,
            Next::Answer(answer) => answer,
            Next::Ask(request) => {
                if request.is_third_party
                    && !letter.is_here
                    && let Some(team) = &mut self.team
                {
                    let len = letter.packet(into);
                    let host = (letter.realm, request.host);
                    if team.dispatch_request(&self.engine, host, &into[..len]) != Way::Here {
                        return 0;
                    }
                }
                self.desk.carry_out(&mut self.engine, letter, &request, now)
            }
        };
        letter.reply(&answer, into)
    }

    /// Tells all hosts inside that mappings may have been lost.
    //= rfc6887#section-14.1.3-inform
    fn announce(&mut self, now: Timestamp, scratch: &mut [u8]) {
        let Some(announcement) = self.desk.announcement(now) else { return };
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
