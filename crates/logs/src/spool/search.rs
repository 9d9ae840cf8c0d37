//! Who had an external endpoint: the spool, searched from a time on into the past.
//!
//! The latest that is told of the endpoint until then decides: it began, so somebody has it; it ended, so
//! nobody does, or who has not been told of. If nothing is told before, what ends first after it had been
//! there. Only frames whose time and filter fit are unpacked; files are mapped nowhere and read as they
//! are, also while the gateway writes.

use super::format::{Entry, Filter, HEADER, Head, Holding, SEGMENT};
use super::segments::{Segment, list};
use crate::json::{endpoint, protocol as name_of, seconds};
use natgate_engine::{Endpoint, Timestamp};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The most that a segment's header may say of realms, bytes.
const MOST_NAMES: usize = 1 << 20;

/// Sessions that are told at most.
const MOST_HOLDERS: usize = 1000;

/// Who had an external endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// The subscriber.
    pub subscriber: Ipv4Addr,
    /// Its realm, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// The protocol; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The internal endpoint, if it was a mapping or a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<String>,
    /// The external address.
    pub external: Ipv4Addr,
    /// The port, or the block of ports.
    pub ports: String,
    /// A session's remote endpoint, if the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Since when, seconds since 1970; `None`: since before the log begins.
    pub since: Option<f64>,
    /// Until when; `None`: as far as the log goes.
    pub until: Option<f64>,
    /// Events that are missing in the log between then and the time in question: if there are any, the
    /// answer may be wrong.
    #[serde(skip_serializing_if = "is_zero")]
    pub missing: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The spool cannot be read.
    #[error("{}: cannot be read: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It has nothing of that time.
    #[error("the log has nothing from before that time")]
    TooEarly,
    /// Nobody is known to have had it.
    #[error("the log names nobody who had it then{}", after(.last, *.missing))]
    Nobody {
        /// Who had it last before.
        last: Option<Box<Holder>>,
        /// Events that are missing in the log about that time.
        missing: u64,
    },
}

/// What may help although nobody had it.
fn after(last: &Option<Box<Holder>>, missing: u64) -> String {
    let last = last.as_ref().map(|last| {
        let until = last.until.unwrap_or_default();
        format!("; {} had it until {until:.3}", last.subscriber)
    });
    let missing = (missing > 0).then(|| format!("; {missing} events are missing there"));
    last.into_iter().chain(missing).collect()
}

/// Who had an external endpoint at a time, by the spool in a folder: one mapping or block, or the
/// sessions that there were; of another protocol each, if none is given.
///
/// # Errors
/// [`SearchError`].
pub fn holders(
    folder: &Path,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
) -> Result<Vec<Holder>, SearchError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| SearchError::Io { path, error }
    };
    let segments = list(folder).map_err(io(folder))?;
    let mut search = Search { external, protocol, at, found: Vec::new(), missing: 0, done: false };
    let mut is_before = false;
    for segment in segments.iter().rev() {
        if segment.from > at {
            continue;
        }
        is_before = true;
        search.backward(segment).map_err(io(&segment.path))?;
        if search.done {
            break;
        }
    }
    let (open, ended): (Vec<_>, Vec<_>) = search.found.iter().partition(|one| one.ended.is_none());
    if open.is_empty() && ended.is_empty() && !search.done {
        // What ends after it had begun before all.
        for segment in &segments {
            let next = search.forward(segment).map_err(io(&segment.path))?;
            match next {
                Next::Ends(holder) => return Ok(vec![*holder]),
                Next::Begins => break,
                Next::Nothing => {}
            }
        }
    }
    if !open.is_empty() {
        let until = |found: &Found| {
            let mut until = None;
            for segment in &segments {
                if until.is_none() {
                    until = search.end_of(segment, &found.holding).map_err(io(&segment.path))?;
                }
            }
            Ok(found.holder(search.missing, until))
        };
        return open.into_iter().map(until).collect();
    }
    if !is_before {
        return Err(SearchError::TooEarly);
    }
    let last = ended.first().map(|found| Box::new(found.holder(0, found.ended)));
    Err(SearchError::Nobody { last, missing: search.missing })
}

/// What was found of an endpoint.
#[derive(Clone, Debug)]
struct Found {
    holding: Holding,
    realm: Option<String>,
    since: Option<Timestamp>,
    ended: Option<Timestamp>,
}

impl Found {
    fn holder(&self, missing: u64, until: Option<Timestamp>) -> Holder {
        let Holding { protocol, subscriber, internal_port, external, ports, remote, .. } =
            self.holding;
        let (first, last) = ports;
        let internal = internal_port.map(|port| endpoint(Endpoint { address: subscriber, port }));
        Holder {
            subscriber,
            realm: self.realm.clone(),
            protocol: protocol.map(name_of),
            internal,
            external,
            ports: if first == last { first.to_string() } else { format!("{first}-{last}") },
            remote: (!remote.address.is_unspecified()).then(|| endpoint(remote)),
            since: self.since.map(seconds),
            until: until.map(seconds),
            missing,
        }
    }
}

/// What comes next after a time.
enum Next {
    /// Somebody had it.
    Ends(Box<Holder>),
    /// Somebody got it, so nobody had it.
    Begins,
    Nothing,
}

struct Search {
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
    found: Vec<Found>,
    /// Events that are missing between what was found and the time.
    missing: u64,
    /// Nothing earlier can say more.
    done: bool,
}

impl Search {
    fn wants(&self, head: &Head, filter: &Filter) -> bool {
        head.whole || filter.may_have(self.external.0, self.external.1)
    }

