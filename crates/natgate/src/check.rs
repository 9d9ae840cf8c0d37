//! `natgate check`.

use crate::Failure;

/// Validate a configuration and say what it means
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::Runtime(anyhow::anyhow!("not yet written")))
}
