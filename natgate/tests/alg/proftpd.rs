//! Debian's programs that `make test` unpacks and does not install, and the configuration of one of
//! them.

use std::path::{Path, PathBuf};

/// A program that is unpacked, and not installed.
pub(crate) fn unpacked(program: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../programs/usr/sbin").join(program);
    assert!(path.is_file(), "{} is missing: `make test` unpacks it", path.display());
    path
}

/// Configuration of proftpd: everybody gets the files of a folder at port 21. It connects to an
/// address in PORT only if it is the client's. Files of its own have names that begin with `own`.
pub(crate) fn proftpd_config(folder: &str, own: &str) -> String {
    format!(
        "ServerType standalone\nDefaultServer on\nPort 21\nUseIPv6 off\nUseReverseDNS off\n\
         AuthPAM off\nUseFtpUsers off\nRequireValidShell off\nUser nobody\nGroup nogroup\n\
         AllowForeignAddress off\nDelayEngine off\nControlsEngine off\nWtmpLog off\n\
         TransferLog none\nSystemLog {own}.system.log\nPidFile {own}.pid\n\
         ScoreboardFile {own}.scoreboard\n\
         <Anonymous {folder}>\nUser nobody\nGroup nogroup\nUserAlias anonymous nobody\n\
         RequireValidShell off\n</Anonymous>\n"
    )
}
