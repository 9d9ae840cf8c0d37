//! Lengths of frames: all equal, or a mix with a share for each length.
//!
//! A length is that on the wire, with the frame check sequence of 4 bytes.

use crate::TesterError;

/// Lengths of consecutive frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    lengths: Vec<u16>,
    name: &'static str,
}

impl Mix {
    /// All frames have this length, 64 to 1518 bytes.
    ///
    /// # Errors
    /// [`TesterError::Plan`] if no frame has that length.
    pub fn of(len: u16) -> Result<Self, TesterError> {
        if (64..=1518).contains(&len) {
            Ok(Self { lengths: vec![len], name: "" })
        } else {
            Err(TesterError::Plan("frames have 64 to 1518 bytes"))
        }
    }

    /// The mix of FD.io's CSIT: 28 of 64 bytes, 16 of 570, 4 of 1518, 353.8 on average.
    pub fn imix() -> Self {
        // 7 : 4 : 1, without consecutive equal lengths where possible.
        let lengths = vec![64, 570, 64, 570, 64, 64, 1518, 64, 570, 64, 570, 64];
        Self { lengths, name: "IMIX" }
    }

    /// The mix of Chugh 2003: 7 of 64 bytes, 2 of 570, 2 of 1024, 1 of 1500; 428 on average.
    pub fn chugh() -> Self {
        let lengths = vec![64, 570, 64, 1024, 64, 64, 1500, 64, 570, 64, 1024, 64];
        Self { lengths, name: "IMIX" }
    }

    /// Lengths of consecutive frames; the sequence repeats.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u16> {
        self.lengths.iter().copied()
    }

    /// Mean length of a frame, bytes.
    pub fn mean(&self) -> f64 {
        self.lengths().map(f64::from).sum::<f64>() / self.lengths.len() as f64
    }

    /// Name: `64`, or `IMIX`.
    pub fn name(&self) -> String {
        if self.name.is_empty() { self.lengths[0].to_string() } else { self.name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_have_their_means() {
        assert!((Mix::imix().mean() - 353.8).abs() < 0.1, "{}", Mix::imix().mean());
        assert!((Mix::chugh().mean() - 428.0).abs() < 0.5, "{}", Mix::chugh().mean());
        assert_eq!(Mix::of(1518).map(|mix| mix.mean()).ok(), Some(1518.0));
        assert!(Mix::of(63).is_err() && Mix::of(1519).is_err());
    }
}
