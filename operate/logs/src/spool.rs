//! The spool: events in compressed files of a folder, searched for the holder of an external
//! endpoint.
//!
//! A file, called segment, is named after its place in the order of writing and the time of its
//! first event. It consists of frames: the events of one second or a few thousand, compressed, with
//! checksums. The header of a frame has the times of its events, its number, and a filter that
//! excludes most external endpoints that are not in it. So a search reads few frames. An incomplete
//! frame does not count: a crash loses at most the last one.
//!
//! | module | does |
//! |---|---|
//! | `format` | segments, frames, entries in bytes |
//! | `filter` | filter of a frame's external endpoints |
//! | `note` | the progress of a run in bytes |
//! | `segments` | the files: named, written, thrown away |
//! | `reader` | one segment, read |
//! | `outline` | which frames there are, which spans of time they cover, and the gaps between |
//! | `search` | who had an external endpoint |

mod filter;
pub(crate) mod format;
mod note;
pub(crate) mod outline;
pub(crate) mod reader;
pub(crate) mod search;
pub(crate) mod segments;
