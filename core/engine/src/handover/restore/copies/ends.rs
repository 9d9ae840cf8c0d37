//! The ends of a mapping in a record.

use super::names_in;
use crate::endpoint::AddressPort;
use crate::handover::record::{MappingFields, Reader};
use crate::handover::restore::MappingParts;
use core::net::Ipv4Addr;

/// Ends of a mapping in a record, with which a caller finds the engine for the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnds {
    /// Protocol number.
    pub protocol: u8,
    /// Internal address and port. The realm is the caller's knowledge. A host with a number has
    /// address 0.0.0.1.
    pub internal: (Ipv4Addr, u16),
    /// External address and port.
    pub external: (Ipv4Addr, u16),
}

impl CopyEnds {
    /// Reads the ends from a record of [`Engine::copy_record`]. `None`: the record is damaged.
    pub fn read(record: &[u8]) -> Option<Self> {
        let fields = MappingFields::read(&mut Reader::new(record))?;
        let ends = |end: AddressPort| (Ipv4Addr::from_bits(end.address), end.port);
        let (internal, external) = (ends(fields.internal), ends(fields.external));
        Some(Self { protocol: fields.protocol, internal, external })
    }

    /// Reads the name of the realm from a record. `None`: it is realm 0, or the record is damaged.
    pub fn realm(record: &[u8]) -> Option<&[u8]> {
        let mut from = Reader::new(record);
        MappingParts::default().read(&mut from).ok()?;
        names_in(&mut from)?.realm
    }
}
