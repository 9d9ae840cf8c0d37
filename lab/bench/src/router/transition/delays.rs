//! Figures of the delays of one stream, RFC 8219 sections 7.2 and 7.3, microseconds.

use super::chain::Outcome;
use super::summary::{median, percentile};

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delays {
    /// Typical latency: the median of the tagged frames.
    pub(super) typical: f64,
    /// Worst-case latency: the 99.9th percentile of the tagged frames.
    pub(super) worst: f64,
    /// Variation: the difference between the 99.9th percentile and the least delay of all frames.
    pub(super) pdv: f64,
    /// Least, median and largest difference between the delays of two consecutive frames.
    pub(super) ipdv: [f64; 3],
    /// Frames that did not arrive.
    pub(super) lost: u64,
}

impl Delays {
    /// The figures of a stream of `count` frames from each side. Of these, `tagged` frames are
    /// tagged: evenly spaced in the second half.
    pub(super) fn of(outcome: &Outcome, count: u64, tagged: u64) -> Self {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let (mut tags, mut all, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for delays in &outcome.delays {
            for (number, delay) in delays {
                let delay = microseconds(*delay);
                if is_tagged(*number, count, tagged) {
                    tags.push(delay);
                }
                all.push(delay);
            }
            let consecutive = delays.windows(2).filter(|two| two[0].0 + 1 == two[1].0);
            steps.extend(consecutive.map(|two| microseconds(two[1].1) - microseconds(two[0].1)));
        }
        for values in [&mut tags, &mut all, &mut steps] {
            values.sort_by(f64::total_cmp);
        }
        let of_steps = |share| percentile(&steps, share);
        Self {
            typical: median(&tags),
            worst: percentile(&tags, 0.999),
            pdv: percentile(&all, 0.999) - percentile(&all, 0.0),
            ipdv: [of_steps(0.0), median(&steps), of_steps(1.0)],
            lost: outcome.lost(),
        }
    }
}

/// True if a frame is tagged.
fn is_tagged(number: u64, count: u64, tagged: u64) -> bool {
    let (first, step) = (count / 2, (count / 2 / tagged).max(1));
    let place = number.checked_sub(first);
    place.is_some_and(|place| place % step == 0 && place / step < tagged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_hundred_frames_of_the_second_half_are_tagged() {
        for count in [1000, 1001, 5432, 1_000_000] {
            let tagged: Vec<u64> = (0..count).filter(|it| is_tagged(*it, count, 500)).collect();
            assert_eq!(tagged.len(), 500, "of {count}");
            assert!(tagged[0] == count / 2 && tagged[499] < count);
            assert!(count < 5000 || tagged[499] > count * 9 / 10, "the last is {}", tagged[499]);
        }
    }

    #[test]
    fn figures_are_those_of_the_rfc() {
        // A delay of 1 us that grows by 10 ns with each frame; one frame is lost.
        let delays = |from: u64| (0..1000).map(|it| (it, from + 10 * it)).collect::<Vec<_>>();
        let mut outcome = Outcome {
            sent: 2000,
            received: 1999,
            delays: [delays(1000), delays(1000)],
            ..Outcome::default()
        };
        outcome.delays[1].remove(100);
        let Delays { typical, worst, pdv, ipdv, lost } = Delays::of(&outcome, 1000, 500);
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        assert!(near(typical, 1.0 + 7.495) && near(worst, 1.0 + 9.99), "{typical} {worst}");
        assert!(near(pdv, 9.99), "{pdv}");
        assert!(ipdv.iter().all(|step| near(*step, 0.01)), "{ipdv:?}");
        assert_eq!(lost, 1);
    }
}
