//! `natgate check`: reads a configuration and prints its meaning, or all its errors.
//!
//! No device needs to exist, and nothing is changed. The control crate reads and explains the
//! configuration; this file has the arguments, the streams and the exit code.

use crate::Failure;
use crate::run::{devices, link_settings};
use natgate_cli::print;
use natgate_control::config::{self, Configuration, Problem};
use natgate_control::meaning::Meaning;
use natgate_control::socket::{Tls, Validity};
use natgate_gateway::fleet::FleetSettings;
use serde_json::json;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
The exit code is 0 for a configuration that can be run, 2 for one that cannot: then standard error
has every problem, one a line, as FILE:LINE:COLUMN: KEY: MESSAGE. Warnings do not change it. The
certificates and the key of a pair may be missing here, so their faults are warnings, too.

With --json, standard output has one object:
  {\"ok\": true, \"pools\": [...], \"mappings\": N, \"sessions\": N, \"twice_sessions\": N,
   \"memory_bytes\": N, \"classes\": [...], \"realms\": [...], \"logs\": [...],
   \"pcp\": {...} or null, \"algs\": [...], \"access\": {...}, \"pair\": {...} or null,
   \"ipv6\": {...} or null, \"warnings\": [...]}
  {\"ok\": false, \"errors\": [{\"file\", \"line\", \"column\", \"key\", \"message\"}]}

Examples:
natgate check /etc/natgate/natgate.toml
natgate check --json lab.toml

docs/configuration.md describes every key.";

/// Validate a configuration and say what it means
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The configuration file (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match config::read(&args.file).and_then(|configuration| runnable(&args, configuration)) {
        Ok(mut configuration) => {
            let faults = configuration.settings.fleet.as_ref().map(faults).unwrap_or_default();
            let file = args.file.display().to_string();
            configuration.warnings.extend(faults.into_iter().map(|message| Problem {
                key: "fleet".to_owned(),
                ..Problem::of_file(&file, message)
            }));
            let meaning = Meaning::of(configuration);
            let text = if args.json {
                let mut object = json!(meaning);
                object["ok"] = true.into();
                format!("{object}\n")
            } else {
                format!("{}: can be run\n{meaning}", args.file.display())
            };
            Ok(print(&text)?)
        }
        Err(problems) => {
            if args.json {
                print(&format!("{}\n", json!({"ok": false, "errors": problems})))?;
            }
            Err(Failure::Input(problems.iter().map(Problem::to_string).collect()))
        }
    }
}

/// Returns the configuration if this program has the back ends that the configuration names.
fn runnable(args: &Args, configuration: Configuration) -> Result<Configuration, Vec<Problem>> {
    let name = args.file.display().to_string();
    match devices::require(&configuration.settings) {
        Ok(()) => Ok(configuration),
        Err(lack) => Err(vec![Problem::of_file(&name, lack)]),
    }
}

/// Faults of a node's certificate, key and authorities: with them the nodes do not connect. The
/// validity of authorities does not count.
fn faults(fleet: &FleetSettings) -> Vec<String> {
    let mut faults: Vec<String> =
        natgate_partner::faults(&link_settings(fleet)).iter().map(ToString::to_string).collect();
    // A file that cannot be read is a fault already.
    let validity = fleet.certificate.is_file().then(|| Tls::validity(&fleet.certificate));
    let lapsed = match validity {
        Some(Ok(Validity::Until(time))) => format!("was valid until {time}"),
        Some(Ok(Validity::From(time))) => format!("is valid from {time} on"),
        Some(Ok(Validity::Now) | Err(_)) | None => return faults,
    };
    let path = fleet.certificate.display();
    faults.push(format!(
        "the certificate in {path} {lapsed}, so the nodes do not connect; put another in its place"
    ));
    faults
}
