//! The service: its six calls, each with one request or a stream of them.

use crate::Device;
use crate::arbitration::{Clients, Teller};
use crate::call::{Answers, answers, streams, unary};
use crate::digest::Digests;
use crate::entry;
use crate::proto::{
    Answered, Any, Arbitration, COMMIT, COOKIE_ONLY, CapabilitiesRequest, CapabilitiesResponse,
    Config, ControllerMessage, Cookie, DEVICE_CONFIG_AND_COOKIE, Entity, Error, GetConfigRequest,
    GetConfigResponse, Of, P4INFO_AND_COOKIE, PacketIn, RECONCILE_AND_COMMIT, ReadRequest,
    ReadResponse, Refused, RpcStatus, SetConfigRequest, SetConfigResponse, StreamError,
    StreamRequest, StreamResponse, Uint128, Unsupported, Update, VERIFY, VERIFY_AND_COMMIT,
    VERIFY_AND_SAVE, WriteRequest, WriteResponse,
};
use crate::read::Reading;
use axum::Router;
use futures_util::stream::{StreamExt, poll_fn, unfold};
use natgate_http::blocking;
use natgate_p4::{Answer, Controller, MachineError, Notification, Request as Asked};
use prost::Message;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::MissedTickBehavior;
use tonic::{Code, Status, Streaming};

/// Supported version of P4Runtime.
const VERSION: &str = "1.4.0";

/// Most messages that a controller has not read yet.
const MOST_TOLD: usize = 64;

/// Interval at which the program is asked for messages to the primary controller.
const LISTEN: Duration = Duration::from_millis(20);

struct Service {
    device: Device,
    p4info: Vec<u8>,
    controller: Controller,
    clients: Mutex<Clients>,
    digests: Mutex<Digests>,
    cookies: Mutex<Cookies>,
    streams: AtomicU64,
}

/// Cookies that controllers attached to the configuration.
#[derive(Default)]
struct Cookies {
    current: Option<Cookie>,
    /// Cookie of a configuration that was saved and not committed.
    saved: Option<Option<Cookie>>,
}

/// Handlers of the service, by path.
pub(crate) fn router(device: Device, controller: Controller) -> Router {
    let service = Arc::new(Service {
        p4info: device.info.to_bytes(),
        clients: Mutex::new(Clients::new(device.id)),
        device,
        controller,
        digests: Mutex::default(),
        cookies: Mutex::default(),
        streams: AtomicU64::new(0),
    });
    let path = |name: &str| format!("/p4.v1.P4Runtime/{name}");
    let of = || Arc::clone(&service);
    let (write, set, get, capabilities) = (of(), of(), of(), of());
    let (read, stream) = (of(), of());
    Router::new()
        .route(&path("Write"), unary(move |request| Arc::clone(&write).write(request)))
        .route(
            &path("SetForwardingPipelineConfig"),
            unary(move |request| Arc::clone(&set).set_config(request)),
        )
        .route(
            &path("GetForwardingPipelineConfig"),
            unary(move |request| Arc::clone(&get).get_config(request)),
        )
        .route(
            &path("Capabilities"),
            unary(move |request| Arc::clone(&capabilities).capabilities(request)),
        )
        .route(&path("Read"), answers(move |request| Arc::clone(&read).read(request)))
        .route(
            &path("StreamChannel"),
            streams(move |requests| Arc::clone(&stream).stream_channel(requests)),
        )
        .fallback(async || {
            Status::unimplemented("P4Runtime has no such call").into_http::<tonic::body::Body>()
        })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs work that waits for the program outside the serving thread.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    blocking(work).await.unwrap_or_else(|_| Err(Status::internal("this is a bug of natgate's")))
}

impl Service {
    fn check_device(&self, device: u64) -> Result<(), Status> {
        let id = self.device.id;
        match device == id {
            true => Ok(()),
            false => Err(Status::not_found(format!("there is no device {device}; this is {id}"))),
        }
    }

