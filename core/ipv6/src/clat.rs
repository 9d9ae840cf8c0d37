//! The customer's side of a translation (RFC 6877): IPv4 inside, IPv6 outside.

use crate::convert::{Addresses, Place, Refusal};
use crate::embedding::Pref64;
use crate::settings::ClatSettings;
use crate::siit::is_forbidden;
use crate::translator::{Taken, Translator, cut_of};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, DropReason, Packet, Side, is_martian};

/// Addresses of a CLAT.
struct Customer {
    prefix: Pref64,
    inside: Pref64,
    /// Source of errors from IPv6 addresses without an IPv4 one.
    error_source: Option<u32>,
}

impl Addresses for Customer {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        let Self { prefix, inside, .. } = *self;
        let untranslatable = Refusal::silent(DropReason::Untranslatable);
        let (from, to) = match place {
            Place::Quoted => (inside, prefix),
            Place::Packet | Place::Error => (prefix, inside),
        };
        let extract = |prefix: Pref64, address: u128| {
            prefix.extract(Ipv6Addr::from_bits(address)).map(Ipv4Addr::to_bits)
        };
        let may_stand = |address| !is_forbidden(from, Ipv4Addr::from_bits(address));
        let source = match (extract(from, source), place) {
            (Some(source), Place::Error) if !is_martian(source) && may_stand(source) => {
                Some(source)
            }
            (_, Place::Error) => self.error_source,
            (found, _) => found,
        };
        let source = source.ok_or(untranslatable)?;
        let destination = extract(to, destination).ok_or(untranslatable)?;
        if place != Place::Quoted {
            // Any host outside can choose the embedded addresses.
            if is_martian(source) {
                return Err(DropReason::MartianSource.into());
            }
            if is_martian(destination) {
                return Err(DropReason::MartianDestination.into());
            }
            //= rfc6052#section-3.1-drop
            if place == Place::Packet && !may_stand(source) {
                return Err(DropReason::NotGlobal.into());
            }
        }
        Ok((source, destination))
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        let Self { prefix, inside, .. } = *self;
        let (from, to) = match place {
            Place::Packet | Place::Error => (inside, prefix),
            Place::Quoted => (prefix, inside),
        };
        //= rfc6052#section-3.1-drop
        if place != Place::Quoted && is_forbidden(prefix, Ipv4Addr::from_bits(destination)) {
            return Err(DropReason::NotGlobal.into());
        }
        let embed =
            |prefix: Pref64, address: u32| prefix.embed(Ipv4Addr::from_bits(address)).to_bits();
        Ok((embed(from, source), embed(to, destination)))
    }
}

impl Translator {
    /// True if an IPv6 packet from outside to this address is the CLAT's: it is for a host inside.
    pub(crate) fn claims_clat(&self, destination: u128) -> bool {
        let destination = Ipv6Addr::from_bits(destination);
        self.settings.clat.as_ref().is_some_and(|clat| clat.source.contains(destination))
    }

    /// True if an IPv4 packet from inside with this source is the CLAT's.
    pub(crate) fn claims_clat_ipv4(&self, source: u32) -> bool {
        self.clat_hosts.has(source)
    }

    fn customer(&self) -> Result<Customer, DropReason> {
        let clat = self.settings.clat.as_ref().ok_or(DropReason::NoRoute)?;
        let ClatSettings { prefix, source: inside, .. } = *clat;
        Ok(Customer { prefix, inside, error_source: self.error_source_ipv4(Side::Inside) })
    }

    /// Translates a packet from inside to IPv6.
    pub(crate) fn clat_to_ipv6(&mut self, packet: &mut Packet<'_>) -> Taken {
        let converted = self.clat.to_ipv6(packet, &mut self.customer()?)?;
        Ok((Direction::Outbound, Side::Outside, cut_of(converted)))
    }

    /// Translates a packet from outside to IPv4.
    pub(crate) fn clat_to_ipv4(&mut self, packet: &mut Packet<'_>) -> Taken {
        let mut customer = self.customer()?;
        let converted = self.clat.to_ipv4(packet, &mut customer)?;
        Ok((Direction::Inbound, Side::Inside, cut_of(converted)))
    }
}
