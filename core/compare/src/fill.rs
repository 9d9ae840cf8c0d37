//! A large table at the start of a comparison. The model searches all entries for every packet, so
//! making the table packet by packet would take days. Therefore the engine makes the table, and the
//! model takes it over.

use crate::{Divergence, Pair};
use natgate_engine::{Change, Endpoint, Packet, SessionId, Side, Timestamp, Verdict};
use std::collections::BTreeSet;

/// A UDP datagram that begins a session, and its endpoints.
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
    /// Makes a mapping for each datagram, all at once. The datagrams have different internal
    /// endpoints, of subscribers without other mappings. The mapping behavior must be
    /// endpoint-independent, and no subscriber may be near a limit.
    ///
    /// # Errors
    /// When the engine does not make a mapping, or gives two the same external endpoint.
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
