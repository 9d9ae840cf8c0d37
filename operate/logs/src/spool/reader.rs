//! Reader of one segment, frame by frame, also while the gateway writes it.

use super::filter::Filter;
use super::format::{Entry, Head, MOST_HEADER, NoSegment, SegmentHead, Version};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read at once in search of headers.
const CHUNK: usize = 32 << 10;

/// A segment that is read.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    version: Version,
    realms: Vec<String>,
    /// Configuration in force, packed; nothing if the segment does not record it.
    in_force: Vec<u8>,
    /// Offset of the first frame.
    begin: u64,
    len: u64,
}

/// Offset of a frame, and its header.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Offset of the filter.
    filter_at: u64,
    pub(crate) head: Head,
}

impl Frame {
    fn entries_at(&self) -> u64 {
        self.filter_at + u64::from(self.head.filter_len)
    }

    /// Offset of the next frame.
    pub(crate) fn end(&self) -> u64 {
        self.entries_at() + u64::from(self.head.packed)
    }
}

/// The frames of a segment.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) frames: Vec<Frame>,
    /// True if bytes follow that are no frame.
    pub(crate) is_damaged: bool,
}

impl Reader {
    /// Opens a segment. A segment with a cut header has no frames.
    ///
    /// # Errors
    /// The system's error; also if the file is no segment.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let (version, realms, in_force) = (Version::Two, Vec::new(), Vec::new());
        let mut reader = Self { file, version, realms, in_force, begin: len, len };
        let header = reader.some_bytes(0, MOST_HEADER)?;
        let head = match SegmentHead::read(&header) {
            Ok(head) => head,
            Err(NoSegment::Short) => return Ok(reader),
            Err(NoSegment::Foreign) => {
                let what = "it is no file of a spool of this version; move it elsewhere";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        };
        if let Some(names) = reader.bytes(head.size as u64, head.names)?
            && head.is_whole(&header, &names)
        {
            reader.version = head.version;
            // JSON of the writer has no newline.
            let mut parts = names.splitn(2, |byte| *byte == b'\n');
            let realms = parts.next().unwrap_or_default();
            reader.realms = serde_json::from_slice(realms).unwrap_or_default();
            reader.in_force = parts.next().unwrap_or_default().to_vec();
            reader.begin = (head.size + head.names) as u64;
        }
        Ok(reader)
    }

    /// Offset of the first frame.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// True if the segment has the first version, whose frames have no numbers.
    pub(crate) fn is_first_version(&self) -> bool {
        self.version == Version::One
    }

    /// Name of a realm, if there were several.
    pub(crate) fn realm(&self, number: u16) -> Option<String> {
        self.realms.get(usize::from(number)).cloned()
    }

    /// Configuration in force, packed; nothing if the segment does not record it.
    pub(crate) fn in_force(&self) -> &[u8] {
        &self.in_force
    }

    /// Reads `len` bytes from an offset, or as many as there are.
    fn some_bytes(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let len = self.len.saturating_sub(at).min(len as u64) as usize;
        Ok(self.bytes(at, len)?.unwrap_or_default())
    }

    /// Reads `len` bytes from an offset, if they are there.
    fn bytes(&self, at: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        if at.saturating_add(len as u64) > self.len {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(Some(bytes)),
            // The writer has cut a partial write.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the header of the frame at an offset; `None` if there is none, or it is damaged.
    pub(crate) fn frame(&self, at: u64) -> io::Result<Option<Frame>> {
        let header = self.some_bytes(at, Head::size(self.version))?;
        self.frame_of(at, &header)
    }

    fn frame_of(&self, at: u64, header: &[u8]) -> io::Result<Option<Frame>> {
        let Some(head) = Head::read(self.version, header) else { return Ok(None) };
        let frame = Frame { filter_at: at + Head::size(self.version) as u64, head };
        // The header of version 1 is whole if the filter is.
        let is_frame = frame.end() <= self.len
            && (self.version == Version::Two || self.filter(&frame)?.is_some());
        Ok(is_frame.then_some(frame))
    }

    /// Reads all frames up to the first damage. `go_on` is called for each; false cancels.
    pub(crate) fn frames(&self, go_on: &dyn Fn() -> bool) -> io::Result<Frames> {
        let (mut at, mut frames) = (self.begin, Vec::new());
        let (mut chunk, mut chunk_at) = (Vec::new(), 0);
        while at < self.len && go_on() {
            let size = Head::size(self.version) as u64;
            if at + size > chunk_at + chunk.len() as u64 {
                (chunk, chunk_at) = (self.some_bytes(at, CHUNK)?, at);
            }
            let header = chunk.get((at - chunk_at) as usize..).unwrap_or_default();
            let Some(frame) = self.frame_of(at, header)? else {
                return Ok(Frames { frames, is_damaged: true });
            };
            at = frame.end();
            frames.push(frame);
        }
        Ok(Frames { frames, is_damaged: false })
    }

    /// Reads the filter of a frame; `None` if it is damaged.
    pub(crate) fn filter(&self, frame: &Frame) -> io::Result<Option<Filter>> {
        let filter = self.bytes(frame.filter_at, frame.head.filter_len as usize)?;
        Ok(filter.filter(|filter| frame.head.is_whole(filter)).map(Filter))
    }

    /// Reads the entries of a frame; `None` if they are damaged.
    pub(crate) fn entries(&self, frame: &Frame) -> io::Result<Option<Vec<Entry>>> {
        let packed = self.bytes(frame.entries_at(), frame.head.packed as usize)?;
        Ok(packed.and_then(|packed| frame.head.entries(&packed)))
    }
}
