//! A program between two devices: the first is port 1, the second port 2.

use crate::machine::{CONTROLLER_PORT, Fate, Machine};
use crate::request_queue::RequestQueue;
use crate::team::Team;
use natgate_io::{BATCH, Batch, Device};
use std::fmt::{self, Display, Formatter};
use std::iter::Sum;
use std::sync::Arc;
use std::time::Duration;

/// Port of the first device; the second device has the next number.
pub const FIRST_PORT: u32 = 1;

/// A program, and the devices of its ports.
#[derive(Debug)]
pub struct Switch<'p> {
    team: Arc<Team<'p>>,
    /// Number of this thread in the team.
    thread: usize,
    devices: [Box<dyn Device>; 2],
    counts: Counts,
}

/// Counters of frames by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came in.
    pub received: u64,
    /// Frames that left.
    pub sent: u64,
    /// Frames that the program dropped.
    pub dropped: u64,
    /// Frames that went to controllers.
    pub told: u64,
    /// Frames to ports that do not exist, or to controllers while none listened.
    pub elsewhere: u64,
    /// Frames that should have left, but had no room for their new headers, or were refused by the
    /// link.
    pub lost: u64,
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            sent: sum.sent + one.sent,
            dropped: sum.dropped + one.dropped,
            told: sum.told + one.told,
            elsewhere: sum.elsewhere + one.elsewhere,
            lost: sum.lost + one.lost,
        })
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { received, sent, dropped, told, elsewhere, lost } = self;
        write!(
            f,
            "{received} frames received, {sent} sent, {dropped} dropped by the program, {told} to \
             controllers, {elsewhere} for ports that are not there, {lost} lost"
        )
    }
}

impl<'p> Switch<'p> {
    /// Creates a switch of a program and these devices.
    pub fn new(machine: Machine<'p>, devices: [Box<dyn Device>; 2]) -> Self {
        Self::of_team(&Arc::new(Team::new(vec![machine])), 0, devices)
    }

    /// Creates the switch of a thread of the team: it has these devices of its own, or queues of
    /// devices. The switches of a team are numbered from 0.
    pub fn of_team(team: &Arc<Team<'p>>, thread: usize, devices: [Box<dyn Device>; 2]) -> Self {
        Self { team: Arc::clone(team), thread, devices, counts: Counts::default() }
    }

    /// Processes a batch of each device at a time; returns the number of frames that came in.
    pub fn turn(&mut self, now: Duration) -> usize {
        self.pass(now, 0) + self.pass(now, 1)
    }

    /// Answers a waiting message of a controller at a time; returns true if there was one. Call it
    /// between turns.
    pub fn answer(&mut self, now: Duration, requests: &RequestQueue) -> bool {
        let message = requests.wait(Duration::ZERO);
        message.map(|message| message.answer(&mut self.team.hold(now))).is_some()
    }

    /// The devices, for waiting.
    pub fn devices(&self) -> &[Box<dyn Device>; 2] {
        &self.devices
    }

    /// Maintains the links.
    pub fn maintain(&mut self) {
        self.devices.iter_mut().for_each(|device| drop(device.maintain()));
    }

    /// Counters of frames by fate.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn pass(&mut self, now: Duration, from: usize) -> usize {
        let Self { team, thread, devices: [first, second], counts } = self;
        let [(first_in, first_out), (second_in, second_out)] = [first.split(), second.split()];
        let receiver = if from == 0 { first_in } else { second_in };
        let mut batch = Batch::new();
        receiver.receive(&mut batch);
        let taken = batch.len();
        if taken == 0 {
            return 0;
        }
        let mut fates = [Fate::Dropped; BATCH];
        team.take(*thread).forward_all(now, FIRST_PORT + from as u32, &mut batch, &mut fates);
        let (mut first, mut second) = (Batch::new(), Batch::new());
        let mut leaving = [&mut first, &mut second];
        // A batch is iterated in place, because moving it would cost too much.
        for (mut frame, fate) in batch.drain(..).zip(&fates) {
            match *fate {
                Fate::Sent { port, start } => {
                    let (_, end) = frame.range();
                    frame.set_range(start, end);
                    match leaving.get_mut(port.wrapping_sub(FIRST_PORT) as usize) {
                        Some(frames) => frames.push(frame),
                        None if port == CONTROLLER_PORT
                            && team.take(*thread).tell(frame.bytes()) =>
                        {
                            counts.told += 1;
                        }
                        None => counts.elsewhere += 1,
                    }
                }
                Fate::Dropped => counts.dropped += 1,
                Fate::NoRoom => counts.lost += 1,
            }
        }
        for (device, frames) in [first_out, second_out].into_iter().zip(leaving) {
            if !frames.is_empty() {
                let lost = u64::from(device.transmit(frames).count());
                counts.lost += lost;
                counts.sent += frames.len() as u64 - lost;
            }
        }
        counts.received += taken as u64;
        taken
    }
}
