//! The handle of a link, and the thread behind it.

use crate::clock;
use crate::dialer::{self, Destination};
use crate::error::LinkError;
use crate::frame::Kind;
use crate::identity::{Identity, Papers};
use crate::knock;
use crate::lead::ReadClock;
use crate::limits::{FAREWELL, FILE_CHECK, QUESTION_TIME, REDIAL, TURN_TIME};
use crate::question::{self, AskError};
use crate::questions::Answerer;
use crate::shared::{Outbound, Shared, Wake};
use crate::status::LinkStatus;
use crate::transport::{self, STOPPED, VERSIONS};
use crate::{listener, outbound};
use bytes::Bytes;
use quinn::{ClientConfig, Endpoint, TokioRuntime};
use rustls::pki_types::DnsName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

/// Names, addresses and files of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of this node, which its certificate has as a DNS name. The first node by name dials.
    pub node: String,
    /// Address of this node.
    pub listen: SocketAddr,
    /// This node's certificate, and those between it and its authority's; PEM.
    pub certificate: PathBuf,
    /// This node's key; PEM.
    pub key: PathBuf,
    /// Certificates of the authorities that may sign the partner's; PEM.
    pub authorities: PathBuf,
    /// Name of the partner, which its certificate must have as a DNS name.
    pub partner: String,
    /// Address of the partner.
    pub address: SocketAddr,
}

/// Pause between two looks whether an answer is still needed.
const ASKED_AGAIN: Duration = Duration::from_millis(50);

/// Settings that only tests change.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Versions of the messages, greatest first.
    pub(crate) versions: Vec<u16>,
    pub(crate) file_check: Duration,
    /// The first and the longest pause between attempts to dial.
    pub(crate) redial: (Duration, Duration),
    /// This node's clock; `None`: clocks are not compared.
    pub(crate) clock: Option<ReadClock>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { versions: VERSIONS.to_vec(), file_check: FILE_CHECK, redial: REDIAL, clock: None }
    }
}

/// A link to the partner. Clones are handles of one link, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Link {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// The means to start tasks in the thread.
    tasks: tokio::runtime::Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
    }
}

/// Starts a link: reads and checks the files, takes the address, and starts the thread. The partner
/// need not be there.
///
/// # Errors
/// [`LinkError`] names the file or the address.
pub fn start(settings: &Settings) -> Result<Link, LinkError> {
    start_tuned(settings, Tuning { clock: Some(SystemTime::now), ..Tuning::default() })
}

pub(crate) fn start_tuned(settings: &Settings, tuning: Tuning) -> Result<Link, LinkError> {
    let papers = papers(settings, tuning.versions)?;
    let stamps = papers.stamps();
    let identity = papers.read()?;
    let bind = |error| LinkError::Bind(settings.listen, error);
    let socket = transport::socket(settings.listen).map_err(bind)?;
    let address = socket.local_addr().map_err(bind)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(LinkError::Thread)?;
    let server = Some(identity.server.clone());
    let endpoint = {
        let _context = runtime.enter();
        let quinn = Arc::new(TokioRuntime);
        Endpoint::new(transport::endpoint(), server, socket, quinn).map_err(bind)?
    };
    let (shared, queues) = Shared::new();
    if let Some(clock) = tuning.clock {
        // The state is new.
        let _ = shared.questions.clock.set(clock);
    }
    let name = settings.partner.clone();
    let partner = Destination { address: settings.address, name, redial: tuning.redial };
    let files = Files { papers, stamps, identity, check: tuning.file_check };
    let tasks = runtime.handle().clone();
    let work = Work { shared: Arc::clone(&shared), queues, endpoint, partner, files };
    let thread = spawn(runtime, work).map_err(LinkError::Thread)?;
    let thread = Mutex::new(Some(thread));
    Ok(Link { handle: Arc::new(Handle { shared, address, tasks, thread }) })
}

/// All faults of names and files that keep a link from starting. Nothing is started.
pub fn faults(settings: &Settings) -> Vec<LinkError> {
    papers(settings, VERSIONS.to_vec()).map_or_else(|error| vec![error], |papers| papers.faults())
}

fn spawn(runtime: Runtime, work: Work) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("partner".into()).spawn(move || {
        let _ended = Ended(Arc::clone(&work.shared));
        runtime.block_on(run(work));
        runtime.shutdown_background();
    })
}

/// Tells callers that the thread has ended, also by a panic.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended_thread();
    }
}

