//! The process that goes: it listens, and serves who asks, one at a time.

use crate::HandoverError;
use crate::message::{Message, send_records};
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

/// How long the other may be silent while packets flow.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may be silent while they do not.
const PATIENCE_HALTED: Duration = Duration::from_secs(5);

/// How long it may take to open its devices.
const PATIENCE_CLOSED: Duration = Duration::from_secs(30);

/// Bytes that may be on the way to the other, if the system allows.
const ON_THE_WAY: usize = 8 << 20;

/// Connections that wait to be accepted.
const QUEUE: i32 = 16;

/// Who asks for a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its process, as it says.
    pub process: u32,
    /// How many workers it has.
    pub workers: usize,
    /// Whether it can open its devices only when no other process has them.
    pub closes: bool,
}

/// A worker's devices, of each of several.
type Devices = Vec<Vec<Box<dyn Device>>>;

/// How a gateway's devices are closed and opened again, for each worker those in the order of its
/// settings.
pub struct Gates {
    /// Opens what stands in for devices that are closed; or says why that cannot be.
    pub stand_in: Box<dyn Fn() -> Result<Devices, String>>,
    /// Opens the devices again, however long it takes.
    pub open: Box<dyn Fn() -> Devices>,
}

impl Debug for Gates {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Gates")
    }
}

/// What a gateway permits that is asked to hand over.
pub struct Grant<G> {
    /// What each worker's translator has its tables sized by.
    pub config: Config,
    /// How many workers there are.
    pub workers: usize,
    /// How devices are closed that two processes cannot have; `None`: they can.
    pub gates: Option<Gates>,
    /// Is called when the gateway is the other's, before that learns of it.
    pub handed: Box<dyn FnOnce()>,
    /// As long as this is held, no other configuration comes into force.
    pub hold: G,
}

/// Listens for who comes to take over.
#[derive(Debug)]
pub struct Giver {
    path: PathBuf,
    inode: u64,
}

impl Giver {
    /// Begins to listen, in a thread of its own, at a path that only this user may use. `grant` is
    /// asked whether the gateway is handed over, and may say in a sentence why not; `gone` is told
    /// when it has been: it must end the process, whose workers never take a packet again.
    ///
    /// # Errors
    /// What the system says; another process listens there.
    pub fn listen<G>(
        path: &Path,
        commander: Commander,
        clock: Clock,
        grant: impl Fn(Asker) -> Result<Grant<G>, String> + Send + 'static,
        gone: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (listener, inode) = bind(path)?;
        let serve = move || {
            // It has the workers stand still, and nobody else has them go on.
            panics::enter_data_plane();
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                };
                if serve(&stream, &commander, &clock, &grant).is_ok() {
                    gone();
                    // Until the process has ended the other sees that the connection stands.
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

/// Serves one that asks; `Ok`: the gateway is the other's, and this one never takes a packet again.
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
            "it writes version {HANDOVER_VERSION} of its state, and the new one reads version {version}; \
             restart natgate instead: ports in use are held then, if [state] is configured"
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
    say(stream, &Message::Halted(halted.legacy.clone()))?;
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
    // Should the other not get this, nobody is there: but it would be worse if both were.
    halted.stay();
    closed.into_iter().for_each(ClosedDevices::stay);
    handed();
    let _ = Message::Yours.send(stream);
    Ok(())
}

fn say(stream: &UnixStream, message: &Message) -> Result<(), HandoverError> {
    message.send(stream).map_err(HandoverError::Lost)
}

/// A gateway that takes no packets, and does again when this goes.
struct HaltedGateway<'a> {
    commander: &'a Commander,
    legacy: Legacy,
    stays: bool,
}

impl<'a> HaltedGateway<'a> {
    fn begin(commander: &'a Commander) -> Result<Self, HandoverError> {
        // Should one not stop, those that have are told to go on.
        let mut halted = Self { commander, legacy: Legacy::default(), stays: false };
        halted.legacy = commander.halt().map_err(refused)?;
        Ok(halted)
    }

    /// It never does.
    fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for HaltedGateway<'_> {
    fn drop(&mut self) {
        if !self.stays {
            // If that fails it is stopping anyway.
            let _ = self.commander.resume();
        }
    }
}

/// A gateway whose devices are closed, and are opened again when this goes: before it takes packets
/// again.
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

    /// They stay closed.
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

/// What passes write: of each worker two rooms, of which one is filled while the other is sent.
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

    /// Has all workers write a pass, and sends what they write as it comes.
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
                    // It writes on while this is sent.
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
