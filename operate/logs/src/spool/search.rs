//! Finds the holder of an external endpoint at a time in a spool.
//!
//! The clock determines the place of a time in the order of writing: usually one. If the clock was
//! set back, several places had the time, and the answer covers all of them. From a place the
//! search goes back through the entries, whatever their times: the latest entry about a holding
//! decides whether the holding existed. A start ends all holdings before it; of one of several
//! gateways it cuts them ([`Traces`]). If no entry is found before, and entries are missing there,
//! the first holding that ends after the place existed at it. Only frames whose time and filter
//! match are decompressed. Files are not mapped into memory, and are read also while the gateway
//! writes them.

mod cut;
mod holder;
mod later;
mod tenure;

use super::format::{Entry, Holding};
use super::outline::{Coverage, Follows, FrameAt, InForceThen, Outline, OutlineError, Part};
use super::reader::Reader;
use crate::in_force::OwnersInForce;
use crate::json::{DEFAULT_REALM, endpoint, host_endpoint, prefix, protocol as name_of, seconds};
pub use holder::{Holder, Traces};
use later::Next;
use natgate_engine::{Endpoint, Timestamp};
use natgate_gateway::ipv6::HostName;
use std::collections::HashMap;
use std::collections::hash_map;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
pub use tenure::Tenure;

/// Most sessions in an answer.
const MOST_HOLDERS: usize = 1000;

/// Most holdings of an endpoint that are distinguished; earlier ones are ignored.
const MOST_HOLDINGS: usize = 200_000;

/// Most restarts of a search because files were deleted meanwhile.
const MOST_TRIES: usize = 5;

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The spool cannot be read.
    #[error("{}: cannot be read: {error}", .path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// The spool has nothing of that time.
    #[error("the log has nothing from before that time")]
    TooEarly(Coverage),
    /// No holder is known.
    #[error("the log names nobody who had it then{}", after(.last, *.missing))]
    Nobody {
        /// The last holder before.
        last: Option<Box<Holder>>,
        /// Events missing in the log about that time.
        missing: u64,
        /// Coverage of that time by the log.
        coverage: Coverage,
        /// What else the log says.
        traces: Box<Traces>,
    },
    /// The log does not cover the time, and the endpoint had no holder at the last time that it
    /// covers, or one that another gateway may have continued.
    #[error("the log does not cover that time{}{}", before(.traces), after(.last, *.missing))]
    Uncovered {
        /// The last holder before.
        last: Option<Box<Holder>>,
        /// Events missing in the log about that time.
        missing: u64,
        /// Coverage of that time by the log.
        coverage: Coverage,
        /// What else the log says.
        traces: Box<Traces>,
    },
    /// The search was cancelled: the answer is no longer needed.
    #[error("the search was cancelled")]
    Cancelled,
}

impl SearchError {
    /// Coverage of the time by the log.
    pub fn coverage(&self) -> Option<&Coverage> {
        match self {
            Self::TooEarly(coverage)
            | Self::Nobody { coverage, .. }
            | Self::Uncovered { coverage, .. } => Some(coverage),
            Self::Io { .. } | Self::Cancelled => None,
        }
    }

    /// What else the log says about the endpoint.
    pub fn into_traces(self) -> Traces {
        match self {
            Self::Nobody { traces, .. } | Self::Uncovered { traces, .. } => *traces,
            Self::TooEarly(_) | Self::Io { .. } | Self::Cancelled => Traces::default(),
        }
    }
}

/// The holders of an external endpoint at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Holders {
    /// One mapping or block, or all sessions of the time.
    pub holders: Vec<Holder>,
    /// Coverage of that time by the log.
    pub coverage: Coverage,
    /// What else the log says.
    pub traces: Traces,
}

/// The last time that the log covers, in an answer without a holder.
fn before(traces: &Traces) -> &'static str {
    if traces.cut.is_empty() { "; nobody had it before" } else { "" }
}

/// Further information for an answer without a holder.
fn after(last: &Option<Box<Holder>>, missing: u64) -> String {
    let last = last.as_ref().map(|last| {
        let until = last.until.unwrap_or_default();
        format!("; {} had it until {until:.3}", last.subscriber)
    });
    let missing = (missing > 0).then(|| format!("; {missing} events are missing there"));
    last.into_iter().chain(missing).collect()
}

/// Searches the spool in a folder for the holders of an external endpoint at a time: one mapping or
/// block, or all sessions of the time; of each protocol, if none is given. `go_on` is called
/// between frames; false cancels the search.
///
/// # Errors
/// [`SearchError`].
pub fn holders(
    folder: &Path,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
    go_on: &dyn Fn() -> bool,
) -> Result<Holders, SearchError> {
    holders_of(folder, external, protocol, at, Tenure::default(), go_on)
}

