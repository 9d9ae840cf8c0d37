//! Requests of hosts for mappings and sessions, and unanswered subscribers that give way, in engine
//! and model alike.

use crate::changes::is_taken;
use crate::same::{legal, same};
use crate::{Divergence, Pair};
use natgate_engine::{ExplicitError, MapRequest, PeerRequest, Timestamp};
use natgate_model::Effects;

impl Pair {
    /// Requests a mapping for all remote endpoints from both. The answers must be equal.
    ///
    /// # Errors
    /// When the results differ.
    pub fn map(&mut self, now: Timestamp, request: &MapRequest<'_>) -> Result<(), Divergence> {
        self.reclaim(now)?;
        let got = self.engine.map(now, request);
        let choice = got.ok().map(|explicit| explicit.external);
        let expected = self.model.map(now, request, choice);
        same("what was asked for", &got, &expected)?;
        if got == Err(ExplicitError::External) && !request.wanted.strict {
            return Err("a mere wish was refused".into());
        }
        self.asked()
    }

    /// Gives up a requested mapping in both.
    ///
    /// # Errors
    /// When the results differ.
    pub fn unmap(&mut self, now: Timestamp, of: &MapRequest<'_>) -> Result<(), Divergence> {
        let MapRequest { protocol, realm, internal, nonce, .. } = *of;
        let got = self.engine.unmap(now, protocol, realm, internal, nonce);
        let expected = self.model.unmap(now, protocol, realm, internal, nonce);
        same("what was given back", &got, &expected)?;
        self.asked()
    }

    /// Requests a session from both.
    ///
    /// # Errors
    /// When the results differ.
    pub fn peer(&mut self, now: Timestamp, request: &PeerRequest) -> Result<(), Divergence> {
        self.reclaim(now)?;
        let got = self.engine.peer(now, request);
        let choice = got.ok().map(|explicit| explicit.external);
        let expected = self.model.peer(now, request, choice);
        same("the session that was asked for", &got, &expected)?;
        self.asked()
    }

    /// Makes unanswered subscribers of both give way completely, as a batch and a request do first.
    /// The engine's explanation of a packet is then correct for the packet.
    pub(crate) fn reclaim(&mut self, now: Timestamp) -> Result<(), Divergence> {
        let mut made = Effects::default();
        while self.engine.reclaim(now) {
            self.drain(&mut made)?;
        }
        self.drain(&mut made)?;
        let expected = self.model.reclaim(now);
        same("events of what gives way", &made.events, &expected.events)?;
        same("counters", self.engine.counters(), self.model.counters())
    }

    /// Compares the other effects of a request.
    fn asked(&mut self) -> Result<(), Divergence> {
        let mut made = Effects::default();
        self.drain(&mut made)?;
        // A port that is given back may rest.
        let engine = &self.engine;
        self.model.limit_held_now(Some(&|protocol, end| is_taken(engine, protocol, end)));
        let expected = self.model.take_effects();
        legal("what the engine chose", &expected)?;
        same("events of a request", &made.events, &expected.events)?;
        same("packets of a request", &made.transmits, &expected.transmits)
    }
}
