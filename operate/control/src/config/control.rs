//! Reads `[control]`: sockets for commands, and the clients that may use them.

use super::places::Target;
use super::reader::Section;
use super::values::socket_address;
use natgate_gateway::{ControlSettings, RemoteSettings};
use std::path::PathBuf;

/// Longest path of a Unix socket that the kernel takes, less room for a temporary name beside it.
const LONGEST: usize = 96;

/// Largest number of operator names.
const MOST_OPERATORS: usize = 1024;

pub(super) fn read(section: &Section<'_>) -> ControlSettings {
    let name = |key| {
        let value = section.get(key)?;
        let name = value.string("a group's name in quotes")?;
        let is_name = !name.is_empty() && !name.contains(['\0', ':', '\n']);
        if !is_name {
            value.wrong("is no group's name; write one such as \"natgate\"");
        }
        is_name.then(|| name.to_owned())
    };
    let settings = ControlSettings {
        socket: socket(section, "socket"),
        group: name("group"),
        read_socket: socket(section, "read_socket"),
        read_group: name("read_group"),
        remote: remote(section),
    };
    if let (Some(value), None) = (section.get("read_group"), section.get("read_socket")) {
        value.wrong("is the group of control.read_socket; write that too, or leave this out");
    }
    settings
}

fn socket(section: &Section<'_>, key: &'static str) -> Option<PathBuf> {
    let path = section.path(key)?;
    let len = path.value.as_os_str().len();
    if len > LONGEST {
        let message = format!("has {len} bytes; a socket's path may have {LONGEST}");
        section.report.wrong(&path.place, message);
        return None;
    }
    Some(path.value)
}

fn remote(section: &Section<'_>) -> Option<RemoteSettings> {
    let tls = section.section("tls", "control.tls");
    let Some(listen) = section.get("listen") else {
        let without = "is for clients of other machines; write control.listen = \"192.0.2.1:9466\" \
            too, or leave this out";
        if let Some(value) = section.get("operators").or_else(|| section.get("tls")) {
            value.wrong(without);
        }
        return None;
    };
    let address = listen.parsed("an address and a port in quotes", |text| {
        socket_address(text, "write one such as \"192.0.2.1:9466\"")
    });
    if let Some(address) = &address {
        section.registers("listen", &address.place, Target::Address(address.value));
    }
    let operators = section.get("operators").and_then(|value| {
        let names = value.items("a list of common names in quotes")?;
        if names.len() > MOST_OPERATORS {
            value.wrong(format!("has {} names; there may be {MOST_OPERATORS}", names.len()));
            return None;
        }
        let names = names.iter().map(|name| name.string("a common name in quotes"));
        names.map(|name| name.map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    let revoked = match tls.get("revoked") {
        None => Some(None),
        Some(_) => tls.path("revoked").map(|path| Some(path.value)),
    };
    if !tls.is_present() {
        listen.wrong(
            "needs [control.tls] with certificate, key and clients: other machines come only by \
             TLS",
        );
        return None;
    }
    Some(RemoteSettings {
        certificate: tls.required_path("certificate")?,
        key: tls.required_path("key")?,
        clients: tls.required_path("clients")?,
        revoked: revoked?,
        listen: address?.value,
        operators: operators.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, read_text};

    const SIDES: &str = "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n\
        [[pool]]\naddresses = [\"203.0.113.1\"]\n";

    #[test]
    fn everything_is_read() {
        let text = format!(
            "{SIDES}[control]\nsocket = \"/run/a.sock\"\ngroup = \"ops\"\n\
             read_socket = \"/run/b.sock\"\n\
             read_group = \"staff\"\nlisten = \"192.0.2.1:9466\"\noperators = [\"alice\"]\n\
             [control.tls]\ncertificate = \"/e/s.pem\"\nkey = \"/e/s.key\"\n\
             clients = \"/e/c.pem\"\n\
             revoked = \"/e/r.pem\"\n"
        );
        let control = parse(&text, "t").expect("it is right").control;
        assert_eq!(control.socket.as_deref(), Some("/run/a.sock".as_ref()));
        assert_eq!(control.group.as_deref(), Some("ops"));
        assert_eq!(control.read_socket.as_deref(), Some("/run/b.sock".as_ref()));
        assert_eq!(control.read_group.as_deref(), Some("staff"));
        let remote = control.remote.expect("it is there");
        assert_eq!(remote.listen, "192.0.2.1:9466".parse().unwrap());
        assert_eq!(remote.operators, ["alice"]);
        assert_eq!(remote.clients.to_str(), Some("/e/c.pem"));
        assert_eq!(remote.revoked.as_deref(), Some("/e/r.pem".as_ref()));
        assert_eq!(parse(SIDES, "t").expect("it is right").control, Default::default());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (control, said) in [
            ("listen = \"192.0.2.1:9466\"", "needs [control.tls]"),
            ("listen = \"here\"\n[control.tls]", "is no address with a port"),
            ("listen = \"192.0.2.1:9466\"\n[control.tls]\nkey = \"/k\"", "certificate"),
            ("operators = [\"alice\"]", "write control.listen"),
            ("[control.tls]\nkey = \"/k\"", "write control.listen"),
            (
                "listen = \"192.0.2.1:9466\"\n[control.tls]\ncertificate = \"/s\"\nkey = \"/k\"\n\
                 clients = \"/c\"\nrevoked = \"r.pem\"",
                "no absolute path",
            ),
            ("group = \"\"", "is no group's name"),
            ("read_group = \"a\"", "is the group of control.read_socket"),
            ("socket = \"/a\"\nread_socket = \"/a\"", "each needs a path of its own"),
            ("read_socket = \"b.sock\"", "no absolute path"),
        ] {
            let text = format!("{SIDES}[control]\n{control}\n");
            let problems = read_text(&text, "t").expect_err(control);
            let all: String = problems.iter().map(ToString::to_string).collect();
            assert!(all.contains(said), "{control}: {all}");
        }
    }
}
