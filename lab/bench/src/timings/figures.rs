//! What a gateway is measured at, and what both guests have come to.

use super::paper::{self, Compared};
use crate::spread::Spread;
use serde::Serialize;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// From the emulator's start to the first packet that arrived beyond the gateway, seconds.
    FirstPacket,
    /// Packets forwarded a second, both directions together: 16 TCP connections.
    Tcp,
    /// The same with UDP beside it.
    Mixed,
    /// Which part of those was UDP.
    UdpShare,
    /// Microseconds of a ping that carries so many bytes.
    RoundTrip(u16),
    /// From SYN to SYN with ACK, microseconds.
    Connection,
    /// From the request to the answer's first byte, microseconds.
    Response,
    /// Mbit/s of 16 TCP connections by their largest segment, bytes.
    Throughput(u16),
}

impl What {
    /// As people are told.
    pub(super) fn text(self) -> String {
        match self {
            Self::FirstPacket => "seconds to the first packet".into(),
            Self::Tcp => "packets a second, TCP".into(),
            Self::Mixed => "packets a second, 80 % TCP, 20 % UDP".into(),
            Self::UdpShare => "part of those that was UDP".into(),
            Self::RoundTrip(bytes) => format!("round trip with {bytes} bytes, us"),
            Self::Connection => "HTTP connection, us".into(),
            Self::Response => "HTTP response, us".into(),
            Self::Throughput(segment) => {
                format!("16 TCP connections, segments of {segment} bytes, Mbit/s")
            }
        }
    }

    /// What the paper says of it; its throughput is at its largest segments.
    pub(super) fn paper(self) -> Option<Compared> {
        /// The largest segment of a link of 1500 bytes, and of its time stamps.
        const LARGEST: u16 = 1448;
        match self {
            Self::Tcp => Some(paper::TCP_PPS),
            Self::Mixed => Some(paper::MIXED_PPS),
            Self::Connection => Some(paper::CONNECTION_MS),
            Self::Response => Some(paper::RESPONSE_MS),
            Self::Throughput(LARGEST) => Some(paper::THROUGHPUT),
            _ => None,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) what: What,
    /// The image's values, the Linux guest's, and how many times Linux' the image's was, of two
    /// measurements one after the other each.
    pub(super) image: Spread,
    pub(super) linux: Spread,
    pub(super) ratio: Spread,
}

/// Values while they are measured.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<(What, [Vec<f64>; 3])>);

impl Samples {
    /// Adds what the image and the Linux guest were measured at one after the other.
    pub(super) fn add(&mut self, what: What, image: &[f64], linux: &[f64]) {
        let place = self.0.iter().position(|(known, _)| *known == what).unwrap_or_else(|| {
            self.0.push((what, Default::default()));
            self.0.len() - 1
        });
        let [images, linuxes, ratios] = &mut self.0[place].1;
        images.extend(image);
        linuxes.extend(linux);
        let ratio = Spread::of(image).median / Spread::of(linux).median;
        // Without values, or when nothing came through, there is none.
        ratios.extend(Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0));
    }

    /// What they come to.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let figure = |(what, values): &(What, [Vec<f64>; 3])| {
            let [image, linux, ratio] = values.each_ref().map(|values| Spread::of(values));
            Figure { what: *what, image, linux, ratio }
        };
        self.0.iter().map(figure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_neighbours() {
        let mut samples = Samples::default();
        samples.add(What::Tcp, &[10.0], &[5.0]);
        samples.add(What::RoundTrip(64), &[1.0, 2.0, 9.0], &[4.0]);
        samples.add(What::Tcp, &[30.0], &[10.0]);
        samples.add(What::Tcp, &[], &[10.0]);
        samples.add(What::Tcp, &[0.0], &[0.0]);
        let figures = samples.figures();
        assert_eq!(
            figures.iter().map(|f| f.what).collect::<Vec<_>>(),
            [What::Tcp, What::RoundTrip(64)]
        );
        let Spread { min, max, runs, .. } = figures[0].ratio;
        assert_eq!((min, max, runs, figures[0].image.runs), (2.0, 3.0, 2, 3));
        assert_eq!(figures[1].ratio.median, 0.5);
    }
}
