//! DPDK's environment with memory for the registers of one program at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Starts DPDK, and waits until no other test has a pipeline.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let arguments = ["--no-pci", "--no-shconf", "--no-huge", "-m", "1024"].map(str::to_owned);
    natgate_dpdk::start(Some(&arguments), 1500).expect("DPDK starts");
    turn
}
