//! Conversion of headers between the families, against RFC 7915, against the model, and there and
//! back.

mod random;
#[path = "../common/rng.rs"]
mod rng;
mod section4;
mod section5;
mod support;
