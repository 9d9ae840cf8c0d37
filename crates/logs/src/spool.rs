//! The spool: events in compressed files of a folder, to be searched for who had an external endpoint.
//!
//! A file, a segment, is named after the time of its first event and has frames one after the other:
//! a second's events or a few thousand, compressed, with a check sum; before them from when to when they
//! are and a filter that tells most external endpoints that are not in there. So a search reads few
//! frames. A frame that was not written to its end is no frame: what a crash cuts off is the last one.

pub(crate) mod format;
pub(crate) mod search;
pub(crate) mod segments;
