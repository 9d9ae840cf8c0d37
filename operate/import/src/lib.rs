//! Reads configurations of other translators (iptables, nftables, VPP, Jool, tayga, Snabb's lwAFTR)
//! and writes natgate's.
//!
//! Each line of the input is converted, converted with a difference, or left out. A [`Remark`]
//! gives the reason for a difference or an omission. The result is text for people to read and
//! edit: comments name the lines of the input. Missing information, such as the kernel's names of
//! VPP's devices, is filled in with placeholder names and addresses that no host has. The caller
//! checks with the reader of configurations whether natgate accepts the text; nothing here depends
//! on that.
//!
//! Any text may be read: text that is not understood becomes a remark, never a panic. Everything
//! that multiplies (sets, chains that call chains) has a limit.
//!
//! ```
//! use natgate_import::{Hints, import};
//!
//! let rule = "-A POSTROUTING -s 10.0.0.0/8 -o eth1 -j SNAT --to-source 203.0.113.1";
//! let imported = import(&format!("*nat\n{rule}\nCOMMIT\n"), None, &Hints::default())?;
//! assert!(imported.config.contains("203.0.113.1"), "{}", imported.config);
//! for remark in &imported.remarks {
//!     println!("line {}: {remark:?}", remark.line);
//! }
//! # Ok::<(), natgate_import::ImportError>(())
//! ```

mod address;
mod filter;
mod forwards;
mod iptables;
mod jool;
mod jool_commands;
mod jool_json;
mod netfilter;
mod nft;
mod nft_json;
mod nft_rule;
mod nft_sets;
mod order;
mod plan;
mod plan6;
mod snabb;
mod softwires;
mod tayga;
mod vpp;
mod vpp_map;
mod write;
mod yang_text;

pub use plan::{Grade, Remark};

use plan::Plan;

/// Most bytes of a file that is read.
pub const MOST_BYTES: usize = 64 << 20;

/// Format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The output of `iptables-save`.
    Iptables,
    /// The output of `nft list ruleset`, as text or, with `-j`, as JSON.
    Nft,
    /// Commands of VPP's command line, as in its startup configuration.
    Vpp,
    /// Jool's JSON (`jool ... file handle`), or a script with commands such as `jool pool4 add`.
    Jool,
    /// tayga's file, tayga.conf.
    Tayga,
    /// The configuration of Snabb's lwAFTR, `softwire-config`.
    Snabb,
}

/// Information that the file lacks and the user gives.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Device of the inside.
    pub inside: Option<String>,
    /// Device of the outside.
    pub outside: Option<String>,
    /// External addresses, if the file says "the address of the device".
    pub external: Option<String>,
    /// Value of `lw4o6.bindings`, the name of the file of bindings; without it `bindings.csv`.
    pub bindings: Option<String>,
}

/// Reason why a file cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is nothing to import.
    #[error("the input is empty: there are no rules to import")]
    Empty,
    /// The format is not recognised.
    #[error(
        "the file is not recognised; say with --from whether it is iptables, nft, vpp, jool, tayga \
         or snabb"
    )]
    Unknown,
    /// The file does not have the given format.
    #[error("line {line}: {message}")]
    Malformed {
        /// Number of the line, from 1.
        line: usize,
        /// Description of the error, and of what would be right.
        message: String,
    },
    /// The file has no rule for translation.
    #[error("the file has no rule for translation; {0}")]
    Nothing(&'static str),
    /// An argument is wrong.
    #[error("{0:?} is no external address; write one such as 203.0.113.1, or a range, or a prefix")]
    External(String),
}

/// Result of a conversion.
#[derive(Debug)]
pub struct Imported {
    /// Configuration of natgate.
    pub config: String,
    /// The file that `lw4o6.bindings` names, one binding a line; `None`: there is no `[lw4o6]`.
    pub bindings: Option<String>,
    /// Differences and omissions, in order of lines.
    pub remarks: Vec<Remark>,
}

/// Guesses the format of a text.
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
        if jool_commands::has_command(line) {
            return Some(Format::Jool);
        }
        if snabb::has_line(line) {
            return Some(Format::Snabb);
        }
        if tayga::has_line(line) {
            return Some(Format::Tayga);
        }
        let is_vpp = |word: &str| matches!(word, "nat44" | "det44" | "nat");
        let mut words = line.split_whitespace();
        match (words.next()?, words.next().unwrap_or_default()) {
            ("*nat" | "*filter" | "*mangle" | "*raw" | "*security", _) => Some(Format::Iptables),
            ("-A" | "-N" | "-P", _) => Some(Format::Iptables),
            ("table", "ip" | "inet" | "ip6" | "bridge" | "arp" | "netdev") => Some(Format::Nft),
            ("nat44" | "det44" | "dslite", _) => Some(Format::Vpp),
            ("map", "add" | "interface" | "params") => Some(Format::Vpp),
            ("set", word) if is_vpp(word) => Some(Format::Vpp),
            ("set", "interface") if line.contains(" nat44 ") || line.contains(" det44 ") => {
                Some(Format::Vpp)
            }
            _ => None,
        }
    })
}

/// Converts a configuration; without `format`, [`detect`] guesses it.
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
        Format::Jool if text.trim_start().starts_with(['{', '[']) => {
            jool_json::read(text, &mut plan)?
        }
        Format::Jool => jool_commands::read(text, &mut plan)?,
        Format::Tayga => tayga::read(text, &mut plan)?,
        Format::Snabb => snabb::read(text, &mut plan)?,
    }
    plan.settle();
    let name = hints.bindings.as_deref().unwrap_or("bindings.csv");
    let config = write::config(&plan, name);
    let bindings = plan.softwires.csv();
    let mut remarks = plan.remarks;
    remarks.sort_by_key(|remark| remark.line);
    Ok(Imported { config, bindings, remarks })
}
