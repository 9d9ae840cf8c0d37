//! Outline of a spool: all frames in the order of writing, the parts that they form, and the spans
//! of time that the parts cover.
//!
//! A part is a series of consecutive frames in which the clock was not set: it has all events from
//! its begin to its end, except those that it reports as lost. A part ends where a gateway starts,
//! where the clock was set, and where frames are missing.

use super::format::{CameIntoForce, Entry};
use super::note::Note;
use super::reader::{Frame, Frames, Reader};
use super::segments::{Listing, Segment, list};
use crate::in_force::OwnersInForce;
use crate::json::{seconds, shown};
use natgate_engine::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most gaps of lost events that are kept; further ones are added to the last.
const MOST_GAPS: usize = 10_000;

/// Most gaps in an answer: those nearest to the time.
const MOST_SHOWN: usize = 20;

/// A span of time, in seconds since 1970, of which a log has all events, except for its gaps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Begin of the span.
    pub from: f64,
    /// End of the span.
    pub until: f64,
}

/// Reason of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Events were lost on their way into the log.
    EventsLost,
    /// No gateway wrote the log.
    NotWritten,
    /// Files or parts of them are missing or cannot be read.
    Missing,
    /// The clock was set: no moment had these times, or two moments had them.
    ClockSet,
}

/// A gap of a log. If the clock was set back, `until` is earlier than `from`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogGap {
    /// Begin of the gap, seconds since 1970.
    pub from: f64,
    /// End of the gap.
    pub until: f64,
    /// Reason of the gap.
    pub reason: Reason,
    /// Number of lost events, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// Coverage of a time by a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Spans that contain the time; if none does, those before and after it.
    pub covered: Vec<Span>,
    /// Gaps in these spans and at their ends.
    pub gaps: Vec<LogGap>,
    /// Configuration that was in force at the time.
    #[serde(skip)]
    pub in_force: InForceThen,
}

/// Configuration that was in force at a time, by the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InForceThen {
    /// The log does not cover the time.
    #[default]
    Uncovered,
    /// The log covers the time, but does not record the configuration.
    Unrecorded,
    /// One configuration; several while it changed, or if the time was twice.
    Known(Vec<OwnersInForce>),
}

impl Coverage {
    /// Adds the coverage of another log.
    pub fn add(&mut self, other: Self) {
        self.covered.extend(other.covered);
        self.gaps.extend(other.gaps);
        let rank = |then: &InForceThen| match then {
            InForceThen::Uncovered => 0,
            InForceThen::Unrecorded => 1,
            InForceThen::Known(_) => 2,
        };
        if rank(&other.in_force) > rank(&self.in_force) {
            self.in_force = other.in_force;
        }
    }

    /// The coverage for people, in one sentence without its full stop.
    pub fn sentence(&self) -> String {
        sentence(&self.covered, &self.gaps)
    }
}

/// Describes coverage for people.
pub fn sentence(covered: &[Span], gaps: &[LogGap]) -> String {
    let time = |seconds: f64| {
        shown(Timestamp(0).plus(std::time::Duration::from_secs_f64(seconds.max(0.0))))
    };
    let span = |span: &Span| format!("{} to {}", time(span.from), time(span.until));
    let spans: Vec<_> = covered.iter().map(span).collect();
    let mut sentence = match spans.is_empty() {
        true => "the log covers nothing".to_owned(),
        false => format!("the log covers {}", spans.join(" and ")),
    };
    for gap in gaps {
        let (from, until) = (time(gap.from), time(gap.until));
        let what = match (gap.reason, gap.lost) {
            (Reason::EventsLost, lost) => {
                format!("{} events are lost from {from} to {until}", lost.unwrap_or(0))
            }
            (Reason::NotWritten, _) => format!("nothing was written from {from} to {until}"),
            (Reason::Missing, _) => format!("what was written from {from} to {until} is missing"),
            (Reason::ClockSet, _) => format!("the clock was set from {from} to {until}"),
        };
        sentence.push_str("; ");
        sentence.push_str(&what);
    }
    sentence
}

/// A segment with frames.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
}

/// A frame and the segment that has it.
#[derive(Debug)]
pub(crate) struct FrameAt {
    pub(crate) segment: usize,
    pub(crate) frame: Frame,
}

