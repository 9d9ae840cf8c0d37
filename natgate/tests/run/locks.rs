//! Two gateways in one network namespace. The second may not use a device or an external address of
//! the first, even with other control sockets.

use crate::gateway::{Folder, Gateway, PROGRAM, command, refused};
use std::path::PathBuf;
use std::process::Command;

/// A gateway on in0 and out0, with a realm on more0 and a spool, in a namespace with a third link.
fn first_gateway(test: &str) -> (Folder, Gateway) {
    let folder = Folder::new(test);
    let more = format!(
        "[[realm]]\nname = \"red\"\ndevice = \"more0\"\naddress = \"10.0.0.1/8\"\n\
         [[log]]\nkind = \"spool\"\nfolder = {:?}\n",
        folder.file("spool")
    );
    Gateway::start_with_third_link(folder, &more)
}

fn refusal_by(gateway: &Gateway, what: &str) -> String {
    format!("another natgate (process {}) has {what} in this network already", gateway.id())
}

/// A configuration with a control socket of its own.
fn config(folder: &Folder, inside: &str, outside: &str, pool: &str) -> PathBuf {
    folder.write(&format!(
        "[inside]\ndevice = {inside:?}\naddress = \"10.0.0.1/8\"\n\
         [outside]\ndevice = {outside:?}\naddress = \"192.0.2.1/24\"\n\
         [[pool]]\naddresses = [{pool:?}]\n[control]\nsocket = {:?}\n",
        folder.socket()
    ))
}

const OTHER_POOL: &str = "198.51.100.0/28";

#[test]
fn a_second_gateway_on_the_same_devices_or_addresses_is_refused() {
    let (_folder, mut first) = first_gateway("locks");
    for (inside, outside, pool, what) in [
        ("in0", "out1", OTHER_POOL, "device in0"),
        ("in1", "out0", OTHER_POOL, "device out0"),
        // Device of a realm.
        ("more0", "out1", OTHER_POOL, "device more0"),
        ("in1", "out1", "203.0.113.1", "external address 203.0.113.1"),
        // Another range with the address.
        ("in1", "out1", "203.0.113.0/24", "external address 203.0.113.1"),
    ] {
        let other = Folder::new("locks-other");
        let (code, said) = refused(first.beside(&config(&other, inside, outside, pool)));
        assert!(code == 1 && said.contains(&refusal_by(&first, what)), "{code} {said}");
    }
    // With devices and addresses of its own the second gateway runs.
    let other = Folder::new("locks-other");
    let mut second = Gateway::spawn(first.beside(&config(&other, "in1", "out1", OTHER_POOL)));
    second.hears("running, inside in1, outside out1");
    for gateway in [&mut second, &mut first] {
        gateway.signal("TERM");
        assert_eq!(gateway.ends(), 0);
    }
}

#[test]
fn a_gateway_that_was_killed_holds_nothing() {
    let (_folder, first) = first_gateway("locks-killed");
    let other = Folder::new("locks-heir");
    let file = config(&other, "in0", "out0", "203.0.113.1");
    let (program, file, said) = (PROGRAM, file.display(), other.file("said"));
    let (process, said) = (first.id(), said.display());
    first.asks(&format!(
        "kill -KILL {process}
        until grep -q '^State:.Z' /proc/{process}/status; do sleep 0.01; done
        timeout 60 {program} run -c {file} 2>{said} & second=$!
        until grep -q 'running, inside in0' {said}; do sleep 0.05; kill -0 $second; done
        kill -TERM $second; wait $second"
    ));
}

