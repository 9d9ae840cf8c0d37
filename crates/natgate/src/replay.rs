//! `natgate replay`.

use crate::Failure;

/// Translate captures offline
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::Runtime(anyhow::anyhow!("not yet written")))
}
