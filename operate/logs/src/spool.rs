//! The spool: events in compressed files of a folder, to be searched for who had an external
//! endpoint.
//!
//! A file, a segment, is named after its place in the order of writing and the time of its first
//! event. It has frames one after the other: a second's events or a few thousand, compressed, with
//! check sums; before them from when to when they are, their number, and a filter that tells most
//! external endpoints that are not in there. So a search reads few frames. A frame that was not
//! written to its end is no frame: a crash cuts off the last one at most.
//!
//! | module | does |
//! |---|---|
//! | `format` | segments, frames, entries in bytes |
//! | `segments` | the files: named, written, thrown away |
//! | `reader` | one segment, read |
//! | `outline` | which frames there are, which spans of time they cover, and the gaps between |
//! | `search` | who had an external endpoint |

pub(crate) mod format;
pub(crate) mod outline;
pub(crate) mod reader;
pub(crate) mod search;
pub(crate) mod segments;
