//! The requirements and their tests, by topic.
//!
//! A [`Trial`] is one test of one requirement, or of several that the same packets show. Tests use
//! only packets: they find the translator's configuration themselves, or read it from the options.
//! A requirement that packets cannot show is listed with the reason.

mod address;
mod cgn;
mod dccp;
mod fragments;
mod icmp;
mod icmp_errors;
mod mapping;
mod nat64;
mod nat64_tcp;
mod nat64_time;
mod own_errors;
mod refresh;
mod router;
mod siit;
mod siit_cut;
mod siit_icmp;
mod tcp;
mod timers;
mod udp;
mod unseen;

use crate::setup::Timers;
use crate::stage::{Finding, Stage};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A running test.
pub(crate) type Running<'s> = Pin<Box<dyn Future<Output = Vec<Finding>> + 's>>;

/// A test with one finding for each of its requirements.
pub(crate) type Run = for<'s> fn(&'s Stage) -> Running<'s>;

/// Schedule of a test.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Beside other tests.
    Quick(Run),
    /// After the other tests, because it floods the translator.
    Alone(Run),
    /// Waits for timers, with the longest wait.
    Timed(fn(&Timers) -> Duration, Run),
}

/// Requirements of one test, by name.
pub(crate) struct Trial {
    pub(crate) requirements: &'static [&'static str],
    pub(crate) kind: Kind,
}

/// Makes a [`Run`] of a test of one requirement.
macro_rules! one {
    ($test:path $(, $argument:expr)*) => {
        |stage| Box::pin(async move { vec![$test(stage $(, $argument)*).await] })
    };
}

/// Makes a [`Run`] of a test of several requirements.
macro_rules! several {
    ($test:path $(, $argument:expr)*) => {
        |stage| Box::pin(async move { Vec::from($test(stage $(, $argument)*).await) })
    };
}

pub(crate) use {one, several};

/// Every test.
pub(crate) fn trials() -> impl Iterator<Item = &'static Trial> {
    let topics: [&'static [Trial]; 17] = [
        udp::TRIALS,
        tcp::TRIALS,
        icmp::TRIALS,
        icmp_errors::TRIALS,
        own_errors::TRIALS,
        dccp::TRIALS,
        fragments::TRIALS,
        address::TRIALS,
        cgn::TRIALS,
        router::TRIALS,
        timers::TRIALS,
        nat64::TRIALS,
        nat64_tcp::TRIALS,
        nat64_time::TRIALS,
        siit::TRIALS,
        siit_cut::TRIALS,
        siit_icmp::TRIALS,
    ];
    topics.into_iter().flatten().chain(refresh::TRIALS)
}

/// Test of a requirement, if there is one.
pub(crate) fn find(id: &str) -> Option<&'static Trial> {
    trials().find(|trial| trial.requirements.contains(&id))
}

pub(crate) use unseen::why_unseen;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_trial_is_of_known_requirements_and_none_is_tried_twice() {
        let mut seen = HashSet::new();
        for id in trials().flat_map(|trial| trial.requirements).copied().chain(unseen::NAMED) {
            assert!(crate::catalogue::find(id).is_some(), "{id} is not in requirements/");
            assert!(seen.insert(id), "{id} is there twice");
        }
    }
}
