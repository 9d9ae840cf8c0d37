//! Mistakes and accidents of operators: unreadable files, two gateways in place of one, full disks,
//! expired certificates. Each is reported in a sentence, and packets pass if possible.

use crate::gateway::{
    Folder, GOOD, Gateway, PATIENCE, PROGRAM, command, natgate, refusal, refused,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Instant;

/// Prefix for a user with only the capabilities for packets.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups \
    --inh-caps=+net_admin,+net_raw --ambient-caps=+net_admin,+net_raw";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is text")
}

#[test]
fn configurations_that_cannot_be_read_are_told_with_the_reason() {
    let folder = Folder::new("unreadable");
    let secret = folder.write(GOOD);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let binary = folder.file("binary.toml");
    fs::write(&binary, [0xff, 0xfe, 0]).expect("it is ours");
    let as_nobody = format!("exec {NOBODY} \"$@\"");
    for (path, setup, said) in [
        (&*folder.file("none.toml"), "", "No such file"),
        (folder.path(), "", "Is a directory"),
        (&secret, &as_nobody, "Permission denied"),
        (&binary, "", "is not TOML: a byte here is not UTF-8"),
    ] {
        let (code, line) = refused(command(setup, path, &[]));
        assert_eq!((code, line.lines().count()), (2, 1), "{line}");
        assert!(line.contains(text(path)) && line.contains(said), "{line}");
    }
}

#[test]
fn what_only_one_may_write_is_refused_to_another() {
    let folder = Folder::new("claims");
    let (spool, ports) = (folder.file("spool"), folder.file("ports"));
    let logs = format!("[[log]]\nkind = \"spool\"\nfolder = {spool:?}\n");
    let state = format!("[state]\nfile = {ports:?}\n");
    let mut first = Gateway::start(command("", &folder.config(&format!("{logs}{state}")), &[]));
    let own = folder.socket();
    for (more, what) in [
        (&logs, format!("log spool {}", text(&spool))),
        (&state, format!("state.file {}", text(&ports))),
    ] {
        let other = Folder::new("claims-other");
        let (code, said) = refused(command("", &other.config(more), &[]));
        let expected =
            format!("{what} is another natgate's, the one at {}; name one of its own", text(&own));
        assert!(code == 1 && said.contains(&expected), "{said}");
    }
    let (code, said) = refused(command("", &folder.config(&logs), &[]));
    let expected = format!("natgate runs already with the control socket {}", text(&own));
    assert!(code == 1 && said.contains(&expected) && said.contains("--take-over"), "{said}");
    // A gateway that ends releases the files for the next.
    first.signal("TERM");
    assert_eq!(first.ends(), 0);
    let other = Folder::new("claims-next");
    let mut next = Gateway::start(command("", &other.config(&format!("{logs}{state}")), &[]));
    next.signal("TERM");
    assert_eq!(next.ends(), 0);
}

#[test]
fn a_second_gateway_by_hand_beside_the_first_is_refused() {
    let folder = Folder::new("by-hand");
    let config = folder.write(GOOD);
    // The default place of control sockets, without other programs.
    let mut first = Gateway::start(command("mount -t tmpfs none /run", &config, &[]));
    let told = folder.file("told");
    let refusal = |config: &Path| {
        first.asks(&format!(
            "code=0; timeout 20 {PROGRAM} run -c {} 2>{} || code=$?; [ $code = 1 ]",
            text(config),
            text(&told)
        ));
        fs::read_to_string(&told).expect("it was told")
    };
    let said = refusal(&config);
    let expected = format!("another natgate (process {}) has device in0", first.id());
    assert!(said.contains(&expected), "{said}");
    // With devices and addresses of its own the second gateway lacks only a control socket.
    let own =
        GOOD.replace("in0", "in1").replace("out0", "out1").replace("203.0.113.1", "203.0.113.2");
    let said = refusal(&folder.write(&own));
    assert!(
        said.contains(
            "another natgate runs in this network already, with the control socket \
                       /run/natgate/control.sock; stop that one"
        ),
        "{said}"
    );
    first.signal("TERM");
    assert_eq!(first.ends(), 0);
}

