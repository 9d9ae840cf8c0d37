//! Places where a server listens: a Unix socket, whose file has its rules, or a TCP port.

use crate::{ClientGroup, Peer, Role, Tls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Connections of a Unix socket that wait to be accepted. A full backlog refuses clients that do
/// not block. An accepted connection has waited for all before it.
const BACKLOG: i32 = 1024;

/// Place to listen at, and the rights of its clients.
#[derive(Clone, Debug)]
pub struct Listen {
    place: Place,
    role: Role,
    protocol: Protocol,
    group: Option<ClientGroup>,
    limit: Option<ConnectionLimit>,
}

/// The greatest number of connections at a time, where further ones do not wait.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit {
    pub(crate) most: usize,
    /// Counts the connections that were closed to keep to the limit.
    pub(crate) refused: Arc<AtomicU64>,
}

/// Form in which requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, each whole.
    Whole,
    /// HTTP/2; requests may come in pieces.
    Streams,
}

#[derive(Clone, Debug)]
enum Place {
    Unix { path: PathBuf, group: Option<u32> },
    Tcp(SocketAddr),
    Tls(SocketAddr, Tls),
}

impl Listen {
    /// A Unix socket. Its file has mode 0660. A file that nobody listens at is replaced; a missing
    /// last folder is made. Clients that may write to the file may do everything.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self {
            place: Place::Unix { path: path.into(), group: None },
            role: Role::Operate,
            protocol: Protocol::Whole,
            group: None,
            limit: None,
        }
    }

    /// A TCP port; 0: any free port. Clients of the port may read.
    pub fn tcp(address: SocketAddr) -> Self {
        Self {
            place: Place::Tcp(address),
            role: Role::Read,
            protocol: Protocol::Whole,
            group: None,
            limit: None,
        }
    }

    /// A TCP port with TLS, for clients that have a certificate. The certificate says what its
    /// client may do.
    pub fn tls(address: SocketAddr, tls: Tls) -> Self {
        let place = Place::Tls(address, tls);
        Self { place, role: Role::Read, protocol: Protocol::Whole, group: None, limit: None }
    }

    /// Limits the connections at a time to this number, and to a quarter of it from one client
    /// address (of IPv6, one /64). A further connection takes the place of an idle one, or is
    /// closed; `refused` counts the connections that are closed so. Without a limit further
    /// connections wait.
    #[must_use]
    pub fn at_most(self, most: usize, refused: Arc<AtomicU64>) -> Self {
        Self { limit: Some(ConnectionLimit { most, refused }), ..self }
    }

    /// Gives the clients another role.
    #[must_use]
    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Gives the clients another group than the place says: see [`Listen::group_of_clients`].
    #[must_use]
    pub fn clients(self, group: ClientGroup) -> Self {
        Self { group: Some(group), ..self }
    }

    /// The group of the clients; its thread serves them.
    pub(crate) fn group_of_clients(&self) -> ClientGroup {
        let usual = match (&self.place, self.role) {
            (Place::Unix { .. }, Role::Operate) => ClientGroup::Operators,
            (Place::Unix { .. }, Role::Read) => ClientGroup::Readers,
            (Place::Tls(..), _) => ClientGroup::Remote,
            (Place::Tcp(_), _) => ClientGroup::Public,
        };
        self.group.unwrap_or(usual)
    }

    /// Serves HTTP/2 without upgrade, as gRPC wants it, and nothing else. Requests and answers may
    /// be streams that never end, so the router decides about the size of a request's body.
    #[must_use]
    pub fn streams(self) -> Self {
        Self { protocol: Protocol::Streams, ..self }
    }

    /// Gives the socket's file this group, by its number.
    #[must_use]
    pub fn group(mut self, number: u32) -> Self {
        if let Place::Unix { group, .. } = &mut self.place {
            *group = Some(number);
        }
        self
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(crate) fn limit(&self) -> Option<&ConnectionLimit> {
        self.limit.as_ref()
    }

    pub(crate) fn role_of_all(&self) -> Role {
        self.role
    }

    /// Takes the place; to be called in the runtime.
    pub(crate) fn bind(&self) -> Result<Bound, BindError> {
        match &self.place {
            Place::Unix { path, group } => {
                if StdUnixStream::connect(path).is_ok() {
                    return Err(BindError::InUse);
                }
                let (listener, inode) = bind_unix(path, *group)?;
                let file = SocketFile { path: path.clone(), inode };
                let listener = UnixListener::from_std(listener).map_err(BindError::Io)?;
                Ok(Bound { listener: Listener::Unix(listener), file: Some(file), address: None })
            }
            Place::Tcp(address) | Place::Tls(address, _) => {
                let refused = |error: io::Error| match error.kind() {
                    io::ErrorKind::AddrInUse => BindError::PortInUse(*address),
                    _ => BindError::Port(*address, error),
                };
                let listener = StdTcpListener::bind(address).map_err(refused)?;
                listener.set_nonblocking(true).map_err(BindError::Io)?;
                let address = listener.local_addr().map_err(BindError::Io)?;
                let listener = TcpListener::from_std(listener).map_err(BindError::Io)?;
                let listener = match &self.place {
                    Place::Tls(_, tls) => Listener::Tls(listener, tls.clone()),
                    _ => Listener::Tcp(listener),
                };
                Ok(Bound { listener, file: None, address: Some(address) })
            }
        }
    }
}

