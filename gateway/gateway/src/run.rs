//! The loop of a worker: turns while there is traffic, a short spin after it, then sleep until a
//! frame comes or work is due.
//!
//! A core that others share must not be held for long: after [`SPIN`] without a frame the thread
//! sleeps in the kernel, which wakes it in microseconds.

use crate::clock::Clock;
use crate::limits::MOST_DEVICES;
use crate::observer::Observer;
use crate::worker::Worker;
use natgate_io::wait;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time to look for frames before sleeping.
const SPIN: Duration = Duration::from_micros(50);

/// Longest sleep while another process is about to take over.
const STANDING: Duration = Duration::from_millis(10);

/// Signals to a running gateway: set a flag, then write a byte to the other end of `wake`.
#[derive(Debug)]
pub struct Controls<'a> {
    /// Set to stop the gateway.
    pub stop: &'a AtomicBool,
    /// Set to report the state to the observer.
    pub status: &'a AtomicBool,
    /// Stream of the bytes that wake the worker; non-blocking.
    pub wake: &'a UnixStream,
}

/// Runs a worker until it is stopped.
///
/// # Errors
/// The system's error if waiting fails.
pub fn run(
    worker: &mut Worker,
    clock: &Clock,
    controls: &Controls<'_>,
    observer: &mut dyn Observer,
) -> io::Result<()> {
    let mut last_frame = clock.now();
    let mut last_turn = None;
    while !controls.stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if let Some((began, frames)) = last_turn.take() {
            worker.note_turn(began, now, frames);
        }
        let frames = worker.turn(now, observer);
        last_turn = Some((now, frames));
        if frames > 0 {
            last_frame = now;
        } else if now.since(last_frame) >= SPIN {
            worker.report_events(now, observer);
            observer.passed(now);
            observer.idle();
            sleep(worker, clock, controls, observer)?;
        } else {
            std::hint::spin_loop();
        }
        if controls.status.swap(false, Ordering::Relaxed) {
            observer.status(&worker.status(now));
        }
    }
    worker.take_leave(clock.now());
    worker.report_events(clock.now(), observer);
    Ok(())
}

/// Sleeps until a frame comes, work is due, or a signal comes.
fn sleep(
    worker: &mut Worker,
    clock: &Clock,
    controls: &Controls<'_>,
    observer: &mut dyn Observer,
) -> io::Result<()> {
    if worker.is_halted() {
        return if worker.is_told() { Ok(()) } else { stand_by(controls) };
    }
    if !worker.falls_asleep() {
        return Ok(());
    }
    let began = clock.now();
    let due = worker.next_deadline().since(clock.now());
    let intervals = worker.devices().iter().filter_map(|device| device.poll_interval());
    let timeout = intervals.fold(due, Duration::min);
    let devices = worker.devices().iter().filter_map(|device| device.readiness());
    let descriptors: arrayvec::ArrayVec<_, { MOST_DEVICES + 1 }> =
        std::iter::once(controls.wake.as_fd()).chain(devices).collect();
    let trouble = wait(&descriptors, timeout)?;
    drop(descriptors);
    worker.wakes_up();
    swallow(controls.wake);
    let now = clock.now();
    worker.note_sleep(began, now);
    if trouble {
        worker.maintain(now, observer);
    }
    Ok(())
}

/// Sleeps until a signal comes, or [`STANDING`] has passed: frames that wait belong to another
/// process.
fn stand_by(controls: &Controls<'_>) -> io::Result<()> {
    wait(&[controls.wake.as_fd()], STANDING)?;
    swallow(controls.wake);
    Ok(())
}

/// Reads the bytes that woke the worker.
fn swallow(mut wake: &UnixStream) {
    let mut bytes = [0; 64];
    while matches!(wake.read(&mut bytes), Ok(count) if count > 0) {}
}