#[test]
fn folders_and_files_of_others_are_told_with_the_remedy() {
    let folder = Folder::new("others");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let mine = folder.file("mine");
    fs::create_dir(&mine).expect("it is ours");
    let plain = folder.file("plain");
    fs::write(&plain, "").expect("it is ours");
    let as_nobody = format!("exec {NOBODY} \"$@\"");
    let log = |kind: &str, key: &str, path: &Path| {
        format!("[[log]]\nkind = \"{kind}\"\n{key} = {path:?}\n")
    };
    let state = format!("[state]\nfile = {:?}\n", mine.join("ports"));
    for (more, setup, said) in [
        (
            log("spool", "folder", &mine),
            &as_nobody[..],
            format!("this user may not; `ls -ld {}`", text(&mine)),
        ),
        (
            log("file", "path", &mine.join("events")),
            &as_nobody,
            format!("this user may not; `ls -ld {}`", text(&mine)),
        ),
        (log("spool", "folder", &plain), "", "it is no directory; name one".to_owned()),
        (log("file", "path", &mine), "", "it is a directory; name a file in it".to_owned()),
        (state, &as_nobody, "name a file in a directory that exists and may be written".to_owned()),
    ] {
        let (code, line) = refused(command(setup, &folder.config(&more), &[]));
        assert!(code == 1 && line.lines().count() == 1 && line.contains(&said), "{line}");
    }
}

#[test]
fn files_of_a_run_by_hand_as_root_are_the_next_users() {
    const NOBODYS: u32 = 65_534;
    let folder = Folder::new("by-root");
    chown(folder.path(), Some(NOBODYS), Some(NOBODYS)).expect("root may do that");
    let more = format!(
        "[state]\nfile = {:?}\n[[log]]\nkind = \"spool\"\nfolder = {:?}\n\
         [[log]]\nkind = \"file\"\npath = {:?}\n",
        folder.file("ports"),
        folder.file("spool"),
        folder.file("events")
    );
    let config = folder.config(&more);
    let as_nobody = format!("exec {NOBODY} \"$@\"");
    for setup in ["", &as_nobody, "", &as_nobody] {
        let mut gateway = Gateway::start(command(setup, &config, &[]));
        gateway.signal("TERM");
        assert_eq!(gateway.ends(), 0);
    }
    // A file of an earlier version is reported with the command that corrects it.
    let (ports, old) = (folder.file("ports"), folder.file("ports.old"));
    for path in [&ports, &old] {
        chown(path, Some(0), Some(0)).expect("root may do that");
    }
    let (code, said) = refused(command(&as_nobody, &config, &[]));
    let mends = format!("chown --reference={} {}*", text(folder.path()), text(&ports));
    assert!(code == 1 && said.contains(&mends), "{said}");
    // The older file is sufficient for the start.
    chown(&old, Some(NOBODYS), Some(NOBODYS)).expect("root may do that");
    let mut gateway = Gateway::start(command(&as_nobody, &config, &[]));
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
    assert_eq!(fs::metadata(ports).expect("it is there").uid(), NOBODYS);
}

