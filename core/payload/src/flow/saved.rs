//! The bytes of a flow for another process or node.

use super::Flow;
use crate::Side;
use crate::expectation::Endpoints;
use crate::kind::Kind;
use crate::protocols::Alg;
use crate::reason::Reason;
use crate::saved::Saved;
use crate::stream::direction::Direction;
use crate::stream::work::Pool;
use alloc::vec::Vec;
use core::net::{SocketAddr, SocketAddrV4};
use natgate_engine::fingerprint;

/// First byte of a saved flow, which no other record begins with; and of one with another clock.
const FORMAT: u8 = 0x83;
const SHIFTED: u8 = 0x84;

impl Flow {
    /// The bytes of the flow for another process. `None`: `mark` has no mark for its realm, whose
    /// number belongs to this process.
    pub(crate) fn save(&self, pool: &Pool, mark: impl Fn(u16) -> Option<u16>) -> Option<Vec<u8>> {
        let Endpoints { internal, external, remote, remote_inside, realm, number } =
            self.endpoints();
        let mark = mark(realm)?;
        let mut to = Vec::new();
        let format = if self.shift == 0 { FORMAT } else { SHIFTED };
        [format, self.alg.kind() as u8, self.protocol].save(&mut to);
        mark.save(&mut to);
        if self.shift != 0 {
            self.shift.save(&mut to);
        }
        ((internal, remote_inside), (external, remote)).save(&mut to);
        number.save(&mut to);
        [self.opener == Side::Outside, self.is_closed, self.is_answered].save(&mut to);
        self.left.map(|reason| reason as u8).save(&mut to);
        self.expires.save(&mut to);
        self.budget.save(&mut to);
        self.alg.save(&mut to);
        self.directions.iter().for_each(|direction| direction.save(pool, &mut to));
        Some(to)
    }

    /// Reads what [`Flow::save`] wrote. `realm`: the realm of a mark. `None`: the bytes mean
    /// nothing, the realm is not there, or no work is free.
    pub(crate) fn restore(
        pool: &mut Pool,
        mut from: &[u8],
        realm: impl Fn(u16) -> Option<u16>,
    ) -> Option<Self> {
        let from = &mut from;
        let [format, kind, protocol] = Saved::restore(from)?;
        let realm = realm(Saved::restore(from)?)?;
        let shift = match format {
            FORMAT => 0,
            SHIFTED => Saved::restore(from)?,
            _ => return None,
        };
        let is_stream = protocol == natgate_wire::protocol::TCP;
        (is_stream || protocol == natgate_wire::protocol::UDP).then_some(())?;
        let kind = Kind::ALL.into_iter().find(|one| *one as u8 == kind)?;
        let (internal, remote_inside) = <(SocketAddr, SocketAddr)>::restore(from)?;
        let (external, remote) = <(SocketAddrV4, SocketAddrV4)>::restore(from)?;
        let number = Saved::restore(from)?;
        (internal.is_ipv6() == remote_inside.is_ipv6()).then_some(())?;
        let [is_from_outside, is_closed, is_answered] = Saved::restore(from)?;
        let left = match <Option<u8>>::restore(from)? {
            Some(left) => Some(Reason::ALL.into_iter().find(|one| *one as u8 == left)?),
            None => None,
        };
        let (expires, budget) = Saved::restore(from)?;
        let alg = Alg::restore(kind, from)?;
        let first = Direction::restore(pool, from)?;
        let endpoints = Endpoints { internal, external, remote, remote_inside, realm, number };
        let mut flow = Self {
            endpoints: endpoints.into(),
            alg,
            directions: [first, Direction::new()],
            budget,
            expires,
            shift,
            protocol,
            opener: if is_from_outside { Side::Outside } else { Side::Inside },
            left,
            is_closed,
            is_answered,
        };
        let second = Direction::restore(pool, from);
        flow.directions[1] = second.unwrap_or(Direction::new());
        let has_streams = flow.directions.iter().any(|direction| direction.is_started);
        // Bytes that are not read any more pass without those that are held.
        let can_go_on =
            left.is_some() || flow.directions.iter().all(|direction| direction.can_go_on(pool));
        if second.is_none() || !from.is_empty() || has_streams && !is_stream || !can_go_on {
            flow.close(pool);
            return None;
        }
        Some(flow)
    }

    /// Fingerprint of what the next bytes need, without the realm and its numbers, deadlines,
    /// windows, timestamps and acknowledgments.
    pub(crate) fn print(&self, pool: &Pool) -> u64 {
        let (mut to, ends) = (Vec::new(), self.endpoints());
        ((ends.internal, ends.remote_inside), (ends.external, ends.remote)).save(&mut to);
        [self.alg.kind() as u8, self.protocol, u8::from(self.is_closed)].save(&mut to);
        (self.opener == Side::Outside).save(&mut to);
        self.left.map(|reason| reason as u8).save(&mut to);
        self.alg.save(&mut to);
        let is_read = self.left.is_none();
        self.directions.iter().for_each(|direction| direction.essence(pool, is_read, &mut to));
        fingerprint(&to)
    }

    /// The flow goes on at another node, with these endpoints and this difference of the clocks.
    pub(crate) fn settle_in(&mut self, endpoints: Endpoints, shift: u32) {
        (self.endpoints, self.shift) = (endpoints.into(), shift);
    }
}
