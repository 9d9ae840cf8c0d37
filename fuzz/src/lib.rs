//! Parts that the fuzz targets share: an engine under watch, and the packets it is fed.
//!
//! [`World`] holds the engine to what must be true after any input; [`packet`] makes packets that
//! look good enough to get somewhere. The targets only turn bytes into calls. Nothing here depends
//! on anything but those bytes, so that a crash repeats.

pub mod packet;
mod world;

pub use world::World;
