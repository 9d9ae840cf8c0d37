//! The server's end: the socket's file, its thread, and one thread for each connection.

use super::http::{ReadError, Timed, read_request, write_response};
use super::{Response, Service};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Connections at a time; more wait.
pub const MOST_CONNECTIONS: usize = 8;

/// How long a request may take to come in, and an answer to go out.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// After how long a failed accept is tried again: file descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Why there is no socket.
#[derive(Debug)]
pub enum BindError {
    /// Another gateway listens there.
    InUse,
    /// The file cannot be made.
    Io(io::Error),
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse => {
                write!(f, "another natgate listens there; give each a socket of its own")
            }
            Self::Io(error) => write!(f, "the socket cannot be made: {error}"),
        }
    }
}

impl std::error::Error for BindError {}

/// A control socket at work; its file goes with it.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// The file's number, by which its own is told from another's.
    inode: u64,
}

impl Server {
    /// Makes the socket's file (mode 0660; a file that nobody listens at is replaced, a missing last
    /// folder made) and answers from now on.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start(path: &Path, service: Arc<dyn Service>) -> Result<Self, BindError> {
        if UnixStream::connect(path).is_ok() {
            return Err(BindError::InUse);
        }
        let (listener, inode) = listen(path).map_err(BindError::Io)?;
        let serve = move || accept(&listener, &service);
        Builder::new().name("control".into()).spawn(serve).map_err(BindError::Io)?;
        Ok(Self { path: path.to_owned(), inode })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            // Whoever finds the file afterwards learns that nobody listens.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Nobody can connect before the file has its mode: it is made beside and then takes its name.
fn listen(path: &Path) -> io::Result<(UnixListener, u64)> {
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        fs::create_dir(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let placed = fs::set_permissions(&beside, Permissions::from_mode(0o660))
        .and_then(|()| fs::metadata(&beside))
        .and_then(|file| fs::rename(&beside, path).map(|()| file.ino()));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    Ok((listener, placed?))
}

/// How many connections there are.
#[derive(Default)]
struct Gate {
    open: Mutex<usize>,
    closed: Condvar,
}

impl Gate {
    /// Waits until there is room for one more.
    fn enter(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |open: &mut usize| *open >= MOST_CONNECTIONS;
        *self.closed.wait_while(open, full).unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

/// A connection's place, given back when it ends, however it does.
struct Entered(Arc<Gate>);

impl Drop for Entered {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.closed.notify_one();
    }
}

fn accept(listener: &UnixListener, service: &Arc<dyn Service>) {
    let gate = Arc::new(Gate::default());
    loop {
        gate.enter();
        let entered = Entered(Arc::clone(&gate));
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let service = Arc::clone(service);
        let serve = move || {
            let _entered = entered;
            serve(&stream, &*service);
        };
        // Without a thread the connection is closed, which its client reports.
        let _ = Builder::new().name("control request".into()).spawn(serve);
    }
}

/// Answers the one request of a connection.
fn serve(stream: &UnixStream, service: &dyn Service) {
    let response = match read_request(&mut Timed::new(stream, PATIENCE)) {
        Ok(request) => service.answer(&request),
        Err(ReadError::Refused(status, message)) => Response::failure(status, message),
        Err(ReadError::Io(_)) => return,
    };
    // Who has gone away does not want the answer.
    let _ = write_response(&mut Timed::new(stream, PATIENCE), &response);
}