/// As [`holders`], for one of several gateways.
///
/// # Errors
/// [`SearchError`].
pub fn holders_of(
    folder: &Path,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
    tenure: Tenure,
    go_on: &dyn Fn() -> bool,
) -> Result<Holders, SearchError> {
    let question = Question { external, protocol, at, tenure };
    let mut tries = 0;
    loop {
        tries += 1;
        match search(folder, &question, go_on) {
            // A file was deleted during the search.
            Err(SearchError::Io { error, .. })
                if error.kind() == io::ErrorKind::NotFound && tries < MOST_TRIES => {}
            other => return other,
        }
    }
}

fn search(
    folder: &Path,
    question: &Question,
    go_on: &dyn Fn() -> bool,
) -> Result<Holders, SearchError> {
    let outline = Outline::of(folder, go_on)?;
    let (places, is_covered) = places(&outline.parts, question.at);
    let mut search = Search { outline: &outline, question, go_on, reader: None };
    let (mut holders, mut last, mut missing): (Vec<Holder>, Option<Box<Holder>>, u64) =
        (Vec::new(), None, 0);
    let mut traces = Traces::default();
    for place in &places {
        let answer = search.at(place)?;
        missing = missing.max(answer.missing);
        for holder in answer.holders {
            let (missing, is_full) = (holder.missing, holders.len() >= MOST_HOLDERS);
            let is_same = |other: &&mut Holder| Holder { missing, ..(**other).clone() } == holder;
            match holders.iter_mut().find(is_same) {
                Some(other) => other.missing = other.missing.max(missing),
                None if !is_full => holders.push(holder),
                None => {}
            }
        }
        last = last.or(answer.last);
        traces.cut.extend(answer.traces.cut);
        traces.ended.extend(answer.traces.ended);
        traces.cut.truncate(MOST_HOLDERS);
        traces.ended.truncate(MOST_HOLDERS);
    }
    let mut parts: Vec<usize> = places.iter().map(|place| place.part).collect();
    if !is_covered {
        // The answer includes the span after the time.
        let after = places.iter().map(|place| place.part + 1);
        let first = (!outline.parts.is_empty() && places.is_empty()).then_some(0);
        let after = after.chain(first).filter(|part| *part < outline.parts.len());
        parts.extend(after.collect::<Vec<_>>());
    }
    let since = holders.iter().filter_map(|holder| holder.since);
    let since = since
        .reduce(f64::min)
        .map(|seconds| Timestamp(0).plus(std::time::Duration::from_secs_f64(seconds.max(0.0))));
    let mut coverage = outline.coverage(&parts, question.at, since);
    if is_covered {
        coverage.in_force = in_force(&outline, &places)?;
    }
    match () {
        () if !holders.is_empty() => Ok(Holders { holders, coverage, traces }),
        () if places.is_empty() => Err(SearchError::TooEarly(coverage)),
        () => {
            let traces = Box::new(traces);
            Err(match is_covered {
                true => SearchError::Nobody { last, missing, coverage, traces },
                false => SearchError::Uncovered { last, missing, coverage, traces },
            })
        }
    }
}

/// Configurations in force at the places, in the order of writing.
fn in_force(outline: &Outline, places: &[Place]) -> Result<InForceThen, SearchError> {
    let segments = places.iter().flat_map(|place| outline.in_force(place.part, place.until));
    let (mut seen, mut known): (Vec<usize>, Vec<OwnersInForce>) = (Vec::new(), Vec::new());
    for segment in segments {
        let Some(segment) = segment else { return Ok(InForceThen::Unrecorded) };
        if seen.contains(&segment) {
            continue;
        }
        seen.push(segment);
        let path = &outline.segments[segment].path;
        let reader = Reader::open(path);
        let reader = reader.map_err(|error| SearchError::Io { path: path.clone(), error })?;
        match OwnersInForce::unpack(reader.in_force()) {
            Some(owners) if known.contains(&owners) => {}
            Some(owners) => known.push(owners),
            None => return Ok(InForceThen::Unrecorded),
        }
    }
    Ok(if known.is_empty() { InForceThen::Unrecorded } else { InForceThen::Known(known) })
}

impl From<OutlineError> for SearchError {
    fn from(error: OutlineError) -> Self {
        match error {
            OutlineError::Io(path, error) => Self::Io { path, error },
            OutlineError::Cancelled => Self::Cancelled,
        }
    }
}

/// Question of a search.
struct Question {
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
    tenure: Tenure,
}

/// Place in the order of writing: after all entries of earlier parts, and after those of the part
/// until a time.
#[derive(Clone, Copy, Debug)]
struct Place {
    part: usize,
    until: Timestamp,
}

