//! The CLAT (specification, 19.21; RFC 6877): IPv4 inside, IPv6 outside.

use super::headers::{to_ipv4, to_ipv6};
use super::siit::{embed, extract, is_refused};
use super::{Families, Passed};
use crate::bytes::is_martian;
use natgate_engine::{Direction, DropReason, Side};
use natgate_ipv6::convert::{Addresses, Hops, Place, Refusal};
use natgate_ipv6::{ClatSettings, NonGlobal};
use std::net::Ipv4Addr;

struct Customer<'f> {
    settings: &'f ClatSettings,
    error_source: u32,
}

impl Addresses for Customer<'_> {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        let (outer, inner) = (self.settings.prefix, self.settings.source);
        let untranslatable = DropReason::Untranslatable;
        if place == Place::Quoted {
            // The quoted packet went the other way.
            let source = extract(inner, source).ok_or(untranslatable)?;
            return Ok((source, extract(outer, destination).ok_or(untranslatable)?));
        }
        let is_refused = |address| is_refused(outer, address, NonGlobal::Refuse);
        let source = match (place, extract(outer, source)) {
            (Place::Error, source) => {
                let source = source.filter(|source| !is_martian(*source) && !is_refused(*source));
                source.unwrap_or(self.error_source)
            }
            (_, source) => source.ok_or(untranslatable)?,
        };
        let destination = extract(inner, destination).ok_or(untranslatable)?;
        if is_martian(source) {
            return Err(DropReason::MartianSource.into());
        }
        if is_martian(destination) {
            return Err(DropReason::MartianDestination.into());
        }
        if place == Place::Packet && is_refused(source) {
            return Err(DropReason::NotGlobal.into());
        }
        Ok((source, destination))
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        let (outer, inner) = (self.settings.prefix, self.settings.source);
        match place {
            Place::Packet | Place::Error if is_refused(outer, destination, NonGlobal::Refuse) => {
                Err(DropReason::NotGlobal.into())
            }
            Place::Quoted => Ok((embed(outer, source), embed(inner, destination))),
            _ => Ok((embed(inner, source), embed(outer, destination))),
        }
    }
}

impl Families {
    pub(crate) fn clat_claims_ipv6(&self, destination: u128) -> bool {
        let clat = self.settings.clat.as_ref();
        clat.is_some_and(|clat| extract(clat.source, destination).is_some())
    }

    pub(crate) fn clat_claims_ipv4(&self, source: Ipv4Addr) -> bool {
        let Some(clat) = &self.settings.clat else { return false };
        clat.subscribers.iter().any(|prefix| prefix.contains(source.to_bits()))
    }

    fn customer(&self) -> Customer<'_> {
        let settings = self.settings.clat.as_ref().expect("the CLAT claimed the packet");
        let error_source = self.error_source(Side::Inside).expect("there is always one inside");
        Customer { settings, error_source: error_source.to_bits() }
    }

    /// A packet from inside, to IPv6.
    pub(crate) fn clat_to_ipv6(&self, bytes: &[u8]) -> Result<Passed, Refusal> {
        let settings = self.conversion(Side::Outside, Hops::Decrement);
        let (bytes, limit) = to_ipv6(bytes, &settings, &mut self.customer())?;
        let (direction, side) = (Direction::Outbound, Side::Outside);
        Ok(Passed { direction, side, answers: false, bytes, limit })
    }

    /// A packet from outside, to IPv4.
    pub(crate) fn clat_to_ipv4(&self, bytes: &[u8]) -> Result<Passed, Refusal> {
        let settings = self.conversion(Side::Outside, Hops::Decrement);
        let (bytes, limit) = to_ipv4(bytes, &settings, &mut self.customer())?;
        let (direction, side) = (Direction::Inbound, Side::Inside);
        Ok(Passed { direction, side, answers: false, bytes, limit })
    }
}
