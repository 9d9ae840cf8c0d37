//! A large table to begin with. Making it packet by packet in the model, which searches all that it
//! has for every packet, would take days: the engine makes it, and the model takes it over.

use crate::{Divergence, Pair};
use natgate_engine::{Change, Endpoint, Packet, SessionId, Side, Timestamp, Verdict};
use std::collections::BTreeSet;

/// A UDP datagram that begins a session, and its ends.
#[derive(Clone, Debug)]
pub struct First {
    /// The sender.
    pub internal: Endpoint,
    /// The receiver.
    pub remote: Endpoint,
    /// The datagram.
    pub bytes: Vec<u8>,
}

impl Pair {
    /// Makes a mapping for each datagram, all of different internal endpoints and all at once, of
    /// subscribers that have no other. The mapping behavior must be endpoint-independent, and
    /// nobody may be near a limit.
    ///
    /// # Errors
    /// When the engine does not make one, or gives two the same external endpoint.
    pub fn fill(
        &mut self,
        now: Timestamp,
        firsts: impl Iterator<Item = First>,
    ) -> Result<(), Divergence> {
        self.advance(now)?;
        let mut taken = BTreeSet::new();
        for mut first in firsts {
            let len = first.bytes.len();
            let mut packet = [Packet::new(&mut first.bytes, 0)];
            let mut verdict = [Verdict::Held];
            self.engine.process(now, Side::Inside, &mut packet, &mut verdict);
            let event = self.engine.poll_event().map(|event| event.change);
            let Some(Change::MappingCreated(made)) = event else {
                return Err(format!("{:?} got {verdict:?} and {event:?}", first.internal));
            };
            if self.engine.config().session_events {
                let (mapping, remote) = (made, first.remote);
                let session = SessionId { mapping, remote, remote_inside: remote };
                let event = self.engine.poll_event().map(|event| event.change);
                if event != Some(Change::SessionCreated(session)) {
                    return Err(format!("{session:?} is told as {event:?}"));
                }
            }
            let external = made.external;
            if !taken.insert(external) {
                return Err(format!("{external:?} was given out twice"));
            }
            self.model.adopt(now, (first.internal, first.remote), external, len);
        }
        Ok(())
    }
}
