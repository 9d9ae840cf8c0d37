//! Schedule of the tests.
//!
//! Tests are futures on one thread. Tests that wait for timers all begin at once, so the whole
//! suite takes as long as the longest of them. The other tests take turns, a few at a time. Tests
//! that would disturb others come last, alone except for the waiting ones. If no test can continue,
//! the bench waits for a packet, or until the earliest time that a test waits for.

use crate::report::Item;
use crate::stage::{Stage, World};
use crate::suite::{Kind, Trial};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

/// Most simultaneous tests without timers.
const AT_A_TIME: usize = 6;

/// Pause after a disturbing test, in which rate limits recover.
const RECOVERY: Duration = Duration::from_millis(1500);

/// Classes of tests: with timers, in turns, disturbing.
const WAIT: usize = 0;
const TURNS: usize = 1;
const DISTURB: usize = 2;

type Task = Pin<Box<dyn Future<Output = Vec<Item>>>>;

/// Runs one future to its end, alone.
pub(crate) fn run_alone<T>(world: &Rc<RefCell<World>>, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let std::task::Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        wait(world);
    }
}

/// Runs tests to their end; reports each requirement's result as soon as it is known.
pub(crate) fn run_all(
    world: &Rc<RefCell<World>>,
    trials: Vec<&'static Trial>,
    observer: &mut dyn FnMut(&Item),
) -> Vec<Item> {
    let mut waiting: [VecDeque<&'static Trial>; 3] = Default::default();
    for trial in trials {
        waiting[class(trial)].push_back(trial);
    }
    let mut running: Vec<(usize, Task)> = Vec::new();
    let mut items = Vec::new();
    loop {
        while let Some((class, task)) = start(world, &mut waiting, &running) {
            running.push((class, task));
        }
        let before = items.len();
        poll(&mut running, &mut items);
        items[before..].iter().for_each(&mut *observer);
        if running.is_empty() && waiting.iter().all(VecDeque::is_empty) {
            return items;
        }
        if items.len() == before {
            wait(world);
        }
    }
}

fn class(trial: &Trial) -> usize {
    match trial.kind {
        Kind::Timed(..) => WAIT,
        Kind::Quick(_) => TURNS,
        Kind::Alone(_) => DISTURB,
    }
}

/// Starts a test if the schedule permits one.
fn start(
    world: &Rc<RefCell<World>>,
    waiting: &mut [VecDeque<&'static Trial>; 3],
    running: &[(usize, Task)],
) -> Option<(usize, Task)> {
    let busy = |class: usize| running.iter().filter(|(its, _)| *its == class).count();
    let class = if !waiting[WAIT].is_empty() {
        WAIT
    } else if !waiting[TURNS].is_empty() && busy(TURNS) < AT_A_TIME {
        TURNS
    } else if !waiting[DISTURB].is_empty() && busy(TURNS) + busy(DISTURB) == 0 {
        DISTURB
    } else {
        return None;
    };
    let stage = Stage::lease(world)?;
    let trial = waiting[class].pop_front()?;
    Some((class, Box::pin(act(stage, trial))))
}

/// Runs a test from its beginning to its results.
async fn act(stage: Stage, trial: &'static Trial) -> Vec<Item> {
    let begin = stage.now();
    let findings = match trial.kind {
        Kind::Quick(run) | Kind::Timed(_, run) => run(&stage).await,
        Kind::Alone(run) => {
            let findings = run(&stage).await;
            stage.rest(RECOVERY).await;
            findings
        }
    };
    let seconds = (stage.now() - begin).as_secs_f64();
    let evidence = stage.finish();
    // One finding may be about all requirements of the test.
    assert!([1, trial.requirements.len()].contains(&findings.len()), "{:?}", trial.requirements);
    let pairs = trial.requirements.iter().zip(findings.into_iter().cycle());
    pairs
        .map(|(requirement, finding)| Item::new(requirement, finding, &evidence, seconds))
        .collect()
}

/// Polls all tests.
fn poll(running: &mut Vec<(usize, Task)>, items: &mut Vec<Item>) {
    let mut context = Context::from_waker(Waker::noop());
    running.retain_mut(|(_, task)| match task.as_mut().poll(&mut context) {
        std::task::Poll::Ready(found) => {
            items.extend(found);
            false
        }
        std::task::Poll::Pending => true,
    });
}

/// Waits for a packet, or until the earliest time that a test waits for; processes received frames.
fn wait(world: &Rc<RefCell<World>>) {
    let mut world = world.borrow_mut();
    let Some(mut until) = world.take_wake() else { return };
    while let Some((side, frame)) = world.bench.receive(until) {
        world.take_in(side, &frame);
        // The frames that have already come.
        until = Duration::ZERO;
    }
}
