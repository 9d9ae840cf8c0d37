//! Take-over by another process: calls for the worker that ends and for the worker that begins.
//! The transport between the two processes is the caller's.

use crate::clock::Clock;
use crate::command::{CommandError, Commander};
use crate::handover::{Exchange, Legacy, Writing, Written};
use crate::team::Division;
use crate::wiring::Devices;
use crate::worker::Worker;
use natgate_engine::{Restoration, RestoreError, Restored, Timestamp};
use natgate_io::Batch;
use natgate_ipv6::UnfitHost;

/// Most frames to discard in one call.
const MOST_STALE: usize = 1 << 16;

impl Commander {
    /// True if another process could adopt the division among the workers. It could not if workers
    /// have joined since the start and hosts of static mappings have stayed with other workers.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn can_be_succeeded(&self) -> Result<bool, CommandError> {
        Ok(self.numbered()?.partition().is_none_or(|partition| partition.division().is_some()))
    }

    /// Starts the export of the next part of a worker's state. Packets flow meanwhile, unless the
    /// worker is halted.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn write(&self, worker: usize, writing: Box<Writing>) -> Result<Written, CommandError> {
        self.begin_writing(worker, writing)
    }

    /// Stops the intake of packets on all workers and returns their remaining state, once all
    /// packets are sent and all events reported.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn halt(&self) -> Result<Legacy, CommandError> {
        self.halt_all().map(Legacy::of_all)
    }

    /// Resumes the intake of packets.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn resume(&self) -> Result<(), CommandError> {
        self.resume_all()
    }

    /// Exchanges the devices of halted workers, one list for each; returns the former devices.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn exchange_devices(&self, devices: Vec<Devices>) -> Result<Vec<Devices>, CommandError> {
        let all = self.exchange_all(devices.into_iter().map(Exchange).collect())?;
        Ok(all.into_iter().map(|exchange| exchange.0).collect())
    }
}

impl Worker {
    /// Executes commands only, while another process takes over.
    pub(crate) fn stand_still(&mut self, now: Timestamp) {
        if let Some(reply) = self.halting() {
            // If the receiver has ended, the answer is not needed.
            let _ = reply.send(self.legacy());
        }
        self.obey_standing(now);
    }

    /// Starts the restoration of another process's state. No packet may have passed yet.
    pub fn begin_restoration(&self) -> Restoration {
        Restoration::new(self.engine())
    }

    /// Restores records of the other process.
    ///
    /// # Errors
    /// [`RestoreError`]: the worker is not to be used.
    pub fn restore(
        &mut self,
        restoration: &mut Restoration,
        records: &[u8],
    ) -> Result<(), RestoreError> {
        self.engine_mut().restore(restoration, records)
    }

    /// Adopts the division of the other process. Call it on each worker before the last records.
    /// Returns `None` if the division does not fit.
    pub fn adopt(&mut self, division: Option<&Division>) -> Option<()> {
        self.adopt_division(division)
    }

    /// Completes the restoration.
    ///
    /// # Errors
    /// [`RestoreError`]: the worker is not to be used.
    pub fn finish_restoration(
        &mut self,
        restoration: &mut Restoration,
    ) -> Result<Restored, RestoreError> {
        self.engine_mut().finish_restoration(restoration)
    }

    /// Restores neighbours, the PCP epoch, hosts of NAT64 and DS-Lite, and control flows of
    /// application-level gateways. `number` is the predecessor's number among its workers.
    ///
    /// # Errors
    /// [`UnfitHost`]: the worker is not to be used.
    pub fn go_on(
        &mut self,
        now: Timestamp,
        number: usize,
        legacy: &Legacy,
    ) -> Result<(), UnfitHost> {
        for known in &legacy.known {
            self.router_mut().introduce(now, known.link, known.address, known.mac);
        }
        if let Some(&epoch) = legacy.epochs.get(number) {
            self.go_on_since(epoch, &legacy.addresses, now);
        }
        if let Some(flows) = legacy.flows.get(number) {
            self.adopt_flows(flows, now);
        }
        if let Some(paths) = legacy.paths.get(number) {
            self.adopt_paths(paths);
        }
        legacy.hosts.get(number).map_or(Ok(()), |hosts| self.adopt_hosts(hosts, now))
    }

    /// Replaces the devices, in the order of [`Settings::devices`](crate::Settings::devices).
    ///
    /// # Panics
    /// If the number of devices differs.
    pub fn set_devices(&mut self, devices: Devices) {
        assert_eq!(devices.len(), self.devices().len());
        self.exchange(Exchange(devices));
        self.follow_mtus_anew();
    }

    /// Discards received frames: the other process has handled them.
    pub fn discard_frames(&mut self) {
        for device in self.devices_mut() {
            let mut left = MOST_STALE;
            loop {
                let mut batch = Batch::new();
                device.split().0.receive(&mut batch);
                if batch.is_empty() || left == 0 {
                    break;
                }
                left = left.saturating_sub(batch.len());
            }
        }
    }
}

impl Clock {
    /// Reads this clock and the kernel's monotonic clock (nanoseconds), so that another process on
    /// this machine can continue the clock by [`Clock::like`].
    pub fn reading(&self) -> (Timestamp, u64) {
        (self.now(), steady())
    }

    /// Continues the clock of another process from its [`Clock::reading`].
    pub fn like(reading: (Timestamp, u64)) -> Self {
        let (time, read) = reading;
        let passed = std::time::Duration::from_nanos(steady().saturating_sub(read));
        Self::at(time.plus(passed))
    }
}

/// Reads the kernel's monotonic clock, nanoseconds.
fn steady() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
