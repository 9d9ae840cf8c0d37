//! What the control socket offers: which path does what, and the form of requests and answers
//! (docs/control.md). A further command is a further line of the list here.

use crate::json;
use crate::reload::{ReloadError, Reloaded, Reloader};
use crate::socket::{Request, Response, Service};
use natgate_gateway::Load;
use serde::Deserialize;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};

/// Mappings that a dry run names unless it is asked for another number, and the most that it does.
const USUALLY_NAMED: usize = 20;
const MOST_NAMED: usize = 100_000;

/// Answers the requests of the control socket.
pub struct Interface {
    reloader: Arc<Reloader>,
    /// What each worker has done.
    loads: Loads,
}

/// What each worker has done; one more when a worker joins.
pub type Loads = Arc<Mutex<Vec<Arc<Load>>>>;

/// What `/v1/reload` is asked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReloadRequest {
    dry_run: bool,
    /// Mappings to be named; `None`: [`USUALLY_NAMED`].
    most: Option<usize>,
}

impl Interface {
    /// For a gateway whose configuration can be read anew, and whose workers note what they do.
    pub fn new(reloader: Arc<Reloader>, loads: Loads) -> Self {
        Self { reloader, loads }
    }

    fn workers(&self) -> Response {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let workers =
            loads.iter().enumerate().map(|(number, load)| json::load(number, &load.now()));
        Response { status: 200, body: json!({ "workers": workers.collect::<Vec<_>>() }) }
    }

    fn reload(&self, body: &[u8]) -> Response {
        let asked = match body {
            [] => Ok(ReloadRequest::default()),
            body => serde_json::from_slice(body),
        };
        let asked: ReloadRequest = match asked {
            Ok(asked) => asked,
            Err(error) => return Response::failure(400, format!("the body is wrong: {error}")),
        };
        let most = asked.most.unwrap_or(USUALLY_NAMED).min(MOST_NAMED);
        match asked.dry_run {
            true => answer(self.reloader.try_out(most)),
            false => answer(self.reloader.reload()),
        }
    }
}

impl Service for Interface {
    fn answer(&self, request: &Request) -> Response {
        match (&request.path[..], &request.method[..]) {
            ("/v1/reload", "POST") => self.reload(&request.body),
            ("/v1/reload", _) => Response::failure(405, "/v1/reload takes POST"),
            ("/v1/workers", "GET") => self.workers(),
            ("/v1/workers", _) => Response::failure(405, "/v1/workers takes GET"),
            (path, _) => {
                let message = format!("there is no {path}; try /v1/reload or /v1/workers");
                Response::failure(404, message)
            }
        }
    }
}

fn answer(result: Result<Reloaded, ReloadError>) -> Response {
    match result {
        Ok(reloaded) => Response { status: 200, body: reloaded.object() },
        Err(ReloadError::Configuration(errors)) => {
            Response { status: 422, body: json!({ "ok": false, "errors": errors }) }
        }
        Err(ReloadError::Gateway(error)) => Response::failure(503, error.to_string()),
    }
}
