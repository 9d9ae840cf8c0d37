//! Tests of the link on the loopback interface. Certificates are made for each test.

mod clock;
mod exchange;
mod guardian;
mod hostile;
mod knock;
mod loss;
mod questions;
mod relay;
mod renewal;
mod rig;
mod settings;
mod trust;
mod tunnel;
