//! A link that cannot start says why, and names the file or the address.

use super::rig::{Authority, NOBODY, Rig};
use crate::{LinkError, Settings, faults, start};
use std::fs;
use std::process::Command;

fn refusal(settings: &Settings) -> LinkError {
    start(settings).map(drop).expect_err("it cannot start")
}

fn rig() -> (Rig, Settings) {
    let rig = Rig::new();
    rig.write("a", &rig.authority, 2099);
    let settings = rig.settings("a", "b", NOBODY.parse().unwrap());
    (rig, settings)
}

#[test]
fn names_and_addresses_are_checked() {
    let (_rig, good) = rig();
    for name in ["", "a b", "-", "192.0.2.1", "nät"] {
        let settings = Settings { partner: name.to_owned(), ..good.clone() };
        assert!(matches!(refusal(&settings), LinkError::Name(wrong) if wrong == name), "{name}");
    }
    let settings = Settings { partner: "A".to_owned(), ..good.clone() };
    assert!(matches!(refusal(&settings), LinkError::SameName(_)));
    let settings = Settings { address: "127.0.0.1:0".parse().unwrap(), ..good.clone() };
    assert!(matches!(refusal(&settings), LinkError::NoPort(_)));
    let settings = Settings { address: "[::1]:9".parse().unwrap(), ..good.clone() };
    assert!(matches!(refusal(&settings), LinkError::Family { .. }));
    let settings = Settings { listen: "192.0.2.1:9".parse().unwrap(), ..good };
    assert!(refusal(&settings).to_string().contains("192.0.2.1:9"));
}

#[test]
fn all_faults_of_the_files_are_told_together() {
    let (rig, good) = rig();
    assert!(faults(&good).is_empty());
    let nowhere = rig.file("nobody", "pem");
    let [certificate, key, authorities] = [0; 3].map(|_| nowhere.clone());
    let without = Settings { certificate, key: key.clone(), authorities, ..good.clone() };
    assert_eq!(faults(&without).len(), 3);
    let other = faults(&Settings { node: "c".to_owned(), key, ..good.clone() });
    assert!(
        matches!(&other[..], [LinkError::Unreadable(..), LinkError::NotNamed { .. }]),
        "{other:?}"
    );
    // A file that is none is not read: reading a FIFO does not end.
    let fifo = rig.file("fifo", "pem");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let [certificate, key, authorities] = [0; 3].map(|_| fifo.clone());
    let of_fifos = faults(&Settings { certificate, key, authorities, ..good.clone() });
    let are_refused = of_fifos.iter().all(|fault| matches!(fault, LinkError::Unreadable(..)));
    assert!(are_refused && of_fifos.len() == 3, "{of_fifos:?}");
    let name = faults(&Settings { partner: "a b".to_owned(), ..good });
    assert!(matches!(&name[..], [LinkError::Name(_)]), "{name:?}");
}

#[test]
fn files_are_checked() {
    let (rig, good) = rig();
    let nowhere = rig.file("nobody", "pem");
    let empty = rig.file("empty", "pem");
    fs::write(&empty, "").unwrap();
    let with = |which: usize, path: &std::path::PathBuf| {
        let mut settings = good.clone();
        let files = [&mut settings.certificate, &mut settings.key, &mut settings.authorities];
        files.into_iter().nth(which).expect("three files").clone_from(path);
        refusal(&settings)
    };
    for which in 0..3 {
        let error = with(which, &nowhere);
        assert!(matches!(&error, LinkError::Unreadable(path, _) if *path == nowhere), "{error}");
        let error = with(which, &empty);
        assert!(matches!(&error, LinkError::File(path, ..) if *path == empty), "{error}");
        let error = with(which, &rig.file("", "").parent().unwrap().to_owned());
        assert!(matches!(&error, LinkError::Unreadable(..)), "{error}");
    }
    fs::write(rig.file("other", "key"), rig.authority.sign("a", 2099).1).unwrap();
    let error = with(1, &rig.file("other", "key"));
    assert!(error.to_string().ends_with("they do not belong together"), "{error}");
}

#[test]
fn a_certificate_without_the_nodes_name_is_refused_at_once() {
    let (rig, good) = rig();
    rig.write("c", &Authority::new(), 2099);
    let settings =
        Settings { certificate: rig.file("c", "pem"), key: rig.file("c", "key"), ..good };
    let error = refusal(&settings).to_string();
    assert!(error.contains("does not name the node a"), "{error}");
    assert!(error.ends_with("subjectAltName=DNS:a"), "{error}");
}

#[test]
fn an_ipv6_socket_without_an_address_reaches_ipv4() {
    let (_rig, good) = rig();
    let settings = Settings { listen: "[::]:0".parse().unwrap(), ..good };
    assert!(start(&settings).expect("a link").status().is_running);
}
