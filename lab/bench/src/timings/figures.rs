//! Measured figures of a gateway, and the results of both guests.

use super::paper::{self, Compared};
use crate::spread::Spread;
use serde::Serialize;

/// A measured figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// Seconds from the emulator's start to the first packet that arrived behind the gateway.
    FirstPacket,
    /// Forwarded packets a second of 16 TCP connections, both directions together.
    Tcp,
    /// Forwarded packets a second of 16 TCP connections together with UDP.
    Mixed,
    /// Share of UDP among the packets of `Mixed`.
    UdpShare,
    /// Microseconds of a ping with this number of payload bytes.
    RoundTrip(u16),
    /// Microseconds from SYN to SYN with ACK.
    Connection,
    /// Microseconds from the request to the first byte of the answer.
    Response,
    /// Mbit/s of 16 TCP connections with this largest segment, bytes.
    Throughput(u16),
}

impl What {
    /// Description for people.
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

    /// Result of the paper. Its throughput is for its largest segments.
    pub(super) fn paper(self) -> Option<Compared> {
        /// Largest segment on a link of 1500 bytes, with time stamps.
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

/// Results of one figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) what: What,
    /// Values of the image and of the Linux guest, and the ratios of the image's to Linux' values.
    /// A ratio is of two measurements one after the other.
    pub(super) image: Spread,
    pub(super) linux: Spread,
    pub(super) ratio: Spread,
}

/// Values during the measurement.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<(What, [Vec<f64>; 3])>);

impl Samples {
    /// Adds values of the image and of the Linux guest, measured one after the other.
    pub(super) fn add(&mut self, what: What, image: &[f64], linux: &[f64]) {
        let place = self.0.iter().position(|(known, _)| *known == what).unwrap_or_else(|| {
            self.0.push((what, Default::default()));
            self.0.len() - 1
        });
        let [images, linuxes, ratios] = &mut self.0[place].1;
        images.extend(image);
        linuxes.extend(linux);
        let ratio = Spread::of(image).median / Spread::of(linux).median;
        // Without values, or with a value of zero, there is no ratio.
        ratios.extend(Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0));
    }

    /// Results of all figures.
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
