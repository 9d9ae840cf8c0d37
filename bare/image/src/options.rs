//! Options on the boot loader's command line, behind the name of the image.

use natgate_p4::programs;
use natgate_timings::Size;

/// Options of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Start at once, without waiting for a key.
    pub start: bool,
    /// Draw ports by this seed, like `natgate replay --seed`, so that they are predictable: for
    /// tests.
    pub seed: Option<u64>,
    /// Run this P4 program in place of the gateway. The file beside the image has the entries of
    /// its tables.
    pub p4: Option<&'static str>,
    /// Measure the engine's timings on this machine, and restart the machine.
    pub timings: Option<Size>,
    /// Fill the largest table that this machine's memory can hold, and restart the machine.
    pub fill: bool,
}

impl Options {
    /// Parses the options.
    ///
    /// # Errors
    /// The first unknown word, in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for word in text.split_ascii_whitespace() {
            match (word, word.split_once('=')) {
                ("start", _) => options.start = true,
                ("fill", _) => options.fill = true,
                ("timings", _) => options.timings = Some(Size::Full),
                ("timings=quick", _) => options.timings = Some(Size::Quick),
                (_, Some(("seed", number))) => {
                    options.seed = Some(number.parse().map_err(|_| unknown(word))?);
                }
                (_, Some(("p4", name))) => {
                    let known = programs::names().find(|known| *known == name);
                    options.p4 = Some(known.ok_or_else(|| unknown(word))?);
                }
                _ => return Err(unknown(word)),
            }
        }
        Ok(options)
    }
}

fn unknown(word: &str) -> String {
    let programs: Vec<&str> = programs::names().collect();
    format!(
        "the boot loader says {word:?}, which is no option; there are start, seed=NUMBER, \
         p4=PROGRAM ({}), timings, timings=quick and fill",
        programs.join(", ")
    )
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
        assert_eq!(Options::parse("p4=nat").map(|options| options.p4), Ok(Some("nat")));
        for wrong in ["Start", "seed=", "seed=-1", "start=1", "timings=all", "p4", "p4=cat"] {
            assert!(Options::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
