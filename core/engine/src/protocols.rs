//! Protocols by number: protocols with ports, and the places of protocols in arrays of counts.

use natgate_wire::protocol;

/// True if a protocol has ports, or identifiers that serve as ports.
#[inline(always)]
pub(crate) fn has_ports(protocol: u8) -> bool {
    place_of(protocol) < PROTOCOLS.len()
}

/// The protocols that have ports, by their index.
pub(crate) const PROTOCOLS: [u8; 4] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

/// Places of all protocols in counts of mappings. A table takes one load, without a branch.
const PLACES: [u8; 256] = {
    let mut places = [PROTOCOLS.len() as u8; 256];
    let mut place = 0;
    while place < PROTOCOLS.len() {
        places[PROTOCOLS[place] as usize] = place as u8;
        place += 1;
    }
    places
};

/// Index of a protocol that has ports.
#[inline(always)]
pub(crate) fn protocol_index(protocol: u8) -> usize {
    let place = place_of(protocol);
    assert!(place < PROTOCOLS.len(), "protocol {protocol} has no ports");
    place
}

/// Place of a protocol in counts of mappings: TCP, UDP, ICMP, DCCP, all others.
#[inline(always)]
pub(crate) fn place_of(protocol: u8) -> usize {
    usize::from(PLACES[usize::from(protocol)])
}

/// Place of the quota that a protocol's mappings count against: TCP, UDP, all others.
#[inline(always)]
pub(crate) fn quota_class(protocol: u8) -> usize {
    quota_of(place_of(protocol))
}

/// Place of the quota of mappings with this place of their protocol.
#[inline(always)]
pub(crate) fn quota_of(place: usize) -> usize {
    place.min(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_its_place() {
        for number in 0..=u8::MAX {
            let listed = PROTOCOLS.iter().position(|&protocol| protocol == number);
            assert_eq!(place_of(number), listed.unwrap_or(PROTOCOLS.len()));
            assert_eq!(has_ports(number), listed.is_some());
            let class = match number {
                protocol::TCP => 0,
                protocol::UDP => 1,
                _ => 2,
            };
            assert_eq!(quota_class(number), class);
        }
    }
}
