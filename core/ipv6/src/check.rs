//! The checks of every IPv4 packet that the engine does not see.

use crate::nat64::about_ipv4;
use natgate_engine::DropReason;
use natgate_wire::Ipv4;
use natgate_wire::ipv4::Ipv4Error;

/// Checks an IPv4 packet as every packet is checked.
pub(crate) fn check_ipv4(
    bytes: &[u8],
    (source, destination): (u32, u32),
) -> Result<(), DropReason> {
    let header = Ipv4::new_checked(bytes).map_err(|error| match error {
        Ipv4Error::Version => DropReason::NotIpv4,
        Ipv4Error::Length => DropReason::BadLength,
    })?;
    if !header.checksum_valid() {
        return Err(DropReason::BadHeaderChecksum);
    }
    // The source of an error shows where the fault is, whatever it is (RFC 7915 section 4.1).
    //= rfc7915#section-4.1-source
    //= rfc7915#section-4.1-source-error
    if natgate_engine::is_martian(source) && about_ipv4(bytes).is_none() {
        return Err(DropReason::MartianSource);
    }
    if natgate_engine::is_martian(destination) {
        return Err(DropReason::MartianDestination);
    }
    match source == destination {
        true => Err(DropReason::Land),
        false => Ok(()),
    }
}
