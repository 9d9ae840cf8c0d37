//! Translation between IPv4 and IPv6, beside the engine.
//!
//! The engine translates IPv4 packets and knows no other family. This crate puts packets of one
//! family into headers of the other, in place: [`convert`] has the headers, the checksums and the
//! ICMP messages of RFC 7915. [`Translator`] decides which table claims a packet. Like the engine,
//! the crate has no clock, no source of randomness, no input and no output.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addresses;
mod clat;
pub mod convert;
mod eam;
mod embedding;
mod errors;
mod filter;
mod forward;
mod hosts;
mod keyed;
mod nat64;
mod nptv6;
mod pairs;
mod prefix;
mod settings;
mod siit;
mod translator;

pub use eam::{Eam, EamEntry, EamError};
pub use embedding::{EmbeddingError, LENGTHS, Pref64};
pub use hosts::Hosts;
pub use nptv6::{Nptv6, Nptv6Error, Unmapped};
pub use pairs::{Overlap, Pairs, Way, overlap};
pub use prefix::Prefix6;
pub use settings::{
    ClatSettings, Conversion, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6Settings, Settings,
    Side6, SiitSettings,
};
pub use translator::{Departure, Fate, Translator};