impl Place {
    /// True if an entry of a part is before the place.
    fn is_after(&self, part: usize, time: Timestamp) -> bool {
        part < self.part || part == self.part && time <= self.until
    }
}

/// Places of a time, and true if the log covers it. There is none if the time is before the log.
fn places(parts: &[Part], at: Timestamp) -> (Vec<Place>, bool) {
    let place = |part| Place { part, until: at };
    let has = |part: &Part| part.from <= at && at <= part.until;
    // If one part ends and the next begins at the time, the next has it.
    let is_left = |index: usize| {
        parts.get(index + 1).is_some_and(|next| next.from == at && parts[index].until == at)
    };
    let having: Vec<Place> = (0..parts.len())
        .filter(|index| has(&parts[*index]) && !is_left(*index))
        .map(place)
        .collect();
    if !having.is_empty() {
        return (having, true);
    }
    let between: Vec<Place> = (1..parts.len())
        .filter(|index| parts[index - 1].until < at && at < parts[*index].from)
        .map(|index| place(index - 1))
        .collect();
    match parts.last() {
        _ if !between.is_empty() => (between, false),
        Some(last) if last.until < at => (vec![place(parts.len() - 1)], false),
        _ => (Vec::new(), false),
    }
}

/// A holding and its realm's name, which is the same in all runs.
type Key = (Holding, String);

/// A holding that was found.
#[derive(Clone, Debug)]
struct HoldingMatch {
    holding: Holding,
    realm: Option<String>,
    since: Option<Timestamp>,
    ended: Option<Timestamp>,
}

impl HoldingMatch {
    fn key(&self) -> Key {
        key(&self.holding, &self.realm)
    }

    fn holder(&self, missing: u64, until: Option<Timestamp>) -> Holder {
        let Holding { protocol, subscriber, host, internal_port, external, ports, remote, .. } =
            self.holding;
        let (first, last) = ports;
        let internal = internal_port.and_then(|port| match host {
            Some(host) => host.address.map(|address| host_endpoint(address, port)),
            None => Some(endpoint(Endpoint { address: subscriber, port })),
        });
        let subscriber = match host {
            Some(host) => prefix((host.prefix, host.len)),
            None => subscriber.to_string(),
        };
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
            cut: None,
            missing,
        }
    }
}

/// The key of a holding. Of a host of NAT64 it has the number alone: a number passes to another
/// host only when all mappings of the former have ended.
fn key(holding: &Holding, realm: &Option<String>) -> Key {
    const HOST: HostName = HostName { address: None, prefix: Ipv6Addr::UNSPECIFIED, len: 0 };
    let name = realm.as_deref().unwrap_or(DEFAULT_REALM).to_owned();
    (Holding { realm: 0, host: holding.host.map(|_| HOST), ..*holding }, name)
}

/// Answer for one place.
struct Answer {
    holders: Vec<Holder>,
    last: Option<Box<Holder>>,
    missing: u64,
    traces: Traces,
}

/// Findings from a place into the past.
#[derive(Default)]
struct Past {
    /// All holdings found, by their latest entry, in the order of the search.
    found: Vec<HoldingMatch>,
    known: HashMap<Key, usize>,
    /// Events missing between the earliest entry and the place.
    missing: u64,
    /// True if more is missing, or the log begins there.
    is_cut: bool,
    /// True if earlier entries change nothing.
    is_done: bool,
    /// Part that begins with the start at which the search ended.
    start: Option<usize>,
}

struct Search<'s> {
    outline: &'s Outline,
    question: &'s Question,
    go_on: &'s dyn Fn() -> bool,
    /// Segment that was read last.
    reader: Option<(usize, Reader)>,
}

