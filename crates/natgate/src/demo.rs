//! `natgate demo`.

use crate::Failure;

/// Show the translator at work between network namespaces
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::Runtime(anyhow::anyhow!("not yet written")))
}
