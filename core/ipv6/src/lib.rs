//! Translation between IPv4 and IPv6, beside the engine.
//!
//! The engine translates IPv4 packets and knows no other family. This crate puts packets of one
//! family into headers of the other, in place: [`convert`] has the headers, the checksums and the
//! ICMP messages of RFC 7915. [`Translator`] decides which table claims a packet. Like the engine,
//! the crate has no clock, no source of randomness, no input and no output.
//!
//! Call order: [`Translator::new`] comes before the engine, because it adds the realms of hosts
//! with numbers to the engine's configuration. [`Translator::take_some`] gets packets before the
//! engine sees it, and [`Translator::convert_own_to_host`] each packet that the engine makes for
//! one of these realms. [`Translator::poll_transmit`] returns the translator's own errors.
//! [`Translator::sweep`] frees the numbers of hosts without mappings.
//!
//! ```
//! use natgate_engine::Config;
//! use natgate_ipv6::{Pref64, Prefix6, Settings, Translator};
//!
//! // Without a configuration there is nothing to translate.
//! let translator = Translator::new(&Settings::default(), &mut Config::default(), [7; 32])?;
//! assert!(translator.is_none());
//!
//! let well_known = Prefix6 { address: "64:ff9b::".parse().expect("an address"), len: 96 };
//! let prefix = Pref64::new(well_known).expect("a prefix of RFC 6052");
//! let address = prefix.embed([192, 0, 2, 33].into());
//! assert_eq!(address.to_string(), "64:ff9b::c000:221");
//! assert_eq!(prefix.extract(address), Some([192, 0, 2, 33].into()));
//! # Ok::<(), String>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addresses;
mod amend;
mod batch;
mod check;
mod clat;
mod complaint;
pub mod convert;
mod copied;
mod eam;
mod embedding;
mod ends;
mod errors;
mod explain;
mod explanation;
mod filter;
mod forward;
mod hosts;
mod insiders;
mod keyed;
mod nat64;
mod nptv6;
mod numbered;
mod own;
mod pairs;
mod prefix;
mod quick;
mod quotes;
mod realms;
mod receivers;
mod requests;
mod settings;
mod share;
mod siit;
pub mod softwire;
mod translator;
mod untranslated;

pub use copied::CopiedHosts;
pub use eam::{Eam, EamEntry, EamError};
pub use embedding::{EmbeddingError, LENGTHS, Pref64};
pub use errors::requester_of;
pub use explanation::{
    Entry, FamilyBecomes, FamilyEnd, FamilyExplanation, FamilyStep, SoftwireTable, Waits,
};
pub use forward::answer_echo;
pub use hosts::Hosts;
pub use hosts::carried::{CarriedHost, UnfitHost};
pub use nat64::CarriedPath;
pub use nptv6::{Nptv6, Nptv6Error, Unmapped};
pub use numbered::HostName;
pub use pairs::{Overlap, Pairs, Way, overlap};
pub use prefix::Prefix6;
pub use realms::{HostKind, HostRealms};
pub use requests::Requester;
pub use settings::{
    ClatSettings, Conversion, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6Settings, Settings,
    Side6, SiitSettings, StaticHost,
};
pub use share::{Division, Share};
pub use translator::{Departure, ERROR_ROOM, Fate, Translator};
