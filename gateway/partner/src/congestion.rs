//! Congestion control of the link: that of QUIC, with a window that losses do not make smaller
//! than [`LEAST_WINDOW`].
//!
//! QUIC takes each loss for congestion. If a link loses one packet of five whatever its load is,
//! the window stays at some packets, and a copy of many mappings does not end. The nodes' link is
//! their own, and replication has a window of its own (`core/pair`), so the least window stalls
//! nobody else.

use crate::limits::LEAST_WINDOW;
use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::ControllerMetrics;
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// Makes the congestion control of a connection.
#[derive(Default)]
pub(crate) struct Congestion(Arc<CubicConfig>);

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Patient(Arc::clone(&self.0).build(now, mtu)))
    }
}

/// A congestion control with a least window.
struct Patient(Box<dyn Controller>);

impl Controller for Patient {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.0.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.0.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.0.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.0.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.0.window().max(LEAST_WINDOW)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.0.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self(self.0.clone_box()))
    }

    fn initial_window(&self) -> u64 {
        self.0.initial_window().max(LEAST_WINDOW)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