/// Checks names and addresses.
pub(crate) fn papers(settings: &Settings, versions: Vec<u16>) -> Result<Papers, LinkError> {
    let Settings { node, partner, listen, address, .. } = settings;
    let name =
        |name: &String| DnsName::try_from(name.clone()).map_err(|_| LinkError::Name(name.clone()));
    let [own, other] = [name(node)?, name(partner)?];
    if node.eq_ignore_ascii_case(partner) {
        return Err(LinkError::SameName(node.clone()));
    }
    if address.port() == 0 {
        return Err(LinkError::NoPort(*address));
    }
    // An IPv6 socket without an address takes IPv4 too.
    let is_any = listen.is_ipv6() && listen.ip().is_unspecified();
    if listen.is_ipv4() != address.is_ipv4() && !is_any {
        return Err(LinkError::Family { listen: *listen, address: *address });
    }
    Ok(Papers {
        certificate: settings.certificate.clone(),
        key: settings.key.clone(),
        authorities: settings.authorities.clone(),
        node: own,
        partner: other,
        versions,
    })
}

/// All that the thread has.
struct Work {
    shared: Arc<Shared>,
    queues: Outbound,
    endpoint: Endpoint,
    partner: Destination,
    files: Files,
}

/// Runs until the link is stopped, or until a part of it has ended: its socket has failed, or there
/// was a panic, which the panic hook reports.
async fn run(work: Work) {
    let Work { shared, queues, endpoint, partner, files } = work;
    let mut parts = JoinSet::new();
    parts.spawn(outbound::datagrams(Arc::clone(&shared)));
    parts.spawn(outbound::long(Arc::clone(&shared), queues.long));
    parts.spawn(outbound::packets(Arc::clone(&shared), queues.packets));
    parts.spawn(outbound::words(Arc::clone(&shared), queues.words));
    parts.spawn(outbound::views(Arc::clone(&shared)));
    let address = partner.address.ip();
    parts.spawn(listener::listen(Arc::clone(&shared), endpoint.clone(), address));
    let (dialing, tls) = watch::channel(files.identity.client.clone());
    let dials = files.papers.is_dialer();
    match dials {
        true => parts.spawn(dialer::dial(Arc::clone(&shared), endpoint.clone(), partner, tls)),
        false => parts.spawn(knock::knock(Arc::clone(&shared), endpoint.clone(), partner, tls)),
    };
    if let Some(clock) = shared.questions.clock.get() {
        parts.spawn(clock::compare(Arc::clone(&shared), *clock));
    }
    let in_force = InForce { endpoint: endpoint.clone(), dialing, dials };
    parts.spawn(watch_files(Arc::clone(&shared), files, in_force));
    select! {
        () = shared.stop.notified() => {}
        ended = parts.join_next() => shared.failed_because(match ended {
            Some(Err(_)) => "a part of the link has ended by a panic",
            _ => "the socket of the link has failed",
        }),
    }
    endpoint.close(STOPPED, b"");
    // The partner notices the end by its own clock otherwise.
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
}

/// The place of the certificates in use.
struct InForce {
    endpoint: Endpoint,
    dialing: watch::Sender<ClientConfig>,
    /// True if this node dials the link.
    dials: bool,
}

/// The files of certificates, and what was in them.
struct Files {
    papers: Papers,
    stamps: Vec<Option<[i64; 5]>>,
    identity: Identity,
    check: Duration,
}

/// Puts changed files in force. Unusable ones are reported and read again at the next check.
async fn watch_files(shared: Arc<Shared>, mut files: Files, in_force: InForce) {
    loop {
        let is_asked = select! {
            () = shared.reload.notified() => true,
            () = sleep(files.check) => false,
        };
        let (papers, stamps) = (files.papers.clone(), files.stamps.clone());
        // Files may be slow.
        let read = spawn_blocking(move || {
            let present = papers.stamps();
            (is_asked || present != stamps).then(|| (present, papers.read()))
        });
        match read.await {
            Ok(Some((stamps, Ok(identity)))) => {
                shared.certificates(None);
                let is_same = identity.is_same(&files.identity);
                (files.stamps, files.identity) = (stamps, identity);
                if !is_same {
                    put_in_force(&shared, &in_force, &files.identity).await;
                }
            }
            Ok(Some((_, Err(error)))) => shared.certificates(Some(error.to_string())),
            Ok(None) => {}
            Err(error) => shared.certificates(Some(error.to_string())),
        }
    }
}

async fn put_in_force(shared: &Shared, in_force: &InForce, identity: &Identity) {
    in_force.endpoint.set_server_config(Some(identity.server.clone()));
    in_force.dialing.send_replace(identity.client.clone());
    let active = shared.current.borrow().clone();
    if let Some(active) = active.filter(|_| !in_force.dials) {
        // An error means that the connection has ended, so that the partner dials anyway.
        let _ = outbound::signal(&active, Kind::Renewal).await;
    }
}

impl Link {
    /// Queues a message of replication. It is a datagram if it has at most
    /// [`datagram_room`](Self::datagram_room) bytes, otherwise it has a stream of its own. Neither
    /// waits for the other. A message may be lost with its packet or its connection.
    ///
    /// False: there is no connection, the queue is full (counted), or the message is longer than
    /// [`MAX_MESSAGE`](crate::MAX_MESSAGE) (counted).
    #[must_use]
    pub fn send(&self, message: impl Into<Bytes>) -> bool {
        let is_queued = self.queue(message);
        self.flush();
        is_queued
    }