#[test]
fn a_limit_of_memory_ends_the_start_with_a_sentence() {
    const STEP: u64 = 40 << 20;
    const MOST: u64 = 64;
    let folder = Folder::new("memory");
    let config = folder.config("[[log]]\nkind = \"file\"\npath = \"/dev/null\"\n");
    for refusals in 0..MOST {
        let limit = (refusals + 1) * STEP;
        let setup = format!("exec prlimit --as={limit} \"$@\"");
        let mut gateway = Gateway::spawn(command(&setup, &config, &[]));
        let mut lines = Vec::new();
        let runs = loop {
            match gateway.said.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with("natgate: running") => break true,
                Ok(line) => lines.push(line),
                Err(_) => break false,
            }
        };
        if runs {
            gateway.signal("TERM");
            // A limit that permits the start may be too low for the end.
            if gateway.ends_somehow() == Some(0) {
                assert!(refusals >= 2, "{limit} bytes are enough for a gateway");
                return;
            }
            continue;
        }
        // The exit code differs from those of signals and of configuration errors.
        let (code, said) = (gateway.ends(), lines.join("\n"));
        // The loader of libraries refuses before the program begins.
        if code == 127 && said.contains("error while loading shared libraries") {
            continue;
        }
        assert_eq!(code, 1, "{limit} bytes: {said}");
        assert!(said.contains("memory"), "{limit} bytes: {said}");
    }
    panic!("{} bytes are not enough for a gateway", MOST * STEP);
}

/// Starts hosts behind both links, in namespaces of their own that end with the gateway. The files
/// `inside` and `outside` of the folder have their process ids.
fn hosts(folder: &Folder) -> String {
    let host = |name: &str, device: &str, rest: &str| {
        format!(
            "setpriv --pdeathsig KILL unshare --net sleep 600 >/dev/null 2>&1 &
            host=$!
            until [ $(readlink /proc/$host/ns/net) != $(readlink /proc/self/ns/net) ]; do sleep \
            0.01; done
            ip link set {device} netns $host
            echo $host >{}
            nsenter --net --target $host sh -ec 'ip link set {device} up; {rest}'\n",
            folder.file(name).display()
        )
    };
    let inside = "ip address add 10.0.0.5/8 dev in1; ip route add default via 10.0.0.1";
    let outside = "ip address add 192.0.2.9/24 dev out1; ip route add 203.0.113.0/24 via 192.0.2.1";
    let wait = "for device in in0 out0; do
            until ip link show $device | grep -q 'state UP'; do sleep 0.01; done
        done\n";
    host("inside", "in1", inside) + &host("outside", "out1", outside) + wait
}

