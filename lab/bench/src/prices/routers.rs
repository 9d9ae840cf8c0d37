//! The edge routers of the paper's price table: packet rate with a firewall on, and price.

use super::Row;

/// A router of the paper's table.
pub(super) struct Router {
    name: &'static str,
    /// Packet rate, millions a second.
    mpps: f64,
    /// Price, dollars.
    price: f64,
}

impl Router {
    const fn new(name: &'static str, mpps: f64, price: f64) -> Self {
        Self { name, mpps, price }
    }

    pub(super) fn row(&self) -> Row {
        Row::new(self.name, self.mpps, self.price)
    }
}

/// The routers whose figures are known here: 17 of the paper's 19.
pub(super) const ROUTERS: [Router; 17] = [
    Router::new("HP MSR2021", 0.18, 760.0),
    Router::new("HP MSR1002-4", 0.5, 1_100.0),
    Router::new("HP MSR2003", 1.0, 1_700.0),
    Router::new("HP MSR50-40", 1.2, 2_500.0),
    Router::new("HP MSR3012", 2.6, 2_700.0),
    Router::new("HP MSR3040", 0.36, 3_200.0),
    Router::new("HP MSR4060", 10.0, 6_000.0),
    Router::new("Cisco 7301", 1.0, 10_000.0),
    Router::new("Cisco ASA 5515-IPS-K9", 0.5, 4_800.0),
    Router::new("Cisco ASA 5525-X", 0.7, 5_200.0),
    Router::new("Cisco ASA 5545-X", 0.9, 10_200.0),
    Router::new("Cisco ASA 5555-X", 1.0, 17_000.0),
    Router::new("Cisco 5585-X SSP10", 1.1, 14_200.0),
    Router::new("Cisco 5585-X SSP20", 2.0, 40_000.0),
    Router::new("Cisco 5585-X SSP40", 4.0, 80_000.0),
    Router::new("Cisco 5585-X SSP60", 10.0, 128_300.0),
    Router::new("Juniper SRX240", 0.2, 2_000.0),
];
