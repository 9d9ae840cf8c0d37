//! Which customer has an IPv4 address and a port.

use super::endpoint::Port;
use super::{BindingTable, Located, Location, MapMode, Owner, Softwires, Tunnel};
use natgate_engine::DropReason;

impl Softwires {
    /// The customer that has an address and a port. The port is asked for if it matters.
    #[inline]
    pub(super) fn locate(
        &self,
        ipv4: u32,
        port: impl FnOnce() -> Result<Port, DropReason>,
    ) -> Result<Location, DropReason> {
        if !self.domains.is_empty()
            && let Some(place) = self.domains.find(ipv4)
        {
            return self.locate_by_rule(place, ipv4, port);
        }
        match &self.lw4o6 {
            Some(lw4o6) if lw4o6.bindings.may_have(ipv4) => {
                locate_by_binding(&lw4o6.bindings, ipv4, port)
            }
            _ => Ok(Location::Elsewhere),
        }
    }

    #[inline]
    fn locate_by_rule(
        &self,
        place: usize,
        ipv4: u32,
        port: impl FnOnce() -> Result<Port, DropReason>,
    ) -> Result<Location, DropReason> {
        let sets = self.domains.line(place).arithmetic.sets;
        let psid = match sets.is_whole() {
            true => Some(0),
            false => match port()? {
                Port::Number(port) => sets.set_of(port),
                Port::Later => return Ok(Location::NeedsPort),
                Port::Absent => None,
            },
        };
        let Some((place, psid)) =
            psid.and_then(|psid| Some((self.domains.of_customer(place, psid)?, psid)))
        else {
            return Ok(Location::Unbound);
        };
        let br = match self.domains.mode(place) {
            MapMode::Encapsulation(br) => br.to_bits(),
            MapMode::Translation(_) => 0,
        };
        let customer = self.domains.line(place).arithmetic.address_of(ipv4, psid);
        let tunnel = Tunnel { br, customer };
        Ok(Location::Customer(Located { owner: Owner::Rule(place), tunnel }))
    }
}

/// The customer of lw4o6 that has an address and a port. An address without a binding is outside,
/// also if it lies between others: a port that cannot be read does not matter then.
#[inline]
fn locate_by_binding(
    bindings: &BindingTable,
    ipv4: u32,
    port: impl FnOnce() -> Result<Port, DropReason>,
) -> Result<Location, DropReason> {
    let sets = bindings.sets(ipv4);
    let port = if sets.is_whole() { Ok(Port::Number(0)) } else { port() };
    let psid = match port {
        Ok(Port::Number(port)) => sets.set_of(port),
        _ => None,
    };
    if let Some(tunnel) = psid.and_then(|psid| bindings.tunnel(bindings.wanted(ipv4, psid))) {
        return Ok(Location::Customer(Located { owner: Owner::Bindings, tunnel }));
    }
    // A whole address has one binding at most.
    if sets.is_whole() || !bindings.has_address(ipv4) {
        return Ok(Location::Elsewhere);
    }
    Ok(match port? {
        Port::Later => Location::NeedsPort,
        Port::Number(_) | Port::Absent => Location::Unbound,
    })
}