/// Relation of a part to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// A gateway started: all earlier holdings have ended.
    Start,
    /// Nothing is missing between the two.
    Directly,
    /// The clock was set between the two, and nothing is missing.
    ClockSet,
    /// Entries are missing between the two, or before the first one.
    After(Reason),
}

/// A series of consecutive frames in which the clock was not set.
#[derive(Debug)]
pub(crate) struct Part {
    /// Indexes of the part's frames.
    pub(crate) frames: Range<usize>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) follows: Follows,
}

/// Change of the configuration in force, in the order of writing.
#[derive(Clone, Copy, Debug)]
struct Switch {
    part: usize,
    /// The former configuration was in force until this time.
    from: Timestamp,
    /// The new configuration is in force from this time on.
    until: Timestamp,
    /// Segment that has the new configuration; `None`: the configuration is not known.
    segment: Option<usize>,
}

/// Content of a spool.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) segments: Vec<SegmentFile>,
    pub(crate) frames: Vec<FrameAt>,
    pub(crate) parts: Vec<Part>,
    /// Events that are lost inside of parts, and missing tails of runs.
    gaps: Vec<LogGap>,
    switches: Vec<Switch>,
}

/// Reason why there is no outline.
#[derive(Debug)]
pub(crate) enum OutlineError {
    Io(PathBuf, io::Error),
    Cancelled,
}

/// Outline that is being built.
#[derive(Debug, Default)]
struct Builder {
    outline: Outline,
    run: u64,
    /// Number of the run's next frame.
    next: Option<u64>,
    /// True if the run before was closed, or this one is.
    is_closed: bool,
    /// True if bytes were unreadable since the last frame.
    is_damaged: bool,
}