    /// Checks that a request may change the device.
    fn check_primary(
        &self,
        device: u64,
        (role_id, role): (u64, &str),
        election: Option<Uint128>,
    ) -> Result<(), Status> {
        self.check_device(device)?;
        check_role(role_id, role)?;
        locked(&self.clients).check(election.map(Uint128::value))
    }

    async fn capabilities(
        self: Arc<Self>,
        _: CapabilitiesRequest,
    ) -> Result<CapabilitiesResponse, Status> {
        Ok(CapabilitiesResponse { p4runtime_api_version: VERSION.to_owned() })
    }

    async fn write(self: Arc<Self>, request: WriteRequest) -> Result<WriteResponse, Status> {
        let role = (request.role_id, &*request.role);
        self.check_primary(request.device_id, role, request.election_id)?;
        if request.atomicity != 0 {
            let what = "updates are done one by one; set atomicity to CONTINUE_ON_ERROR";
            return Err(Status::unimplemented(what));
        }
        beside(move || self.write_all(&request)).await
    }

    /// Executes all updates that are possible; if one fails, the status has the result of each.
    fn write_all(&self, request: &WriteRequest) -> Result<WriteResponse, Status> {
        // Requests to the program; `None` if this service has handled the update.
        let asked: Vec<Result<Option<Asked>, Status>> =
            request.updates.iter().map(|update| self.update(update)).collect();
        let wanted = asked.iter().filter_map(|one| one.as_ref().ok()?.clone()).collect();
        let gone = |error: MachineError| entry::status(&error);
        let mut answers = self.controller.ask_all(wanted).map_err(gone)?.into_iter();
        let done: Vec<Result<(), Status>> = asked
            .into_iter()
            .map(|one| {
                if one?.is_none() {
                    return Ok(());
                }
                answers.next().unwrap_or(Err(MachineError::Gone)).map(drop).map_err(gone)
            })
            .collect();
        match done.iter().filter(|one| one.is_err()).count() {
            0 => Ok(WriteResponse {}),
            failed => Err(failure(&done, failed)),
        }
    }

    fn update(&self, update: &Update) -> Result<Option<Asked>, Status> {
        match &update.entity {
            Some(Entity { of: Some(Of::Digest(entry)) }) => {
                let mut digests = locked(&self.digests);
                digests.write(&self.device.info, update.kind, entry).map(|()| None)
            }
            _ => entry::request(&self.device.info, update).map(Some),
        }
    }

    async fn read(self: Arc<Self>, request: ReadRequest) -> Result<Answers<ReadResponse>, Status> {
        self.check_device(request.device_id)?;
        check_role(0, &request.role)?;
        let reading = Reading::new(&self.device.info, &locked(&self.digests), &request.entities)?;
        let next = |(service, reading): (Arc<Self>, Option<Reading>)| async move {
            let mut reading = reading?;
            let of = Arc::clone(&service);
            let step = move || {
                let piece = reading.next(&of.device.info, &of.controller)?;
                Ok((piece, reading))
            };
            match beside(step).await {
                Ok((Some(piece), reading)) => Some((Ok(piece), (service, Some(reading)))),
                Ok((None, _)) => None,
                Err(status) => Some((Err(status), (service, None))),
            }
        };
        Ok(unfold((self, Some(reading)), next).boxed())
    }

    async fn get_config(
        self: Arc<Self>,
        request: GetConfigRequest,
    ) -> Result<GetConfigResponse, Status> {
        self.check_device(request.device_id)?;
        let kind = request.response_type;
        let (has_info, has_program) = match kind {
            0 => (true, true),
            COOKIE_ONLY => (false, false),
            P4INFO_AND_COOKIE => (true, false),
            DEVICE_CONFIG_AND_COOKIE => (false, true),
            _ => return Err(Status::invalid_argument("the response type is from 0 to 3")),
        };
        let config = Config {
            p4info: has_info.then(|| self.p4info.clone()),
            p4_device_config: if has_program { self.device.program.clone() } else { Vec::new() },
            cookie: locked(&self.cookies).current,
        };
        Ok(GetConfigResponse { config: Some(config) })
    }

