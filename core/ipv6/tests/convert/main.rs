//! Conversion of headers between the families, against RFC 7915, against a slow twin, and there and
//! back.

mod random;
mod section4;
mod section5;
mod support;
mod twin;