/// Reason why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another gateway listens at the socket.
    #[error("another natgate listens there; give each a socket of its own")]
    InUse,
    /// Another program listens at the port.
    #[error("{0} is in use by another program; choose another port, or stop who listens there")]
    PortInUse(SocketAddr),
    /// The port cannot be had.
    #[error("cannot listen at {0}: {1}; choose an address of this machine and a port above 1023")]
    Port(SocketAddr, io::Error),
    /// The socket or its thread cannot be made.
    #[error("the socket cannot be made: {0}")]
    Io(io::Error),
    /// The socket's file cannot get its group.
    #[error(
        "the socket's file cannot be given to group {0}: {1}; its user must be in that group, or \
         root"
    )]
    Group(u32, io::Error),
}

/// A place that was taken.
pub(crate) struct Bound {
    pub(crate) listener: Listener,
    pub(crate) file: Option<SocketFile>,
    pub(crate) address: Option<SocketAddr>,
}

/// The socket that accepts connections.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
}

/// A connection that has come in.
pub(crate) enum NewConnection {
    Plain(Box<dyn Stream>, Peer),
    /// A TLS connection: the certificate will name its client.
    Tls(TcpStream, SocketAddr, Tls),
}

/// A connection's stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

impl NewConnection {
    /// The address that the client comes from, if it has one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Plain(_, Peer::Address(address)) | Self::Tls(_, address, _) => Some(address.ip()),
            Self::Plain(..) => None,
        }
    }
}

impl Listener {
    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<NewConnection> {
        Ok(match self {
            Self::Unix(listener) => {
                let stream = next_of(listener).await?;
                let process = |credentials: UCred| Peer::Process {
                    uid: credentials.uid(),
                    pid: credentials.pid(),
                };
                let peer = stream.peer_cred().map_or(Peer::Unknown, process);
                NewConnection::Plain(Box::new(stream), peer)
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are written whole; without this they only come later.
                let _ = stream.set_nodelay(true);
                NewConnection::Plain(Box::new(stream), Peer::Address(address))
            }
            Self::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                NewConnection::Tls(stream, address, tls.clone())
            }
        })
    }
}

/// The next connection of a Unix socket whose client is still there. Clients that connect and close
/// without a pause fill the backlog. Their connections end here, before anything is made for them,
/// so a client behind them does not wait long.
async fn next_of(listener: &UnixListener) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = listener.accept().await?;
        if !has_hung_up(&stream) {
            return Ok(stream);
        }
    }
}

/// True if the other end is closed both ways, so that nobody reads an answer.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut state = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut state, Some(&now)).is_ok() && state[0].revents().contains(PollFlags::HUP)
}

/// A socket's file, which goes with the server.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The file's number, which tells the server's own file from another.
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            // If the file stays, a client that finds it learns that nobody listens.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path. No other user can connect before the file has its group and mode: the file is
/// made under another name and takes its own then.
fn bind_unix(path: &Path, group: Option<u32>) -> Result<(StdUnixListener, u64), BindError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        fs::create_dir(folder).map_err(BindError::Io)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let socket = bound_at(&beside).map_err(BindError::Io)?;
    let place = || -> Result<u64, BindError> {
        let (handle, inode) = handle(&beside).map_err(BindError::Io)?;
        // The path of the handle leads to this file, whatever has the name meanwhile.
        let file = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        if let Some(group) = group {
            chown(&file, None, Some(group)).map_err(|error| BindError::Group(group, error))?;
        }
        let mode = Permissions::from_mode(0o660);
        fs::set_permissions(&file, mode).map_err(BindError::Io)?;
        rustix::net::listen(&socket, BACKLOG).map_err(|error| BindError::Io(error.into()))?;
        fs::rename(&beside, path).map_err(BindError::Io)?;
        Ok(inode)
    };
    let placed = place();
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    let inode = placed?;
    Ok((socket.into(), inode))
}

/// A socket that does not listen yet, with a file that only this user may use.
fn bound_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Opens the file of a socket that this process has made, and returns the handle and the file's
/// number. The owner of the folder may have put a link or another file in its place: both are
/// errors, because a process of root would give those away.
fn handle(path: &Path) -> io::Result<(OwnedFd, u64)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    let about = rustix::fs::fstat(&handle)?;
    let is_socket = FileType::from_raw_mode(about.st_mode) == FileType::Socket;
    let is_own = about.st_uid == rustix::process::geteuid().as_raw();
    if !is_socket || !is_own || about.st_nlink != 1 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another process has put a file of its own in the place of the socket",
        ));
    }
    Ok((handle, about.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_in_the_place_of_a_socket_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("natgate-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = |name: &str| folder.join(name);
        let _listener = StdUnixListener::bind(path("socket")).expect("a socket");
        let (_, inode) = handle(&path("socket")).expect("it is ours");
        assert_eq!(inode, fs::symlink_metadata(path("socket")).expect("it is there").ino());
        fs::write(path("file"), "").expect("a file");
        symlink(path("socket"), path("link")).expect("a link");
        for name in ["file", "link", "none"] {
            assert!(handle(&path(name)).is_err(), "{name}");
        }
        fs::hard_link(path("socket"), path("second")).expect("a second name");
        assert!(handle(&path("second")).is_err() && handle(&path("socket")).is_err());
        fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn the_file_of_a_socket_has_its_mode_and_its_group() {
        let path = std::env::temp_dir().join(format!("natgate-mode-{}", std::process::id()));
        let group = rustix::process::getegid().as_raw();
        let (_listener, inode) = bind_unix(&path, Some(group)).expect("it listens");
        let file = fs::symlink_metadata(&path).expect("it is there");
        assert_eq!((file.permissions().mode() & 0o777, file.gid()), (0o660, group));
        assert_eq!(file.ino(), inode);
        fs::remove_file(path).expect("it is there");
    }
}