impl Search<'_> {
    fn at(&mut self, place: &Place) -> Result<Answer, SearchError> {
        let mut past = Past::default();
        self.backward(place, &mut past)?;
        let open: Vec<HoldingMatch> =
            past.found.iter().filter(|found| found.ended.is_none()).cloned().collect();
        let mut traces = self.traces(place, &past)?;
        let mut holders = Vec::new();
        if !open.is_empty() {
            let ends = self.ends_of(place, &open)?;
            let (cut, whole): (Vec<_>, Vec<_>) =
                open.into_iter().partition(|found| ends.has_cut(found));
            let holder = |found: &HoldingMatch| found.holder(past.missing, ends.until(found));
            holders = whole.iter().take(MOST_HOLDERS).map(holder).collect();
            if let Some(start) = ends.start.filter(|_| !cut.is_empty()) {
                let after = Place { part: start, until: Timestamp(0) };
                let cut = self.cut_by(start, &after, &cut, past.missing)?;
                match self.stop_before(start) < place.until {
                    true => traces.cut.extend(cut),
                    false => holders.extend(cut),
                }
            }
        } else if (past.is_cut || past.missing > 0 || self.may_inherit(&past))
            && let Next::Ends(found) = self.forward(place, &mut past.missing)?
        {
            holders.push(found.holder(past.missing, found.ended));
        }
        let last = past.found.first().filter(|last| holders.is_empty() && last.ended.is_some());
        let last = last.map(|found| Box::new(found.holder(0, found.ended)));
        Ok(Answer { holders, last, missing: past.missing, traces })
    }

    /// True if the holder may have been continued before the time without a begin in the spool.
    fn may_inherit(&self, past: &Past) -> bool {
        let Question { tenure, at, .. } = *self.question;
        tenure.inherited.is_some_and(|taken| {
            taken <= at
                && past.found.iter().all(|found| found.ended.is_none_or(|ended| ended < taken))
        })
    }

    /// Decompresses a frame, if it may be about the endpoint. The entries of a damaged frame count
    /// as missing events.
    fn entries(&mut self, at: &FrameAt, missing: &mut u64) -> Result<Vec<Entry>, SearchError> {
        if !(self.go_on)() {
            return Err(SearchError::Cancelled);
        }
        let path = &self.outline.segments[at.segment].path;
        let wrong = |error| SearchError::Io { path: path.clone(), error };
        let reader = match self.reader.take() {
            Some((segment, reader)) if segment == at.segment => reader,
            _ => Reader::open(path).map_err(wrong)?,
        };
        let (_, reader) = self.reader.insert((at.segment, reader));
        let (address, port) = self.question.external;
        let filter = reader.filter(&at.frame).map_err(wrong)?;
        let is_wanted = filter.is_none_or(|filter| filter.may_have(address, port));
        if !is_wanted && !at.frame.head.whole {
            return Ok(Vec::new());
        }
        let entries = reader.entries(&at.frame).map_err(wrong)?;
        if entries.is_none() {
            *missing += u64::from(at.frame.head.count);
        }
        Ok(entries.unwrap_or_default())
    }

    fn is_of(&self, holding: &Holding) -> bool {
        let (address, port) = self.question.external;
        holding.is_of(address, port, self.question.protocol)
    }

    /// Name of a realm in the segment that was read last.
    fn realm(&self, number: u16) -> Option<String> {
        self.reader.as_ref().and_then(|(_, reader)| reader.realm(number))
    }

    /// Searches from a place into the past.
    fn backward(&mut self, place: &Place, past: &mut Past) -> Result<(), SearchError> {
        let outline = self.outline;
        for part in (0..=place.part).rev() {
            for at in outline.frames[outline.parts[part].frames.clone()].iter().rev() {
                if !place.is_after(part, at.frame.head.first) {
                    continue;
                }
                for entry in self.entries(at, &mut past.missing)?.iter().rev() {
                    if place.is_after(part, entry.time()) {
                        self.look(entry, past);
                    }
                    if past.is_done {
                        past.start = matches!(entry, Entry::Start(_)).then_some(part);
                        return Ok(());
                    }
                }
            }
            past.is_cut |= matches!(outline.parts[part].follows, Follows::After(_));
        }
        past.is_cut = true;
        Ok(())
    }

    fn look(&self, entry: &Entry, past: &mut Past) {
        let (holding, since, ended) = match entry {
            Entry::Start(_) => {
                past.is_done = true;
                return;
            }
            Entry::Gap(gap) => {
                past.missing += gap.lost;
                return;
            }
            Entry::Begins(time, holding) => (holding, Some(*time), None),
            Entry::Ends(time, holding) => (holding, None, Some(*time)),
            _ => return,
        };
        if !self.is_of(holding) {
            return;
        }
        let realm = self.realm(holding.realm);
        let is_full = past.found.len() >= MOST_HOLDINGS;
        match past.known.entry(key(holding, &realm)) {
            hash_map::Entry::Occupied(known) => {
                // The latest entry has decided; an earlier one may give the begin.
                let found = &mut past.found[*known.get()];
                found.since = found.since.or(since);
                // The host of an entry about an end may be known no more.
                if found.holding.host.is_some_and(|host| host.address.is_none()) {
                    found.holding.host = holding.host;
                }
            }
            hash_map::Entry::Vacant(_) if is_full => {
                (past.is_done, past.is_cut) = (true, true);
                past.missing = past.missing.max(1);
            }
            hash_map::Entry::Vacant(free) => {
                free.insert(past.found.len());
                past.found.push(HoldingMatch { holding: *holding, realm, since, ended });
                // A mapping or a block has the endpoint alone. Sessions may be several, and so may
                // protocols.
                let is_one = holding.protocol.is_none() || self.question.protocol.is_some();
                past.is_done |= ended.is_none() && is_one && !holding.is_session;
            }
        }
    }
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
