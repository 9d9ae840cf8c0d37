//! The process that hands over: it listens, and serves one heir at a time.

use crate::HandoverError;
use crate::message::{MOST_FLOWS, MOST_HOSTS, Message, send_records};
use natgate_engine::{Config, HANDOVER_VERSION};
use natgate_gateway::{Clock, Commander, Device, Legacy, Writing, Written, panics};
use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt::{self, Debug, Formatter};
use std::fs;
use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Duration;

/// Longest silence of the heir while packets flow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest silence of the heir while packets do not flow.
const PATIENCE_HALTED: Duration = Duration::from_secs(5);

/// Longest time for the heir to open its devices.
const PATIENCE_CLOSED: Duration = Duration::from_secs(30);

/// Bytes of the socket's send buffer, if the system permits.
const ON_THE_WAY: usize = 8 << 20;

/// Connections that wait to be accepted.
const QUEUE: i32 = 16;

/// A process that asks to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Process number, as the asker states it.
    pub process: u32,
    /// Number of the asker's workers.
    pub workers: usize,
    /// True if the asker can open its devices only when no other process has them.
    pub closes: bool,
}

/// Devices of several workers.
type Devices = Vec<Vec<Box<dyn Device>>>;

/// Closing and reopening of a gateway's devices. Each list has the devices of each worker in the
/// order of its settings.
pub struct Gates {
    /// Opens placeholders for devices that are closed; the error says why that is impossible.
    pub stand_in: Box<dyn Fn() -> Result<Devices, String>>,
    /// Opens the devices again, however long it takes.
    pub open: Box<dyn Fn() -> Devices>,
}

impl Debug for Gates {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Gates")
    }
}

/// Terms on which a gateway hands over.
pub struct Grant<G> {
    /// Configuration that determines the sizes of each worker's tables.
    pub config: Config,
    /// Number of workers.
    pub workers: usize,
    /// Closing of devices that two processes cannot have at a time; `None`: they can.
    pub gates: Option<Gates>,
    /// Called when the gateway belongs to the heir, before the heir learns of it.
    pub handed: Box<dyn FnOnce()>,
    /// While this value exists, no other configuration comes into force.
    pub hold: G,
}

/// Listener for processes that take over.
#[derive(Debug)]
pub struct Giver {
    path: PathBuf,
    inode: u64,
}

impl Giver {
    /// Begins to listen, in a thread of its own, at a path that only this user may use. `grant`
    /// decides about the hand-over, and may refuse it with a sentence. `gone` is called after the
    /// hand-over: it must end the process, whose workers never take a packet again.
    ///
    /// # Errors
    /// The system's error; also if another process listens there.
    pub fn listen<G>(
        path: &Path,
        commander: Commander,
        clock: Clock,
        grant: impl Fn(Asker) -> Result<Grant<G>, String> + Send + 'static,
        gone: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (listener, inode) = bind(path)?;
        let serve = move || {
            // This thread halts the workers, and no other thread would resume them.
            panics::enter_data_plane();
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                };
                if serve(&stream, &commander, &clock, &grant).is_ok() {
                    gone();
                    // The heir sees the connection until the process has ended.
                    std::mem::forget(stream);
                    return;
                }
            }
        };
        Builder::new().name("hand-over".into()).spawn(serve)?;
        Ok(Self { path: path.to_owned(), inode })
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path that only this user may use. The socket has its mode before it has a file, so
/// no other process can connect at any time, and no path is given a mode.
fn bind(path: &Path) -> io::Result<(UnixListener, u64)> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(&beside)?)?;
    let placed = socket
        .listen(QUEUE)
        .and_then(|()| fs::symlink_metadata(&beside))
        .and_then(|file| fs::rename(&beside, path).map(|()| file.ino()));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    Ok((OwnedFd::from(socket).into(), placed?))
}