    async fn set_config(
        self: Arc<Self>,
        request: SetConfigRequest,
    ) -> Result<SetConfigResponse, Status> {
        let role = (request.role_id, &*request.role);
        self.check_primary(request.device_id, role, request.election_id)?;
        let cookie = request.config.as_ref().and_then(|config| config.cookie);
        match request.action {
            VERIFY => self.verify(request.config.as_ref())?,
            VERIFY_AND_SAVE => {
                self.verify(request.config.as_ref())?;
                locked(&self.cookies).saved = Some(cookie);
            }
            VERIFY_AND_COMMIT => {
                self.verify(request.config.as_ref())?;
                let service = Arc::clone(&self);
                let clear = move || service.controller.ask(Asked::Clear);
                beside(move || clear().map_err(|error| entry::status(&error))).await?;
                *locked(&self.digests) = Digests::default();
                locked(&self.cookies).current = cookie;
            }
            COMMIT if request.config.is_some() => {
                return Err(Status::invalid_argument(
                    "COMMIT takes what was saved; leave config out",
                ));
            }
            COMMIT => {
                let mut cookies = locked(&self.cookies);
                let Some(saved) = cookies.saved.take() else {
                    let what = "nothing was saved; send VERIFY_AND_SAVE before";
                    return Err(Status::failed_precondition(what));
                };
                cookies.current = saved;
            }
            RECONCILE_AND_COMMIT => {
                self.verify(request.config.as_ref())?;
                locked(&self.cookies).current = cookie;
            }
            _ => return Err(Status::invalid_argument("the action is from 1 to 5")),
        }
        Ok(SetConfigResponse {})
    }

    /// Checks that a configuration is that of the running program.
    fn verify(&self, config: Option<&Config>) -> Result<(), Status> {
        let another = "start natgate with another program to have it";
        let Some(config) = config else {
            return Err(Status::invalid_argument("there is no config"));
        };
        let Some(p4info) = &config.p4info else {
            return Err(Status::invalid_argument("the config has no p4info"));
        };
        if let Some(difference) = self.device.info.difference(p4info) {
            let what = format!("this is not the program that runs: {difference}; {another}");
            return Err(Status::invalid_argument(what));
        }
        let program = &config.p4_device_config;
        match program.is_empty() || *program == self.device.program {
            true => Ok(()),
            false => {
                let what = "p4_device_config is not the text of the program that runs";
                Err(Status::invalid_argument(format!("{what}; {another}, or leave it out")))
            }
        }
    }

