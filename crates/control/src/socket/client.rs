//! The client's end of the control socket.

use super::Response;
use super::http::{ReadError, Timed, read_response, write_request};
use serde_json::Value;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// Nobody listens, or one may not speak to them.
    Unreachable(PathBuf, io::Error),
    /// The connection ended before the answer.
    Unanswered(PathBuf, io::Error),
    /// What came is no answer.
    Odd(String),
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(path, error) => {
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => "only its user and group may ask",
                    _ => "is `natgate run` running, and is this its control.socket?",
                };
                write!(f, "{} cannot be reached: {error}; {hint}", path.display())
            }
            Self::Unanswered(path, error) => {
                write!(f, "{} did not answer: {error}", path.display())
            }
            Self::Odd(message) => write!(f, "{message}"),
        }
    }
}

impl std::error::Error for AskError {}

/// Sends a request to a running gateway and waits for the answer, at most so long.
///
/// # Errors
/// [`AskError`] when there is none.
pub fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: &Value,
    patience: Duration,
) -> Result<Response, AskError> {
    let stream = UnixStream::connect(socket)
        .map_err(|error| AskError::Unreachable(socket.to_owned(), error))?;
    let mut timed = Timed::new(&stream, patience);
    let unanswered = |error| AskError::Unanswered(socket.to_owned(), error);
    write_request(&mut timed, method, path, body).map_err(unanswered)?;
    read_response(&mut timed).map_err(|error| match error {
        ReadError::Io(error) => unanswered(error),
        ReadError::Refused(_, message) => AskError::Odd(message),
    })
}