/// Serves one heir. `Ok` means that the gateway belongs to the heir, and this process never takes a
/// packet again.
fn serve<G>(
    stream: &UnixStream,
    commander: &Commander,
    clock: &Clock,
    grant: &impl Fn(Asker) -> Result<Grant<G>, String>,
) -> Result<(), HandoverError> {
    let _ = socket2::SockRef::from(stream).set_send_buffer_size(ON_THE_WAY);
    let patience = |time| {
        stream
            .set_read_timeout(Some(time))
            .and_then(|()| stream.set_write_timeout(Some(time)))
            .map_err(HandoverError::Lost)
    };
    patience(PATIENCE)?;
    let granted = match Message::receive(stream)? {
        Message::Hello { version, .. } if version != HANDOVER_VERSION => Err(format!(
            "it writes version {HANDOVER_VERSION} of its state, and the new one reads version \
             {version}; restart natgate instead: ports in use are held then, if [state] is \
             configured"
        )),
        Message::Hello { workers, process, closes, .. } => {
            grant(Asker { process, workers: workers.into(), closes })
        }
        _ => return Err(HandoverError::Damaged("it does not say what it is")),
    };
    let Grant { config, workers, gates, handed, hold: _hold } = match granted {
        Ok(grant) => grant,
        Err(sentence) => {
            let _ = Message::Refused(sentence.clone()).send(stream);
            return Err(HandoverError::Refused(sentence));
        }
    };
    let (time, steady) = clock.reading();
    say(stream, &Message::Welcome { time: time.0, steady, closes: gates.is_some() })?;
    let mut pass = Pass::new(&config, workers);
    loop {
        match Message::receive(stream)? {
            Message::More => pass.write(stream, commander, false)?,
            Message::Stop => break,
            _ => return Err(HandoverError::Damaged("it asks for something else")),
        }
    }
    patience(PATIENCE_HALTED)?;
    let halted = HaltedGateway::begin(commander)?;
    halted.tell(stream)?;
    pass.write(stream, commander, true)?;
    let closed = match gates {
        None => None,
        Some(gates) => match Message::receive(stream)? {
            Message::Close => {
                let closed = ClosedDevices::begin(commander, gates)?;
                say(stream, &Message::Closed)?;
                patience(PATIENCE_CLOSED)?;
                Some(closed)
            }
            _ => return Err(HandoverError::Damaged("it does not open its devices")),
        },
    };
    match Message::receive(stream)? {
        Message::Taken => {}
        _ => return Err(HandoverError::Damaged("it does not say that it has everything")),
    }
    // If the heir does not get this message, no process takes packets. Two processes at work would
    // be worse.
    halted.stay();
    closed.into_iter().for_each(ClosedDevices::stay);
    handed();
    let _ = Message::Yours.send(stream);
    Ok(())
}

fn say(stream: &UnixStream, message: &Message) -> Result<(), HandoverError> {
    message.send(stream).map_err(HandoverError::Lost)
}

/// A gateway that takes no packets. Dropping the value resumes the intake.
struct HaltedGateway<'a> {
    commander: &'a Commander,
    legacy: Legacy,
    stays: bool,
}

impl<'a> HaltedGateway<'a> {
    fn begin(commander: &'a Commander) -> Result<Self, HandoverError> {
        // If one worker does not halt, the drop resumes those that have halted.
        let mut halted = Self { commander, legacy: Legacy::default(), stays: false };
        halted.legacy = commander.halt().map_err(refused)?;
        Ok(halted)
    }

    /// Sends the state besides the records.
    fn tell(&self, stream: &UnixStream) -> Result<(), HandoverError> {
        say(stream, &Message::Halted(self.legacy.clone()))?;
        for (worker, hosts) in (0..).zip(&self.legacy.hosts) {
            for hosts in hosts.chunks(MOST_HOSTS) {
                say(stream, &Message::Hosts { worker, hosts: hosts.to_vec() })?;
            }
        }
        for (worker, paths) in (0..).zip(&self.legacy.paths) {
            for paths in paths.chunks(MOST_HOSTS) {
                say(stream, &Message::Paths { worker, paths: paths.to_vec() })?;
            }
        }
        for (worker, flows) in (0..).zip(&self.legacy.flows) {
            for flows in flows.chunks(MOST_FLOWS) {
                say(stream, &Message::Flows { worker, flows: flows.to_vec() })?;
            }
        }
        Ok(())
    }

