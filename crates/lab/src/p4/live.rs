//! By a driver: each between two cables, with packets from outside, at the highest rate of which at most a hundredth is
//! lost. The bed is `bed`'s, and so is how processor time is counted.

use super::{DEVICES, Found, NATGATE, Place, Plan, Way, is_fit};
use crate::bed::{self, BackEnd, BedError, Subject, Translation};
use crate::io::{Sample, sample};
use crate::program::With;
use indicatif::ProgressBar;
use natgate_tester::{self as tester, Mix};

/// What is measured, and what it is called; those that are compared first, one after the other.
pub(super) fn subjects(back_end: BackEnd) -> Vec<(&'static str, Subject)> {
    let program = |with: With| (with.name(), Subject::Program(back_end, with));
    let compared = [
        (NATGATE, Subject::Natgate(back_end, Translation::Pool)),
        program(With::Rust),
        (DEVICES, Subject::Forwarder(back_end)),
    ];
    let others = With::all().filter(|with| *with != With::Rust).map(program);
    compared.into_iter().chain(others).collect()
}

/// Measures with so many flows.
pub(super) fn measure(
    plan: &Plan,
    back_end: BackEnd,
    entries: u32,
    found: &mut Found,
    bar: &ProgressBar,
) {
    for (name, subject) in subjects(back_end) {
        bar.set_message(format!("{}, {name}, {entries} entries", back_end.name()));
        if !matches!(subject, Subject::Program(_, with) if !is_fit(with, entries)) {
            let laid =
                bed::Plan { subject, program: plan.program.clone(), flows: entries, workers: 1 };
            match bed::with(&laid, |bed| samples(plan, bed, entries)) {
                Ok(samples) => samples.into_iter().for_each(|(way, frame, sample)| {
                    let driver = back_end.name();
                    let place = Place { driver, cores: 1, subject: name, way, entries, frame };
                    match sample.cpu > 0.0 {
                        true => found.add(place, &[1e9 / sample.cpu], Some(sample.into())),
                        false => {
                            let why = format!("{way:?}, {frame} bytes: nothing arrived");
                            found.fail(driver, 1, name, entries, why);
                        }
                    }
                }),
                Err(error) => found.fail(back_end.name(), 1, name, entries, error.to_string()),
            }
        }
        bar.inc(1);
    }
}

/// A subject at work with all ways and lengths.
fn samples(
    plan: &Plan,
    bed: &mut bed::Bed<'_>,
    entries: u32,
) -> Result<Vec<(Way, u16, Sample)>, BedError> {
    bed.tester.establish(entries)?;
    let mut samples = Vec::new();
    for (way, sent) in [(Way::Upload, tester::Way::Up), (Way::Download, tester::Way::Down)] {
        for &frame in &plan.frames {
            samples.push((way, frame, sample(bed, plan.time, &Mix::of(frame)?, sent)?));
        }
    }
    Ok(samples)
}