    fn is_of(&self, holding: &Holding) -> bool {
        holding.is_of(self.external.0, self.external.1, self.protocol)
    }

    /// Goes through a segment from the time into the past.
    fn backward(&mut self, segment: &Segment) -> io::Result<()> {
        let reader = Reader::open(&segment.path)?;
        let wanted =
            |head: &Head, filter: &Filter| head.first <= self.at && self.wants(head, filter);
        let frames: Vec<_> = reader.frames(wanted)?;
        for (at, head) in frames.iter().rev() {
            for entry in reader.entries(*at, head)?.iter().rev() {
                if entry.time() <= self.at {
                    self.look(entry, &reader);
                }
                if self.done {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn look(&mut self, entry: &Entry, reader: &Reader) {
        let (holding, since, ended) = match entry {
            Entry::Start(_) => {
                self.done = true;
                return;
            }
            Entry::Gap(gap) => {
                self.missing += gap.lost;
                return;
            }
            Entry::Begins(time, holding) => (holding, Some(*time), None),
            Entry::Ends(time, holding) => (holding, None, Some(*time)),
        };
        if !self.is_of(holding) {
            return;
        }
        let known = self.found.iter().position(|found| found.holding == *holding);
        let is_full = self.found.len() >= MOST_HOLDERS;
        match known.map(|at| &mut self.found[at]) {
            // When it began that has ended since.
            Some(known) if known.since.is_none() => known.since = since,
            Some(_) => {}
            None if !is_full => {
                let realm = reader.realm(holding.realm);
                self.found.push(Found { holding: *holding, realm, since, ended });
            }
            None => {}
        }
        // Who began last has it; sessions may be several, and so may protocols.
        let is_one = holding.protocol.is_none() || self.protocol.is_some();
        self.done |= since.is_some() && is_one && !holding.is_session;
    }

    /// Goes through a segment from the time into the future, for what is told next of the endpoint.
    fn forward(&self, segment: &Segment) -> io::Result<Next> {
        let reader = Reader::open(&segment.path)?;
        let wanted = |head: &Head, filter: &Filter| head.last > self.at && self.wants(head, filter);
        for (at, head) in reader.frames(wanted)? {
            for entry in reader.entries(at, &head)? {
                match entry {
                    Entry::Start(time) if time > self.at => return Ok(Next::Begins),
                    Entry::Begins(time, holding) if time > self.at && self.is_of(&holding) => {
                        return Ok(Next::Begins);
                    }
                    Entry::Ends(time, holding) if time > self.at && self.is_of(&holding) => {
                        let realm = reader.realm(holding.realm);
                        let found = Found { holding, realm, since: None, ended: Some(time) };
                        return Ok(Next::Ends(Box::new(found.holder(self.missing, Some(time)))));
                    }
                    _ => {}
                }
            }
        }
        Ok(Next::Nothing)
    }

    /// When something ended that had not at the time.
    fn end_of(&self, segment: &Segment, holding: &Holding) -> io::Result<Option<Timestamp>> {
        let reader = Reader::open(&segment.path)?;
        let wanted = |head: &Head, filter: &Filter| head.last > self.at && self.wants(head, filter);
        for (at, head) in reader.frames(wanted)? {
            for entry in reader.entries(at, &head)? {
                match entry {
                    Entry::Start(time) if time > self.at => return Ok(Some(time)),
                    Entry::Ends(time, ended) if time > self.at && ended == *holding => {
                        return Ok(Some(time));
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }
}

/// A segment that is read.
struct Reader {
    file: File,
    realms: Vec<String>,
    /// Where the first frame begins.
    begin: u64,
    len: u64,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut reader = Self { file, realms: Vec::new(), begin: len, len };
        let Some(header) = reader.bytes(0, SEGMENT.len() + 4)? else { return Ok(reader) };
        let (magic, names) = header.split_at(SEGMENT.len());
        let names = u32::from_le_bytes([names[0], names[1], names[2], names[3]]) as usize;
        if magic != SEGMENT {
            let what = "it is no file of a spool of this version; move it elsewhere";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let start = header.len() as u64;
        if names <= MOST_NAMES
            && let Some(json) = reader.bytes(start, names)?
        {
            reader.realms = serde_json::from_slice(&json).unwrap_or_default();
            reader.begin = start + names as u64;
        }
        Ok(reader)
    }

    /// What a realm was called, if there were several.
    fn realm(&self, number: u16) -> Option<String> {
        self.realms.get(usize::from(number)).cloned()
    }

    /// So many bytes from there, if there are.
    fn bytes(&self, at: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        if at + len as u64 > self.len {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(Some(bytes))
    }

    /// The frames that are wanted, and where their entries begin. What comes after damage is lost.
    fn frames(&self, wanted: impl Fn(&Head, &Filter) -> bool) -> io::Result<Vec<(u64, Head)>> {
        let (mut at, mut frames) = (self.begin, Vec::new());
        while let Some(header) = self.bytes(at, HEADER)? {
            let Some(head) = Head::read(&header) else { break };
            let Some(filter) = self.bytes(at + HEADER as u64, head.filter_len as usize)? else {
                break;
            };
            if !head.is_whole(&header, &filter) {
                break;
            }
            let entries = at + (HEADER + filter.len()) as u64;
            at = entries + u64::from(head.packed);
            if wanted(&head, &Filter(filter)) {
                frames.push((entries, head));
            }
        }
        Ok(frames)
    }

    /// A frame's entries; of one that is damaged none.
    fn entries(&self, at: u64, head: &Head) -> io::Result<Vec<Entry>> {
        let packed = self.bytes(at, head.packed as usize)?;
        Ok(packed.and_then(|packed| head.entries(&packed)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