impl Outline {
    /// Reads the headers of all frames of a folder. `go_on` is called regularly; false cancels.
    pub(crate) fn of(folder: &Path, go_on: &dyn Fn() -> bool) -> Result<Self, OutlineError> {
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |error| OutlineError::Io(path, error)
        };
        // Notes are read first, so that they are not ahead of the frames.
        let Listing { notes, .. } = list(folder).map_err(wrong(folder))?;
        let read = |(run, path): (u64, PathBuf)| {
            Note::read(&fs::read(path).ok()?).filter(|note| note.run == run)
        };
        let notes: Vec<Note> = notes.into_iter().filter_map(read).collect();
        let Listing { segments, .. } = list(folder).map_err(wrong(folder))?;
        let mut builder = Builder::default();
        for segment in &segments {
            if builder.run != segment.place.run {
                builder.end_run(&notes);
                builder.begin_run(segment.place.run);
            }
            match builder.segment(segment, go_on) {
                Ok(()) => {}
                // The segment was deleted meanwhile; the numbers of frames show the gap.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(wrong(&segment.path)(error)),
            }
            if !go_on() {
                return Err(OutlineError::Cancelled);
            }
        }
        builder.end_run(&notes);
        Ok(builder.outline)
    }

    /// Parts around one part that follow each other directly.
    fn chain(&self, part: usize) -> Range<usize> {
        let directly = |at: usize| {
            self.parts.get(at).is_some_and(|part| at > 0 && part.follows == Follows::Directly)
        };
        let (mut first, mut end) = (part, part + 1);
        while directly(first) {
            first -= 1;
        }
        while directly(end) {
            end += 1;
        }
        first..end
    }

    /// Segments with the configurations that were in force in a part at a time: several while the
    /// configuration changed. `None` stands for one that is not known.
    pub(crate) fn in_force(&self, part: usize, at: Timestamp) -> Vec<Option<usize>> {
        let mut segments = Vec::new();
        for switch in self.switches.iter().filter(|switch| switch.part == part) {
            if switch.until <= at {
                segments.clear();
            }
            if switch.from <= at {
                segments.push(switch.segment);
            }
        }
        segments
    }

    /// Gap before a part.
    fn gap_before(&self, part: usize) -> Option<LogGap> {
        let this = &self.parts[part];
        let before = part.checked_sub(1).map(|before| self.parts[before].until);
        let (from, until) = (seconds(before?), seconds(this.from));
        let reason = match this.follows {
            Follows::Directly => return None,
            Follows::Start if until < from => Reason::ClockSet,
            Follows::Start => Reason::NotWritten,
            Follows::ClockSet => Reason::ClockSet,
            Follows::After(reason) => reason,
        };
        Some(LogGap { from, until, reason, lost: None })
    }

    /// Coverage around a time by the parts with these indexes and those that follow directly; also
    /// the gaps there and since the time `since`.
    pub(crate) fn coverage(
        &self,
        parts: &[usize],
        at: Timestamp,
        since: Option<Timestamp>,
    ) -> Coverage {
        let mut chains: Vec<Range<usize>> = parts.iter().map(|part| self.chain(*part)).collect();
        chains.sort_by_key(|chain| chain.start);
        chains.dedup();
        let span = |chain: &Range<usize>| Span {
            from: seconds(self.parts[chain.start].from),
            until: seconds(self.parts[chain.end - 1].until),
        };
        let mut covered: Vec<Span> = Vec::new();
        for span in chains.iter().map(span) {
            if !covered.contains(&span) {
                covered.push(span);
            }
        }
        let first = covered.iter().map(|span| span.from).chain(since.map(seconds));
        let first = first.fold(f64::INFINITY, f64::min);
        let last = covered.iter().map(|span| span.until).fold(0.0, f64::max);
        let at_ends = chains.iter().flat_map(|chain| [chain.start, chain.end]);
        let at_ends: Vec<usize> = at_ends.filter(|part| *part < self.parts.len()).collect();
        let between = (0..self.parts.len()).filter_map(|part| {
            let gap = self.gap_before(part)?;
            let is_near = gap.from >= first && gap.until <= last;
            (is_near || at_ends.contains(&part)).then_some(gap)
        });
        let inside = |gap: &&LogGap| gap.until >= first && gap.from <= last;
        let mut gaps: Vec<LogGap> =
            between.chain(self.gaps.iter().filter(inside).copied()).collect();
        let distance = |gap: &LogGap| {
            let (low, high) = (gap.from.min(gap.until), gap.from.max(gap.until));
            (low - seconds(at)).max(seconds(at) - high).max(0.0)
        };
        gaps.sort_by(|one, other| distance(one).total_cmp(&distance(other)));
        gaps.truncate(MOST_SHOWN);
        gaps.sort_by(|one, other| one.from.total_cmp(&other.from));
        Coverage { covered, gaps, in_force: InForceThen::Uncovered }
    }

    /// True if the last run was written to its end.
    pub(crate) fn is_closed(folder: &Path) -> io::Result<bool> {
        let segments = list(folder)?.segments;
        for segment in segments.iter().rev() {
            let reader = Reader::open(&segment.path)?;
            let Frames { frames, .. } = reader.frames(&|| true)?;
            if let Some(last) = frames.last() {
                let entries = reader.entries(last)?.unwrap_or_default();
                return Ok(matches!(entries.last(), Some(Entry::Closed(_))));
            }
        }
        Ok(false)
    }
}

impl Builder {
    fn begin_run(&mut self, run: u64) {
        (self.run, self.next) = (run, None);
    }

    /// Ends a run without further frames: its note gives the end, and shows whether frames are
    /// missing.
    fn end_run(&mut self, notes: &[Note]) {
        let Some(note) = notes.iter().find(|note| note.run == self.run) else { return };
        let Some(part) = self.outline.parts.last_mut().filter(|_| self.next.is_some()) else {
            return;
        };
        if self.next == Some(note.frames) {
            part.until = part.until.max(note.until);
        } else if self.next < Some(note.frames) {
            let (from, until) = (seconds(part.until), seconds(note.until));
            let gap = LogGap { from, until, reason: Reason::Missing, lost: None };
            self.outline.gaps.push(gap);
        }
    }

