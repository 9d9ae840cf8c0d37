//! Certificates and keys for clients of other machines. Their files are read at the start and at
//! each reload. The file of revoked certificates is also read whenever it changes.

use super::say;
use natgate_control::reload::{Access, Reloader};
use natgate_control::socket::{LoadedTls, Tls, TlsError, TlsFiles};
use natgate_gateway::{RemoteSettings, panics};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder};
use std::time::Duration;

/// Interval between checks of the file of revoked certificates.
const INTERVAL: Duration = Duration::from_secs(5);

/// TLS for remote clients, once a server has it.
#[derive(Clone, Default)]
pub(super) struct RemoteAccess(Arc<OnceLock<Tls>>);

fn files(remote: &RemoteSettings) -> TlsFiles {
    let RemoteSettings { certificate, key, clients, revoked, operators, .. } = remote.clone();
    TlsFiles { certificate, key, clients, revoked, operators }
}

impl RemoteAccess {
    /// Reads the files for a server.
    pub(super) fn load(&self, remote: &RemoteSettings) -> Result<Tls, TlsError> {
        let tls = Tls::load(&files(remote))?;
        Ok(self.0.get_or_init(|| tls).clone())
    }

    /// Reads the files for a reload. Does nothing if no server has TLS.
    pub(super) fn reread(&self) -> Access {
        let access = self.clone();
        Box::new(move |settings| {
            let (Some(tls), Some(remote)) = (access.0.get(), &settings.control.remote) else {
                return Ok(Box::new(|| {}));
            };
            let loaded = LoadedTls::read(&files(remote));
            let loaded = loaded.map_err(|error| format!("control.tls: {error}"))?;
            let tls = tls.clone();
            Ok(Box::new(move || tls.replace(loaded)))
        })
    }

    /// Starts a thread that reads the files anew whenever the file of revoked certificates changes.
    pub(super) fn watch(&self, reloader: &Arc<Reloader>) -> io::Result<()> {
        let (access, reloader) = (self.clone(), Arc::clone(reloader));
        let mut known = version(&reloader);
        let watch = move || {
            panics::contain(|| {
                loop {
                    thread::sleep(INTERVAL);
                    let now = version(&reloader);
                    if now != known {
                        access.follow(&reloader);
                        known = now;
                    }
                }
            });
        };
        Builder::new().name("revocations".into()).spawn(watch).map(drop)
    }

    fn follow(&self, reloader: &Reloader) {
        let settings = reloader.settings();
        let (Some(tls), Some(remote)) = (self.0.get(), &settings.control.remote) else { return };
        let Some(path) = remote.revoked.as_deref().map(Path::display) else { return };
        match LoadedTls::read(&files(remote)) {
            Ok(loaded) => {
                tls.replace(loaded);
                say(format!("change by file: {path} was read anew, for it has changed"));
            }
            Err(error) => {
                say(format!("warning: control.tls: {error}; what was read before stays in force"))
            }
        }
    }
}

/// Identifies a version of the file of revoked certificates.
#[derive(PartialEq, Eq)]
struct Version {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

fn version(reloader: &Reloader) -> Option<Version> {
    let settings = reloader.settings();
    let file = fs::metadata(settings.control.remote.as_ref()?.revoked.as_ref()?).ok()?;
    let changed = (file.mtime(), file.mtime_nsec());
    Some(Version { inode: file.ino(), length: file.len(), changed })
}
