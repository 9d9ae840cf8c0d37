//! `natgate export`: writes configuration and state in standard forms.

use crate::Failure;
use anyhow::anyhow;
use clap::Subcommand;
use natgate_control::config;
use natgate_control::socket::{self, Response, ask};
use natgate_metrics::yang::{Export, configuration};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an answer, which may have many mappings.
const PATIENCE: Duration = Duration::from_secs(60);

/// Write configuration and state in a standard form
#[derive(clap::Args)]
#[command(after_help = "Example:\nnatgate export yang -c /etc/natgate/natgate.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    form: Form,
}

#[derive(Subcommand)]
enum Form {
    Yang(YangArgs),
}

/// Write JSON data of the YANG modules ietf-nat, ietf-dslite and ietf-softwire-br
///
/// Without -c, standard output has the running gateway's configuration and state, with some of its
/// mappings; with -c, it has the configuration of a file. Standard error names each part of the
/// configuration that the modules have no place for (RFC 8512, RFC 8513, RFC 8676, RFC 7951).
#[derive(clap::Args)]
#[command(after_help = "Examples:\nnatgate export yang -c /etc/natgate/natgate.toml\n\
        natgate export yang --mappings 0")]
struct YangArgs {
    /// Configuration; a running gateway is not asked
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["socket", "mappings"])]
    config: Option<PathBuf>,
    /// Most dynamic mappings to write, up to 100,000
    #[arg(long, value_name = "N", default_value = "1000")]
    mappings: u64,
    /// The gateway's control socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    socket: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Form::Yang(args) = &args.form;
    let Export { data, left_out } = match &args.config {
        Some(file) => {
            let settings = config::load(file).map_err(Failure::Input)?;
            configuration(&settings.engine, &settings.ipv6)
        }
        None => running(&args.socket, args.mappings)?,
    };
    for what in left_out {
        eprintln!("natgate: note: the modules have no place for {what}");
    }
    Ok(natgate_cli::print(&format!("{data:#}\n"))?)
}

/// Asks the running gateway for its configuration and state.
fn running(socket: &Path, mappings: u64) -> Result<Export, Failure> {
    let path = format!("/v1/yang?limit={mappings}");
    let answer = ask(socket, "GET", &path, &json!(null), PATIENCE);
    let Response { status, mut body } = answer.map_err(crate::api::unreachable)?;
    if status != 200 {
        let message = body["message"].as_str().unwrap_or("the gateway failed without a word");
        return Err(anyhow!("{message}").into());
    }
    let left_out = body["left_out"].as_array().into_iter().flatten();
    let left_out = left_out.filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Export { data: body["data"].take(), left_out })
}
