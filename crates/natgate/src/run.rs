//! `natgate run`.

use crate::Failure;

/// Run the gateway
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::Runtime(anyhow::anyhow!("not yet written")))
}