    /// As [`send`](Self::send), but the message may wait for [`flush`](Self::flush). One call of
    /// that for several messages costs less than one for each.
    #[must_use]
    pub fn queue(&self, message: impl Into<Bytes>) -> bool {
        self.handle.shared.queue(message.into())
    }

    /// Sends the queued messages.
    pub fn flush(&self) {
        self.handle.shared.flush();
    }

    /// The next message of the partner, in the order of arrival.
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.handle.shared.receive()
    }

    /// Queues a packet of the tunnel: a datagram that goes behind all messages, and may be lost. It
    /// has [`TUNNEL_HEAD`](crate::TUNNEL_HEAD) bytes less than
    /// [`datagram_room`](Self::datagram_room) at most. One that begins with 0 is a word: it has a
    /// queue of its own, and goes before packets that wait.
    ///
    /// False: there is no connection, the queue is full, or the packet is too long.
    #[must_use]
    pub fn pass(&self, packet: &[u8]) -> bool {
        self.handle.shared.pass(packet)
    }

    /// The next packet that has come by the tunnel; words first.
    pub fn passed(&self) -> Option<Vec<u8>> {
        self.handle.shared.passed()
    }

    /// Calls this function when a packet has come by the tunnel and no other waits, in the link's
    /// thread. The first function that is given stays.
    pub fn wake_by(&self, wake: Box<Wake>) {
        // A later one is not used.
        let _ = self.handle.shared.waker.set(wake);
    }

    /// Bytes that fit a datagram now, at least [`MIN_DATAGRAM_ROOM`](crate::MIN_DATAGRAM_ROOM).
    pub fn datagram_room(&self) -> usize {
        self.handle.shared.datagram_room()
    }

    /// Tells the partner this node's view: now, on each new connection, and every 200 ms. A later
    /// view replaces it. False: the view is longer than [`MAX_VIEW`](crate::MAX_VIEW), and was not
    /// taken.
    #[must_use]
    pub fn tell(&self, view: Vec<u8>) -> bool {
        self.handle.shared.tell(view)
    }

    /// The partner's newest view, if one has arrived since the last call.
    pub fn heard(&self) -> Option<Vec<u8>> {
        self.handle.shared.heard()
    }

    /// Processes of the partner up to this boot number have ended, as its guardian has said since
    /// the last call.
    pub fn partner_ended(&self) -> Option<u64> {
        self.handle.shared.partner_ended()
    }

    /// Asks the partner a question and waits for its answer: three minutes at most for the end of
    /// earlier questions, then ten seconds at most for the answer. Not for workers. `go_on` is
    /// called repeatedly; false cancels the question.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask(&self, question: Vec<u8>, go_on: &dyn Fn() -> bool) -> Result<Vec<u8>, AskError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let asking = question::ask(Arc::clone(&self.handle.shared), question);
        let task = self.handle.tasks.spawn(async move {
            let _ = reply.send(asking.await);
        });
        // If the thread has ended, the task never runs.
        let latest = Instant::now() + TURN_TIME + QUESTION_TIME + FAREWELL;
        let outcome = loop {
            match answer.recv_timeout(ASKED_AGAIN) {
                Ok(outcome) => break outcome,
                Err(mpsc::RecvTimeoutError::Disconnected) => break Err(AskError::Broken),
                Err(mpsc::RecvTimeoutError::Timeout) if !go_on() => break Err(AskError::Cancelled),
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() > latest => {
                    break Err(AskError::Late);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        };
        task.abort();
        outcome
    }

    /// Answers the partner's questions by this function, in a thread of its own. The first function
    /// that is given stays; before that no question is answered.
    pub fn answer_by(&self, answerer: Box<Answerer>) {
        self.handle.shared.questions.answer_by(answerer);
    }

    /// State and counters. Takes locks: not for workers.
    pub fn status(&self) -> LinkStatus {
        self.handle.shared.status()
    }

    /// Datagrams that have left QUIC's buffer, on the connection in use.
    #[cfg(test)]
    pub(crate) fn datagrams_gone(&self) -> u64 {
        let current = self.handle.shared.current.borrow();
        current.as_ref().map_or(0, |active| active.connection.stats().frame_tx.datagram)
    }

    /// The address that the link has.
    pub fn local_address(&self) -> SocketAddr {
        self.handle.address
    }

    /// Reads the files of certificates again. If they have changed, a new connection by them is
    /// opened beside the present one, which is then closed. If they cannot be used, the former ones
    /// stay in force; the status has the reason. Changes are also noticed within ten seconds.
    pub fn reload_certificates(&self) {
        self.handle.shared.reload.notify_one();
    }

    /// Ends the link for all its handles, and waits for its thread.
    pub fn stop(self) {
        self.handle.shared.stop.notify_one();
        let mut thread = self.handle.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}
