//! The page for browsers: its address, and the message if the address cannot be used.

use super::say;
use crate::Failure;
use axum::Router;
use natgate_control::socket::{Listen, Server};
use natgate_gateway::{PagePlace, PageSettings};
use natgate_web::MOST_BROWSERS;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Serves the page, and the part of the interface that the page may use. If the configuration names
/// no address, a failure is no error. `refused` counts refused connections.
pub(super) fn serve(
    settings: &PageSettings,
    interface: Router,
    refused: Arc<AtomicU64>,
) -> Result<Option<Server>, Failure> {
    let (address, is_named) = match settings.place {
        PagePlace::Nowhere => return Ok(None),
        PagePlace::Usual => (PagePlace::USUAL, false),
        PagePlace::At(address) => (address, true),
    };
    let router = natgate_web::router(interface, &settings.names);
    let listen = Listen::tcp(address).at_most(MOST_BROWSERS, refused);
    match Server::start(listen, router) {
        Ok(server) => {
            say(format!("the page is at http://{address}/"));
            Ok(Some(server))
        }
        Err(error) if is_named => {
            Err(anyhow::Error::from(error).context("page.listen cannot be used").into())
        }
        Err(error) => {
            say(format!("warning: there is no page: {error} (page.listen; it may be \"off\")"));
            Ok(None)
        }
    }
}
