//! Measurements by a driver. Each subject runs between two cables, at the highest rate with a loss
//! of at most a hundredth, with one or several workers. The module `bed` has the test bed and the
//! count of processor time.

use super::{DEVICES, NATGATE, Place, Plan, Results, Way, is_fit};
use crate::bed::{self, BackEnd, BedError, Subject, Translation};
use crate::io::{Sample, sample};
use crate::program::With;
use indicatif::ProgressBar;
use natgate_tester::{self as tester, Mix};

/// Subjects and their names. The compared subjects come first, one after the other.
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

/// Results of each way and length.
type Samples = Vec<((Way, u16), Vec<Sample>)>;

/// Measures `workers` workers with `entries` flows.
pub(super) fn measure(
    plan: &Plan,
    (back_end, workers): (BackEnd, u16),
    entries: u32,
    results: &mut Results,
    bar: &ProgressBar,
) {
    for (name, subject) in subjects(back_end) {
        let driver = back_end.name();
        bar.set_message(format!("{driver}, {name}, {entries} entries, {workers} workers"));
        if !matches!(subject, Subject::Program(_, with) if !is_fit(with, entries)) {
            let laid =
                bed::Plan { subject, program: plan.program.clone(), flows: entries, workers };
            match bed::with(&laid, |bed| samples(plan, bed, entries)) {
                Ok(samples) => samples.into_iter().for_each(|((way, frame), mut samples)| {
                    let place =
                        Place { driver, cores: workers, subject: name, way, entries, frame };
                    samples.retain(|sample| sample.cpu > 0.0);
                    samples.sort_by(|one, other| one.cpu.total_cmp(&other.cpu));
                    let ns: Vec<f64> = samples.iter().map(|sample| 1e9 / sample.cpu).collect();
                    match samples.get(samples.len() / 2) {
                        Some(middle) => results.add(place, &ns, Some((*middle).into())),
                        None => {
                            let why = format!("{way:?}, {frame} bytes: nothing arrived");
                            results.fail(driver, workers, name, entries, why);
                        }
                    }
                }),
                Err(error) => results.fail(driver, workers, name, entries, error.to_string()),
            }
        }
        bar.inc(1);
    }
}

/// Measures a running subject with all ways and lengths, in turns.
fn samples(plan: &Plan, bed: &mut bed::Bed<'_>, entries: u32) -> Result<Samples, BedError> {
    bed.tester.establish(entries)?;
    let ways = [Way::Upload, Way::Download];
    let places = ways.iter().flat_map(|way| plan.frames.iter().map(|frame| (*way, *frame)));
    let mut samples: Samples = places.map(|place| (place, Vec::new())).collect();
    for _ in 0..plan.rounds {
        for ((way, frame), samples) in &mut samples {
            let sent = match way {
                Way::Upload => tester::Way::Up,
                Way::Download => tester::Way::Down,
            };
            samples.push(sample(bed, plan.time, &Mix::of(*frame)?, sent)?);
        }
    }
    Ok(samples)
}
