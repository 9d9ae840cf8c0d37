//! HTTP/1.1 messages as far as they are needed here: a head of bounded size, a body whose length it
//! says, then the end of the connection. `httparse` reads the heads.

use super::{Request, Response};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest head of a message, bytes.
pub const MOST_HEAD: usize = 16 << 10;
/// Longest body of a request, bytes.
pub const MOST_BODY: usize = 1 << 20;

/// Header lines of a message.
const MOST_HEADERS: usize = 64;

/// Why a message cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The other end is gone, silent, or slow.
    Io(io::Error),
    /// The message is refused, with this status and sentence.
    Refused(u16, String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection that gives up at a time.
pub(super) struct Timed<'s> {
    stream: &'s UnixStream,
    until: Instant,
}

impl<'s> Timed<'s> {
    pub(super) fn new(stream: &'s UnixStream, patience: Duration) -> Self {
        Self { stream, until: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is read of the lines after the first.
struct Fields {
    /// Bytes that the head takes.
    head: usize,
    /// Bytes of the body, if it is said.
    length: Option<usize>,
}

/// Reads a request.
pub(super) fn read_request(stream: &mut impl Read) -> Result<Request, ReadError> {
    let mut bytes = Vec::new();
    let (first, fields) = read_head(stream, &mut bytes, |bytes| {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        let status = head.parse(bytes).map_err(|error| error.to_string())?;
        let httparse::Status::Complete(len) = status else { return Ok(None) };
        let (method, target) = (head.method.unwrap_or_default(), head.path.unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        let fields = fields(len, head.headers)?;
        Ok(Some(((method.to_owned(), path.to_owned()), fields)))
    })?;
    let length = fields.length.unwrap_or(0);
    if length > MOST_BODY {
        let message = format!("a body of {length} bytes is too long: at most {MOST_BODY}");
        return Err(ReadError::Refused(413, message));
    }
    let body = read_body(stream, bytes.split_off(fields.head), length)?;
    let (method, path) = first;
    Ok(Request { method, path, body })
}

/// Reads an answer; one without a length ends with the connection.
pub(super) fn read_response(stream: &mut impl Read) -> Result<Response, ReadError> {
    let mut bytes = Vec::new();
    let (status, fields) = read_head(stream, &mut bytes, |bytes| {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let status = head.parse(bytes).map_err(|error| error.to_string())?;
        let httparse::Status::Complete(len) = status else { return Ok(None) };
        Ok(Some((head.code.unwrap_or_default(), fields(len, head.headers)?)))
    })?;
    let begun = bytes.split_off(fields.head);
    let body = match fields.length {
        Some(length) => read_body(stream, begun, length)?,
        None => {
            let mut body = begun;
            stream.read_to_end(&mut body)?;
            body
        }
    };
    let body = serde_json::from_slice(&body)
        .map_err(|error| ReadError::Refused(status, format!("the answer is no JSON: {error}")))?;
    Ok(Response { status, body })
}

/// Reads until a head is whole; `parse` gives what it says, or nothing while it is not.
fn read_head<T>(
    stream: &mut impl Read,
    bytes: &mut Vec<u8>,
    parse: impl Fn(&[u8]) -> Result<Option<T>, String>,
) -> Result<T, ReadError> {
    let mut chunk = [0; 2048];
    loop {
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        bytes.extend_from_slice(&chunk[..read]);
        let parsed = parse(bytes)
            .map_err(|error| ReadError::Refused(400, format!("not HTTP/1.1: {error}")))?;
        if let Some(parsed) = parsed {
            return Ok(parsed);
        }
        if bytes.len() > MOST_HEAD {
            let message = format!("the head is too long: at most {MOST_HEAD} bytes");
            return Err(ReadError::Refused(431, message));
        }
    }
}

fn fields(head: usize, headers: &[httparse::Header<'_>]) -> Result<Fields, String> {
    let mut length = None;
    for header in headers {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("a body must come with Content-Length".into());
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(header.value).ok().map(str::trim);
            let value = value.filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
            let value = value.and_then(|value| value.parse().ok());
            let value = value.ok_or("Content-Length is no number of bytes")?;
            if length.replace(value).is_some_and(|other| other != value) {
                return Err("there are two Content-Length".into());
            }
        }
    }
    Ok(Fields { head, length })
}

/// Reads a body of which some may have come with the head.
fn read_body(
    stream: &mut impl Read,
    mut begun: Vec<u8>,
    length: usize,
) -> Result<Vec<u8>, ReadError> {
    begun.truncate(length);
    let missing = length - begun.len();
    let read = stream.take(missing as u64).read_to_end(&mut begun)?;
    if read < missing {
        return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(begun)
}

/// Writes a request.
pub(super) fn write_request(
    stream: &mut impl Write,
    method: &str,
    path: &str,
    body: &Value,
) -> io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: natgate\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Writes an answer.
pub(super) fn write_response(stream: &mut impl Write, response: &Response) -> io::Result<()> {
    let body = format!("{}\n", response.body);
    let (status, length) = (response.status, body.len());
    let reason = reason(status);
    write!(
        stream,
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
