//! Reads configurations of other translators (iptables, nftables, VPP, Jool) and writes natgate's.
//!
//! Every line of theirs is taken, taken with a difference, or left out, and of the latter two each
//! says why in a [`Remark`]. What comes of it is text for people to read and edit: comments name
//! the lines that it is from, and what they did not say (such as the devices of VPP in the kernel)
//! is filled in with names and addresses that reach nobody. Whether natgate accepts the text, its
//! caller finds out with the reader of configurations; nothing here depends on that.
//!
//! Any text may come in: what is not understood is a remark, never a panic, and everything that
//! multiplies (sets, chains that call chains) has a limit.

mod address;
mod filter;
mod forwards;
mod iptables;
mod jool;
mod netfilter;
mod nft;
mod nft_json;
mod nft_rule;
mod nft_sets;
mod order;
mod plan;
mod vpp;
mod write;

pub use plan::{Grade, Remark};

use plan::Plan;

/// Most bytes of a file that is read.
pub const MOST_BYTES: usize = 64 << 20;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What `iptables-save` prints.
    Iptables,
    /// What `nft list ruleset` prints, as text or, with `-j`, as JSON.
    Nft,
    /// Commands of VPP's command line, as in its startup configuration.
    Vpp,
    /// Jool's JSON: `jool ... file handle`, or `jool global display` and the like put together.
    Jool,
}

/// What the file does not say and its reader knows.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The device of the inside.
    pub inside: Option<String>,
    /// The device of the outside.
    pub outside: Option<String>,
    /// The external addresses where the file has "that of the device".
    pub external: Option<String>,
}

/// Why nothing comes of a file.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is nothing to import.
    #[error("the input is empty: there are no rules to import")]
    Empty,
    /// Nobody knows what it is.
    #[error("the file is not recognised; say with --from whether it is iptables, nft, vpp or jool")]
    Unknown,
    /// It is not what was said.
    #[error("line {line}: {message}")]
    Malformed {
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// It has nothing to do with translation.
    #[error("the file has no rule for translation; {0}")]
    Nothing(&'static str),
    /// An argument is wrong.
    #[error("{0:?} is no external address; write one such as 203.0.113.1, or a range, or a prefix")]
    External(String),
}

/// What has come of a file.
#[derive(Debug)]
pub struct Imported {
    /// natgate's configuration.
    pub config: String,
    /// What was taken with a difference or not at all, in order of lines.
    pub remarks: Vec<Remark>,
}

/// Whose configuration a text seems to be.
pub fn detect(text: &str) -> Option<Format> {
    let start = text.trim_start();
    if start.starts_with('{') {
        let head: String = start.chars().take(4096).collect();
        return match head.contains("\"nftables\"") {
            true => Some(Format::Nft),
            false => Some(Format::Jool),
        };
    }
    text.lines().take(10_000).find_map(|line| {
        let line = line.trim();
        let is_vpp = |word: &str| matches!(word, "nat44" | "det44" | "nat");
        let mut words = line.split_whitespace();
        match (words.next()?, words.next().unwrap_or_default()) {
            ("*nat" | "*filter" | "*mangle" | "*raw" | "*security", _) => Some(Format::Iptables),
            ("-A" | "-N" | "-P", _) => Some(Format::Iptables),
            ("table", "ip" | "inet" | "ip6" | "bridge" | "arp" | "netdev") => Some(Format::Nft),
            ("nat44" | "det44", _) => Some(Format::Vpp),
            ("set", word) if is_vpp(word) => Some(Format::Vpp),
            ("set", "interface") if line.contains(" nat44 ") || line.contains(" det44 ") => {
                Some(Format::Vpp)
            }
            _ => None,
        }
    })
}

/// Reads a configuration and writes natgate's; `format` or else what [`detect`] says.
///
/// # Errors
/// [`ImportError`].
pub fn import(text: &str, format: Option<Format>, hints: &Hints) -> Result<Imported, ImportError> {
    if text.trim().is_empty() {
        return Err(ImportError::Empty);
    }
    let format = format.or_else(|| detect(text)).ok_or(ImportError::Unknown)?;
    let mut plan = Plan::new(hints)?;
    match format {
        Format::Iptables => iptables::read(text, &mut plan)?,
        Format::Nft if text.trim_start().starts_with('{') => nft_json::read(text, &mut plan)?,
        Format::Nft => nft::read(text, &mut plan)?,
        Format::Vpp => vpp::read(text, &mut plan)?,
        Format::Jool => jool::read(text, &mut plan)?,
    }
    plan.settle();
    let config = write::config(&plan);
    let mut remarks = plan.remarks;
    remarks.sort_by_key(|remark| remark.line);
    Ok(Imported { config, remarks })
}