    fn segment(&mut self, segment: &Segment, go_on: &dyn Fn() -> bool) -> io::Result<()> {
        let reader = Reader::open(&segment.path)?;
        let Frames { frames, is_damaged } = reader.frames(go_on)?;
        let number = self.outline.segments.len();
        self.outline.segments.push(SegmentFile { path: segment.path.clone() });
        for frame in frames {
            let whole = match frame.head.whole {
                true => reader.entries(&frame)?.unwrap_or_default(),
                false => Vec::new(),
            };
            self.frame(FrameAt { segment: number, frame }, &whole);
        }
        // Frames of version 2 have numbers, so a damaged frame that was written again counts as
        // present.
        self.is_damaged |= is_damaged && reader.is_first_version();
        Ok(())
    }

    fn frame(&mut self, at: FrameAt, whole: &[Entry]) {
        let head = &at.frame.head;
        let is_missing = match head.number {
            Some(number) => self.next.unwrap_or(0) != number,
            None => self.is_damaged,
        };
        let is_first = self.next.is_none();
        self.next = Some(head.number.map_or(0, |number| number + 1));
        let index = self.outline.frames.len();
        let (first, last) = (head.first, head.last);
        if let Some((follows, from)) = self.beginning(whole.first(), first, is_first, is_missing) {
            let before = self.outline.parts.last().map(|part| part.until);
            let from = match (follows, before) {
                (Follows::Directly, Some(before)) => before,
                _ => from,
            };
            // The configuration before a change is not known if entries are missing.
            let is_change = matches!(whole.first(), Some(Entry::InForce(_)));
            let segment = (!is_change).then_some(at.segment);
            let part = self.outline.parts.len();
            self.outline.switches.push(Switch { part, from, until: from, segment });
            let part = Part { frames: index..index, from, until: from.max(last), follows };
            self.outline.parts.push(part);
            self.is_closed = false;
        }
        self.is_damaged = false;
        let (part, segment) = (self.outline.parts.len().saturating_sub(1), Some(at.segment));
        if let Some(&Entry::InForce(CameIntoForce { from, until, .. })) = whole.first() {
            self.outline.switches.push(Switch { part, from, until, segment });
        }
        self.outline.frames.push(at);
        let Some(part) = self.outline.parts.last_mut() else { return };
        part.frames.end = index + 1;
        part.until = part.until.max(last);
        for entry in whole {
            match entry {
                Entry::Closed(_) => self.is_closed = true,
                Entry::Gap(gap) => {
                    let (from, until) = (seconds(gap.from), seconds(gap.to));
                    let (reason, lost) = (Reason::EventsLost, Some(gap.lost));
                    self.outline.add_gap(LogGap { from, until, reason, lost });
                }
                _ => {}
            }
        }
    }

    /// Relation and begin of the part that a frame begins; `None` if the frame continues the
    /// present part.
    fn beginning(
        &mut self,
        entry: Option<&Entry>,
        first: Timestamp,
        is_first: bool,
        is_missing: bool,
    ) -> Option<(Follows, Timestamp)> {
        let missing = Follows::After(Reason::Missing);
        Some(match entry {
            Some(Entry::Start(time)) => (Follows::Start, *time),
            Some(Entry::Continues(time)) if self.is_closed => {
                // The continuing process may have another clock: its times are its own then.
                let before = self.outline.parts.last();
                match before.is_some_and(|before| *time < before.until) {
                    true => (Follows::ClockSet, *time),
                    false => (Follows::Directly, first),
                }
            }
            Some(Entry::Continues(time) | Entry::Resumes(time)) => {
                (Follows::After(Reason::NotWritten), *time)
            }
            Some(Entry::ClockSet(set)) => {
                let before = self.outline.parts.last_mut();
                if is_missing || before.is_none() {
                    return Some((missing, set.to));
                }
                if let Some(before) = before {
                    before.until = before.until.max(set.from);
                }
                (Follows::ClockSet, set.to)
            }
            _ if is_first || is_missing || self.outline.parts.is_empty() => (missing, first),
            _ => return None,
        })
    }
}

impl Outline {
    fn add_gap(&mut self, gap: LogGap) {
        let is_full = self.gaps.len() >= MOST_GAPS;
        match self.gaps.last_mut() {
            Some(last) if is_full => {
                last.until = last.until.max(gap.until);
                last.lost = Some(last.lost.unwrap_or(0).saturating_add(gap.lost.unwrap_or(0)));
            }
            _ => self.gaps.push(gap),
        }
    }
}
