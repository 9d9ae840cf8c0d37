//! The words after the image's name, by which a boot loader tells it something.

use natgate_timings::Size;

/// What was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Start at once, without waiting for somebody who wants the menu.
    pub start: bool,
    /// Draw ports by this seed, as `natgate replay --seed` does, so that everybody can tell which
    /// they will be: for tests.
    pub seed: Option<u64>,
    /// Measure what the engine takes on this machine, and start the machine again.
    pub timings: Option<Size>,
    /// Fill the largest table that this machine's memory holds, and start the machine again.
    pub fill: bool,
}

impl Options {
    /// Reads the words.
    ///
    /// # Errors
    /// The first that is not understood, in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for word in text.split_ascii_whitespace() {
            match (word, word.strip_prefix("seed=").map(str::parse)) {
                ("start", _) => options.start = true,
                ("timings", _) => options.timings = Some(Size::Full),
                ("timings=quick", _) => options.timings = Some(Size::Quick),
                ("fill", _) => options.fill = true,
                (_, Some(Ok(seed))) => options.seed = Some(seed),
                _ => {
                    return Err(format!(
                        "the boot loader says {word:?}, which is no option; there are start, \
                         seed=NUMBER, timings, timings=quick and fill"
                    ));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_named() {
        assert_eq!(Options::parse(" \n"), Ok(Options::default()));
        let both = Options { start: true, seed: Some(7), ..Options::default() };
        assert_eq!(Options::parse("seed=7 start"), Ok(both));
        let timings = |size| Options { timings: Some(size), ..Options::default() };
        assert_eq!(Options::parse("timings"), Ok(timings(Size::Full)));
        assert_eq!(Options::parse("timings=quick"), Ok(timings(Size::Quick)));
        assert!(Options::parse("fill").is_ok_and(|options| options.fill));
        for wrong in ["Start", "seed=", "seed=-1", "start=1", "timings=all"] {
            assert!(Options::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
