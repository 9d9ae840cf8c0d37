//! Sentences for system errors about files and addresses, each with a remedy for the operator.

use std::io::{self, ErrorKind};
use std::path::Path;

/// Explains an error about a file and names a remedy; the text follows "PATH cannot be ...: ".
pub fn explain(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let shown = folder.display();
    match error.kind() {
        ErrorKind::NotFound if !folder.is_dir() => {
            format!("there is no directory {shown}; make it with `mkdir -p {shown}`")
        }
        ErrorKind::NotFound => "there is no such file; `ls` shows which there are".to_owned(),
        ErrorKind::NotADirectory => format!("{shown} is no directory; name another place"),
        ErrorKind::IsADirectory => "it is a directory; name a file in it".to_owned(),
        ErrorKind::PermissionDenied => format!(
            "this user may not; `ls -ld {shown}` shows who may (the service natgate.service may \
             write in /var/lib/natgate, /var/log/natgate and /run/natgate)"
        ),
        ErrorKind::ReadOnlyFilesystem => format!(
            "{shown} is on a file system that is read-only here; the service natgate.service may \
             write in /var/lib/natgate, /var/log/natgate and /run/natgate"
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!(
                "the disk is full; `df {shown}` shows how full, and what is removed there makes \
                 room"
            )
        }
        _ => error.to_string(),
    }
}

/// Explains why files cannot be written in a folder and names a remedy.
pub fn explain_folder(folder: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory if !folder.is_dir() => {
            "it is no directory; name one, or a place where one can be made".to_owned()
        }
        // The permissions of the folder decide, or those of its parent if the folder is missing.
        _ if folder.is_dir() => explain(&folder.join("a file"), error),
        _ => explain(folder, error),
    }
}

/// Explains why a server cannot listen at an address and names a remedy.
pub fn explain_address(address: &dyn std::fmt::Display, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("another program listens at {address} already; `ss -lntup` shows which")
        }
        ErrorKind::AddrNotAvailable => {
            format!(
                "this machine has no such address; `ip address` shows those of which {address} may \
                 be"
            )
        }
        ErrorKind::PermissionDenied => {
            "this user may not; ports below 1024 take CAP_NET_BIND_SERVICE, others do not"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_comes_with_a_remedy() {
        let said = |path: &str, kind: ErrorKind| explain(Path::new(path), &kind.into());
        let absent = said("/nonexistent/a/b", ErrorKind::NotFound);
        assert_eq!(
            absent,
            "there is no directory /nonexistent/a; make it with `mkdir -p /nonexistent/a`"
        );
        assert!(said("/tmp/b", ErrorKind::NotFound).contains("no such file"));
        assert!(said("b", ErrorKind::PermissionDenied).contains("`ls -ld .`"));
        assert!(said("/a/b", ErrorKind::StorageFull).contains("`df /a`"));
        assert!(said("/a/b", ErrorKind::ReadOnlyFilesystem).contains("read-only"));
        assert!(said("/a/b", ErrorKind::IsADirectory).contains("name a file in it"));
    }

    #[test]
    fn a_folder_is_told_by_its_own_name() {
        let said = |path: &str, kind: ErrorKind| explain_folder(Path::new(path), &kind.into());
        assert!(said("/usr", ErrorKind::PermissionDenied).contains("`ls -ld /usr`"));
        assert!(said("/usr", ErrorKind::StorageFull).contains("`df /usr`"));
        assert!(said("/nonexistent", ErrorKind::PermissionDenied).contains("`ls -ld /`"));
        assert!(said("/dev/null", ErrorKind::AlreadyExists).starts_with("it is no directory"));
    }

    #[test]
    fn an_address_in_use_is_told_with_who_to_ask() {
        let said = |kind: ErrorKind| explain_address(&"127.0.0.1:9464", &kind.into());
        assert!(said(ErrorKind::AddrInUse).contains("`ss -lntup`"));
        assert!(said(ErrorKind::AddrNotAvailable).contains("`ip address`"));
        assert!(said(ErrorKind::PermissionDenied).contains("CAP_NET_BIND_SERVICE"));
    }
}