    async fn stream_channel(
        self: Arc<Self>,
        requests: Streaming<StreamRequest>,
    ) -> Result<Answers<StreamResponse>, Status> {
        let (teller, mut told) = tokio::sync::mpsc::channel(MOST_TOLD);
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let ended = self.converse(stream, requests, &teller).await;
            locked(&self.clients).leave(stream);
            if let Err(status) = ended {
                // The receiver may have ended.
                let _ = teller.try_send(Err(status));
            }
        });
        Ok(poll_fn(move |context| told.poll_recv(context)).boxed())
    }

    /// Processes the messages of a controller's stream, until it ends.
    async fn converse(
        &self,
        stream: u64,
        mut requests: Streaming<StreamRequest>,
        teller: &Teller,
    ) -> Result<(), Status> {
        let mut ticks = tokio::time::interval(LISTEN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let request = tokio::select! {
                request = requests.message() => request,
                // The controller has stopped listening, or was dropped.
                () = teller.closed() => return Ok(()),
                _ = ticks.tick() => {
                    self.listen(stream, teller).await;
                    continue;
                }
            };
            match request {
                Ok(Some(StreamRequest { of: Some(ControllerMessage::Arbitration(one)) })) => {
                    self.arbitrate(stream, &one, teller)?;
                }
                Ok(Some(StreamRequest { of: Some(ControllerMessage::DigestAck(one)) })) => {
                    locked(&self.digests).acknowledge(one.digest_id, one.list_id);
                }
                Ok(Some(StreamRequest { of })) => {
                    let error = Some(Answered::Error(refused(of.as_ref())));
                    if teller.try_send(Ok(StreamResponse { of: error })).is_err() {
                        return Ok(());
                    }
                }
                // The stream or its connection has ended.
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    /// Sends the program's messages to the primary controller, as fast as it reads them.
    async fn listen(&self, stream: u64, teller: &Teller) {
        let most = teller.capacity() / 2;
        if most == 0 || !locked(&self.clients).is_primary(stream) {
            return;
        }
        let controller = self.controller.clone();
        let ask = move || controller.ask(Asked::Notifications { most });
        let answer = beside(move || ask().map_err(|error| entry::status(&error))).await;
        let Ok(Answer::Notifications(notifications)) = answer else { return };
        for of in self.messages_of(notifications).into_iter().map(Some) {
            // There is room unless the controller has gone.
            let _ = teller.try_send(Ok(StreamResponse { of }));
        }
    }

    /// The program's messages, as messages of the stream.
    fn messages_of(&self, notifications: Vec<Notification>) -> Vec<Answered> {
        let (info, now) = (&self.device.info, Instant::now());
        let mut digests = locked(&self.digests);
        let mut messages = Vec::new();
        for one in notifications {
            match one {
                Notification::Packet(payload) => {
                    messages.push(Answered::Packet(PacketIn { payload }))
                }
                Notification::Digest { name, values } => digests.take(info, &name, values, now),
            }
        }
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let stamp = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        messages.extend(digests.due(info, now, stamp).into_iter().map(Answered::Digest));
        messages
    }

    fn arbitrate(&self, stream: u64, one: &Arbitration, teller: &Teller) -> Result<(), Status> {
        self.check_device(one.device_id)?;
        if let Some(role) = &one.role {
            check_role(role.id, &role.name)?;
        }
        let election = one.election_id.map(Uint128::value);
        locked(&self.clients).update(stream, election, teller)
    }
}

fn check_role(id: u64, name: &str) -> Result<(), Status> {
    match (id, name) {
        (0, "") => Ok(()),
        _ => Err(Status::unimplemented("there is one role, which may do all; leave role out")),
    }
}

/// Refusal of a message that a stream does not accept.
fn refused(of: Option<&ControllerMessage>) -> StreamError {
    let (message, of) = match of {
        Some(ControllerMessage::Packet(_)) => {
            ("packets are not taken from controllers", Refused::Packet(Unsupported {}))
        }
        _ => ("this is not understood", Refused::Other(Unsupported {})),
    };
    let code = Code::Unimplemented as i32;
    StreamError { canonical_code: code, message: message.to_owned(), of: Some(of) }
}

/// Results of all updates of a Write, if some failed.
fn failure(done: &[Result<(), Status>], failed: usize) -> Status {
    let message = format!("{failed} of {} updates failed; the others are done", done.len());
    let detail = |one: &Result<(), Status>| {
        let error = match one {
            Ok(()) => Error::default(),
            Err(status) => {
                Error { canonical_code: status.code() as i32, message: status.message().to_owned() }
            }
        };
        let type_url = "type.googleapis.com/p4.v1.Error".to_owned();
        Any { type_url, value: error.encode_to_vec() }
    };
    let status = RpcStatus {
        code: Code::Unknown as i32,
        message: message.clone(),
        details: done.iter().map(detail).collect(),
    };
    Status::with_details(Code::Unknown, message, status.encode_to_vec().into())
}
