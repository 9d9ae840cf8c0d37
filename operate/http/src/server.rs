//! Servers, and the threads that they run in: one for each group of clients.

use crate::connection::{self, Routers};
use crate::listener::{Bound, Listener, SocketFile};
use crate::room::{Admitted, Room};
use crate::{BindError, ClientGroup, Listen};
use axum::Router;
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Pause before a failed accept is tried again: file descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for the answers that are under way when a server ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// A running server; it ends when this is dropped, after the answers that are under way.
#[derive(Debug)]
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    /// Says, by going, that the last answer is out.
    ended: mpsc::Receiver<()>,
    address: Option<SocketAddr>,
    _file: Option<SocketFile>,
    _thread: Arc<Thread>,
}

impl Server {
    /// Takes the place and answers from now on.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start(listen: Listen, router: Router) -> Result<Self, BindError> {
        let group = listen.group_of_clients();
        let thread = Thread::of(group).map_err(BindError::Io)?;
        let _entered = thread.handle.enter();
        let Bound { listener, file, address } = listen.bind()?;
        let routers = Routers::new(router, listen.role_of_all(), group, listen.protocol());
        let room = Room::of(&listen);
        let (stop, stopped) = oneshot::channel();
        let (ends, ended) = mpsc::channel();
        thread.handle.spawn(serve((listener, room), routers, stopped, ends));
        Ok(Self { stop: Some(stop), ended, address, _file: file, _thread: Arc::clone(&thread) })
    }

    /// The address of a TCP port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If the thread is gone, its servers are gone, too.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.ended.recv_timeout(FAREWELL + PAUSE);
    }
}

/// Accepts connections until it is stopped; then lets those finish that have something under way.
async fn serve(
    (listener, mut room): (Listener, Room),
    routers: Routers,
    mut stopped: oneshot::Receiver<()>,
    ends: mpsc::Sender<()>,
) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let admitted = tokio::select! {
            admitted = room.admit(&listener) => Some(admitted),
            Some(_) = connections.join_next() => None,
            _ = &mut stopped => break,
        };
        // Ended connections give their memory back, however fast others come.
        while connections.try_join_next().is_some() {}
        match admitted {
            None | Some(Ok(None)) => {}
            Some(Ok(Some(admitted))) => {
                let kept = admitted.kept();
                let Admitted { arrived, activity, place, .. } = admitted;
                let (routers, watcher) = (routers.clone(), graceful.watcher());
                let serve = connection::serve(arrived, activity, routers, watcher);
                let task = connections.spawn(async move {
                    serve.await;
                    drop(place);
                });
                room.keep(kept, task);
            }
            Some(Err(_)) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
    // Streams that would go on for ever end here.
    connections.shutdown().await;
    drop(ends);
}

/// The thread in which the servers of a group are; it ends with the last of them.
#[derive(Debug)]
struct Thread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Threads by group.
static THREADS: [Mutex<Weak<Thread>>; ClientGroup::COUNT] =
    [const { Mutex::new(Weak::new()) }; ClientGroup::COUNT];

impl Thread {
    /// The running thread of a group, or a new one.
    fn of(group: ClientGroup) -> io::Result<Arc<Self>> {
        let mut shared = THREADS[group as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = shared.upgrade() {
            return Ok(thread);
        }
        let thread = Arc::new(Self::start(group)?);
        *shared = Arc::downgrade(&thread);
        Ok(thread)
    }

    fn start(group: ClientGroup) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(group.most_blocking())
            .thread_name(format!("{} work", group.thread()))
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(stopped);
            // Work that still waits for something is left to itself.
            runtime.shutdown_background();
        };
        let thread = Builder::new().name(group.thread().into()).spawn(run)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread has been reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