    /// Keeps the gateway halted for good.
    fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for HaltedGateway<'_> {
    fn drop(&mut self) {
        if !self.stays {
            // If the resumption fails, the gateway is stopping anyway.
            let _ = self.commander.resume();
        }
    }
}

/// A gateway whose devices are closed. Dropping the value opens them again, before packets are
/// taken.
struct ClosedDevices<'a> {
    commander: &'a Commander,
    gates: Option<Gates>,
}

impl<'a> ClosedDevices<'a> {
    fn begin(commander: &'a Commander, gates: Gates) -> Result<Self, HandoverError> {
        let stand_in = (gates.stand_in)().map_err(HandoverError::Refused)?;
        drop(commander.exchange_devices(stand_in).map_err(refused)?);
        Ok(Self { commander, gates: Some(gates) })
    }

    /// Keeps the devices closed.
    fn stay(mut self) {
        self.gates = None;
    }
}

impl Drop for ClosedDevices<'_> {
    fn drop(&mut self) {
        if let Some(gates) = &self.gates {
            let _ = self.commander.exchange_devices((gates.open)());
        }
    }
}

fn refused(error: impl ToString) -> HandoverError {
    HandoverError::Refused(error.to_string())
}

/// Buffers of a pass: two for each worker, one that is filled while the other is sent.
struct Pass {
    writings: Vec<Option<Box<Writing>>>,
    spares: Vec<Vec<u8>>,
}

impl Pass {
    fn new(config: &Config, workers: usize) -> Self {
        let writing = |_| Some(Box::new(Writing::new(config)));
        Self {
            writings: (0..workers).map(writing).collect(),
            spares: (0..workers).map(|_| Writing::room()).collect(),
        }
    }

    /// Has all workers write a pass, and sends the records as they come.
    fn write(
        &mut self,
        stream: &UnixStream,
        commander: &Commander,
        is_last: bool,
    ) -> Result<(), HandoverError> {
        let stopping =
            || HandoverError::Refused("it is stopping; start without --take-over".to_owned());
        let mut under_way: Vec<Option<Written>> = Vec::new();
        for (worker, writing) in self.writings.iter_mut().enumerate() {
            let mut writing = writing.take().ok_or_else(stopping)?;
            writing.export.begin_pass(is_last);
            under_way.push(Some(commander.write(worker, writing).map_err(|_| stopping())?));
        }
        let mut count = 0;
        while under_way.iter().any(Option::is_some) {
            for (worker, waits) in under_way.iter_mut().enumerate() {
                let Some(written) = waits.take() else { continue };
                let (mut writing, is_over) = written.recv().map_err(|_| stopping())?;
                let spare = std::mem::take(&mut self.spares[worker]);
                let full = std::mem::replace(&mut writing.out, spare);
                if is_over {
                    count += writing.export.written();
                    self.writings[worker] = Some(writing);
                } else {
                    // The worker continues while this buffer is sent.
                    *waits = Some(commander.write(worker, writing).map_err(|_| stopping())?);
                }
                send_records(BufWriter::new(stream), worker as u16, &full)
                    .map_err(HandoverError::Lost)?;
                self.spares[worker] = full;
                self.spares[worker].clear();
            }
        }
        say(stream, &Message::Over(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_user_may_connect() {
        let path = std::env::temp_dir().join(format!("natgate-giver-{}", std::process::id()));
        for _ in 0..2 {
            // The second time the file of the first is in the way.
            let (listener, inode) = bind(&path).expect("it listens");
            let file = fs::symlink_metadata(&path).expect("a file");
            assert_eq!((file.permissions().mode() & 0o777, file.ino()), (0o600, inode));
            assert!(UnixStream::connect(&path).is_ok() && bind(&path).is_err());
            drop(listener);
        }
        fs::remove_file(&path).expect("it is there");
    }
}