#[test]
fn a_full_disk_is_told_once_and_packets_go_on() {
    let folder = Folder::new("full-disk");
    let small = folder.file("small");
    fs::create_dir(&small).expect("it is ours");
    let setup = format!("mount -t tmpfs -o size=1m none {}\n{}", text(&small), hosts(&folder));
    let more = format!(
        "[limits]\nnew_mappings_per_second = 5000\n[[log]]\nkind = \"spool\"\nfolder = {:?}\n\
         [[log]]\nkind = \"file\"\npath = {:?}\n\
         [state]\nfile = {:?}\ninterval = \"100ms\"\n",
        small.join("spool"),
        small.join("events"),
        small.join("ports")
    );
    let mut gateway = Gateway::start(command(&setup, &folder.config(&more), &[]));
    let from_inside = |script: &str| {
        let host = fs::read_to_string(folder.file("inside")).expect("it is there");
        gateway.asks(&format!("nsenter --net --target {} bash -ec '{script}'", host.trim()));
    };
    from_inside("ping -qc 1 -W 10 192.0.2.9");
    gateway.asks(&format!("head -c 2000000 /dev/zero >{}/fill || true", text(&small)));
    // Each packet has a port of its own. Their number exceeds the free room in the last page of any
    // file.
    from_inside("for port in {2000..3199}; do echo >/dev/udp/192.0.2.9/$port; done");
    let [file, spool, ports] = ["events", "spool", "ports"].map(|name| small.join(name));
    let places = [
        format!("log file {}", text(&file)),
        format!("log spool {}", text(&spool)),
        format!("ports in use cannot be written to state.file {}", text(&ports)),
    ];
    let mut all = told(&gateway, &places);
    for place in &places {
        let line = all.iter().find(|line| line.contains(place)).expect("it was told");
        assert!(line.contains("the disk is full"), "{line}");
    }
    from_inside("ping -qc 3 -i 0.2 -W 10 192.0.2.9");

    gateway.asks(&format!("rm {}/fill", text(&small)));
    let again = [
        format!("log file {} is written again", text(&file)),
        format!("log spool {} is written again", text(&spool)),
        "ports in use are written to state.file again".to_owned(),
    ];
    all.extend(told(&gateway, &again));
    for place in &places {
        let count =
            all.iter().filter(|line| line.contains(place) && line.contains("warning")).count();
        assert_eq!(count, 1, "{all:#?}");
    }
    // The waiting events are in the log.
    let socket = folder.socket();
    let (code, answer, errors) =
        natgate(&["show", "mappings", "--json", "--limit", "2000", "--socket", text(&socket)]);
    assert_eq!(code, 0, "{errors}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let mappings = answer["mappings"].as_array().expect("a list");
    assert!(mappings.len() > 1000, "{}", mappings.len());
    let created = gateway.asks(&format!("grep -c mapping_created {}", text(&file)));
    assert_eq!(created.trim(), mappings.len().to_string());
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

/// Reads lines until each of these sentences has come; returns all lines until then.
fn told(gateway: &Gateway, wanted: &[String]) -> Vec<String> {
    let (begin, mut all) = (Instant::now(), Vec::<String>::new());
    while !wanted.iter().all(|one| all.iter().any(|line| line.contains(one))) {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        match gateway.said.recv_timeout(left) {
            Ok(line) => all.push(line),
            Err(_) => panic!("not all of {wanted:#?} were said: {all:#?}"),
        }
    }
    all
}

#[test]
fn what_is_wrong_with_certificates_is_told() {
    let folder = Folder::new("papers");
    let write = |name: &str, year: i32| {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("it can be signed");
        let files = ["pem", "key"].map(|kind| folder.file(&format!("{name}.{kind}")));
        fs::write(&files[0], certificate.pem()).expect("it is ours");
        fs::write(&files[1], key.serialize_pem()).expect("it is ours");
        files
    };
    let [good, key] = write("good", 2200);
    let [lapsed, other] = write("lapsed", 2020);
    let papers = |certificate: &Path, key: &Path| {
        format!(
            "listen = \"127.0.0.1:9466\"\n[control.tls]\ncertificate = {certificate:?}\n\
             key = {key:?}\n\
             clients = {good:?}\n"
        )
    };
    let lo = "ip link set lo up";
    for (more, said) in [
        (papers(&good, &other), "cannot be used: they do not belong together"),
        (papers(&folder.file("none.pem"), &key), "none.pem cannot be read: No such file"),
        (papers(&key, &key), "good.key has no certificate in PEM form"),
    ] {
        let (code, line) = refused(command(lo, &folder.config(&more), &[]));
        let line = line.lines().last().expect("a line");
        assert!(code == 2 && line.contains("control.tls: ") && line.contains(said), "{line}");
    }
    let mut gateway = Gateway::spawn(command(lo, &folder.config(&papers(&lapsed, &other)), &[]));
    let said = gateway.hears("warning: control.tls");
    assert!(said.contains("lapsed.pem was valid until Jan  1 00:00:00 2020"), "{said}");
    assert!(said.contains("so clients refuse it"), "{said}");
    gateway.hears("running");
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn ports_that_others_have_are_told_once_with_the_key_that_names_another() {
    let listen = |key: &str, place: &str| format!("{GOOD}[{key}]\nlisten = \"{place}\"\n");
    let (code, said) =
        refusal("metrics", "ip link set lo up", &listen("metrics", "192.0.2.99:9464"));
    let line = said.lines().last().expect("a line");
    assert!(code == 1 && line.contains("metrics.listen cannot be used"), "{said}");
    assert!(line.contains("choose an address of this machine"), "{line}");
    assert_eq!(line.matches("Cannot assign requested address").count(), 1, "{line}");
}