#[test]
fn a_reload_to_what_another_gateway_has_is_refused_and_changes_nothing() {
    let (folder, first) = first_gateway("locks-reload");
    let other = Folder::new("locks-reloaded");
    let mut second = Gateway::spawn(first.beside(&config(&other, "in1", "out1", OTHER_POOL)));
    second.hears("running");
    let reload = |more: &str, arguments: &[&str]| {
        let file = config(&other, "in1", "out1", OTHER_POOL);
        let text = std::fs::read_to_string(&file).expect("it is ours");
        std::fs::write(&file, text + more).expect("it is ours");
        let mut command = Command::new(PROGRAM);
        let output = command.args(["reload", "--socket"]).arg(other.socket()).args(arguments);
        let output = output.output().expect("natgate runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("an exit code"), said)
    };
    let realm = "[[realm]]\nname = \"red\"\ndevice = \"more0\"\naddress = \"10.0.0.9/8\"\n";
    let pool = "[[pool]]\nname = \"more\"\naddresses = [\"203.0.113.0/29\"]\n";
    for (more, what) in [(realm, "device more0"), (pool, "external address 203.0.113.1")] {
        for arguments in [&["--dry-run"][..], &[]] {
            let (code, said) = reload(more, arguments);
            assert!(code == 2 && said.contains(&refusal_by(&first, what)), "{code} {said}");
        }
    }
    // A refused reload has locked nothing, and an unused lock becomes free.
    let spool = "[[log]]\nkind = \"spool\"\nfolder = ";
    let taken = other.file("spool");
    let (code, said) = reload(&format!("{spool}{:?}\n", folder.file("spool")), &[]);
    assert!(
        code == 2 && said.contains("log spool") && said.contains("another natgate's"),
        "{said}"
    );
    // A dry run makes no folder and no lock file.
    let before = other.names();
    let (code, said) = reload(&format!("{spool}{:?}\n", taken.join("new")), &["--dry-run"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(other.names(), before);
    assert_eq!(reload(&format!("{spool}{taken:?}\n"), &[]).0, 0);
    let is_locked =
        || first.asks(&format!("flock -n {}/.lock true || echo locked", taken.display()));
    assert_eq!(is_locked(), "locked\n");
    let free = "[[pool]]\nname = \"more\"\naddresses = [\"203.0.113.8/29\"]\n";
    assert_eq!(reload(free, &[]).0, 0);
    let locks = || first.asks("grep -o '@natgate/[^ ]*' /proc/net/unix | sort -u");
    assert!(locks().contains("@natgate/addresses/203.0.113.8-203.0.113.15\n"), "{}", locks());
    assert_eq!(reload("", &[]).0, 0);
    assert_eq!(
        locks(),
        "@natgate/addresses/198.51.100.0-198.51.100.15\n\
         @natgate/addresses/203.0.113.1-203.0.113.1\n@natgate/device/in0\n@natgate/device/in1\n\
         @natgate/device/more0\n@natgate/device/out0\n@natgate/device/out1\n"
    );
    second.signal("TERM");
    assert_eq!(second.ends(), 0);
}

#[test]
fn a_process_of_another_user_that_has_a_lock_is_told_and_does_not_keep_the_gateway_from_its_start()
{
    let folder = Folder::new("locks-stranger");
    let setup = "setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 -c '
import socket, time
taken = socket.socket(socket.AF_UNIX)
taken.bind(\"\\0natgate/device/in0\")
taken.listen()
time.sleep(60)' >/dev/null 2>&1 &
        until grep -q @natgate/device/in0 /proc/net/unix; do sleep 0.01; done";
    let mut gateway = Gateway::spawn(command(setup, &folder.config(""), &[]));
    let said = gateway.hears("device in0 cannot be locked against a second natgate");
    assert!(said.contains("`ss -xlp | grep natgate/device/in0` shows the process"), "{said}");
    gateway.hears("running, inside in0, outside out0");
    gateway.asks("kill $(ss -xlpH | grep natgate/device/in0 | grep -o 'pid=[0-9]*' | cut -d= -f2)");
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

/// A gateway that waits for the locks of its predecessor has reserved them. A third gateway that
/// finds the locks free in that moment yields.
#[test]
fn a_lock_that_another_gateway_has_reserved_is_not_free() {
    let folder = Folder::new("locks-reserved");
    let setup = "/usr/bin/python3 -c '
import socket, time
taken = socket.socket(socket.AF_UNIX)
taken.bind(\"\\0natgate/next/device/in0\")
taken.listen()
time.sleep(60)' >/dev/null 2>&1 &
        until grep -q @natgate/next/device/in0 /proc/net/unix; do sleep 0.01; done";
    let mut gateway = Gateway::spawn(command(setup, &folder.config(""), &[]));
    let said = gateway.hears("another natgate (process ");
    assert!(said.contains("has device in0 in this network already"), "{said}");
    assert_eq!(gateway.ends(), 1);
}

/// A gateway reserves the lock of a file, too.
#[test]
fn a_file_that_another_gateway_has_reserved_is_not_free() {
    let folder = Folder::new("files-reserved");
    let ports = folder.file("ports");
    let setup = format!(
        "/usr/bin/python3 -c '
import fcntl, time
taken = open(\"{0}.lock.next\", \"w\")
fcntl.flock(taken, fcntl.LOCK_EX)
taken.write(\"/run/heir.sock\")
taken.flush()
open(\"{0}.taken\", \"w\")
time.sleep(60)' >/dev/null 2>&1 &
        until test -e {0}.taken; do sleep 0.01; done",
        ports.display()
    );
    let state = format!("[state]\nfile = {ports:?}\n");
    let mut gateway = Gateway::spawn(command(&setup, &folder.config(&state), &[]));
    gateway.hears("is another natgate's, the one at /run/heir.sock");
    assert_eq!(gateway.ends(), 1);
}

/// While one gateway takes over from another, a third one is refused at any time.
#[test]
fn a_third_gateway_is_refused_before_during_and_after_a_take_over() {
    let folder = Folder::new("locks-three");
    let ports = folder.file("ports");
    let state = format!("[state]\nfile = {ports:?}\n");
    let own = folder.config(&state);
    let mut first = Gateway::start(command("", &own, &[]));
    let third = Folder::new("locks-third");
    let file = config(&third, "in0", "out0", "203.0.113.1");
    // A fourth gateway shares only a file with the others.
    let fourth = Folder::new("locks-fourth");
    let text = std::fs::read_to_string(config(&fourth, "in1", "out1", OTHER_POOL));
    let fourth_file = fourth.write(&(text.expect("it is ours") + &state));
    let (stop, said) = (third.file("stop"), third.file("said"));
    let script = format!(
        "until test -e {stop}; do
            for file in {} {}; do
                timeout 20 {PROGRAM} run -c $file 2>>{said}
                test $? = 1 || echo wrong >>{said}
                echo tried >>{said}
            done
        done",
        file.display(),
        fourth_file.display(),
        stop = stop.display(),
        said = said.display()
    );
    let mut tries = first.enter("sh").args(["-c", &script]).spawn().expect("a shell");
    let count = || std::fs::read_to_string(&said).unwrap_or_default().matches("tried").count();
    let more = |before: usize| {
        while count() < before + 4 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    more(0);
    let mut heir = Gateway::spawn({
        let mut command = first.beside(&own);
        command.arg("--take-over");
        command
    });
    heir.hears("running");
    assert_eq!(first.ends(), 0);
    more(count());
    std::fs::write(&stop, "").expect("it is ours");
    assert!(tries.wait().expect("it ends").success());
    let said = std::fs::read_to_string(&said).expect("it is ours");
    assert!(!said.contains("wrong"), "{said}");
    assert!(said.contains("has device in0") && said.contains("state.file"), "{said}");
    heir.signal("TERM");
    assert_eq!(heir.ends(), 0);
}

/// Two gateways that announce with one protocol in one table remove each other's routes.
#[test]
fn a_second_gateway_with_the_same_announced_routes_is_refused() {
    let folder = Folder::new("locks-routes");
    let gateway = Gateway::start(command("", &folder.config("[announce]"), &[]));
    let other = Folder::new("locks-routes-other");
    let file = config(&other, "in1", "out1", OTHER_POOL);
    let text = std::fs::read_to_string(&file).expect("it is ours");
    std::fs::write(&file, text + "[announce]\n").expect("it is ours");
    let output = gateway.beside(&file).output().expect("natgate runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has the announced routes of table "), "{said}");
}
