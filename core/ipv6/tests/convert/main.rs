//! Conversion of headers between the families, against RFC 7915, against the model, and there and
//! back.

mod random;
mod section4;
mod section5;
mod support;
