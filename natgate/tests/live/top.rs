//! `natgate top` in a terminal: its screen, its keys, and the restored terminal at its end.
//!
//! The terminal is a pseudo terminal. A terminal emulator reads the output, so the tests see the
//! screen of a person.

use super::PROGRAM;
use natgate_testnet::{
    GATEWAY_INSIDE6, Gateway, PREFIX64, SERVER1, config, config_with_ipv6, wait_for,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::Ipv6Addr;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Rows and columns.
const SIZE: (u16, u16) = (30, 110);

/// A terminal with a running program.
struct Terminal {
    /// End of the person.
    person: File,
    /// End of the program.
    program: File,
    /// Settings before the program.
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    /// Runs `natgate top` for the gateway at a socket.
    fn with_top(socket: &Path) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).expect("a pseudo terminal");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("it is ours");
        let name = ptsname(&person, Vec::new()).expect("it has a name");
        let program = OpenOptions::new()
            .read(true)
            .write(true)
            .open(OsStr::from_bytes(name.as_bytes()))
            .expect("its other end can be opened");
        let (ws_row, ws_col) = SIZE;
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size).expect("it takes a size");
        let before = tcgetattr(&program).expect("it tells how it is set");
        let end = || Stdio::from(program.try_clone().expect("it can be had twice"));
        // A session of its own with this terminal, like a shell's.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", PROGRAM, "top", "--interval", "1", "--socket"])
            .arg(socket)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("setsid is there (Debian package util-linux)");
        let [rows, columns] = [SIZE.0, SIZE.1].map(|size| NonZero::new(size).expect("some"));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (seen, mut written) = (Arc::clone(&screen), File::from(person.try_clone().unwrap()));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = written.read(&mut bytes) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..count]);
            }
        });
        Self { person: person.into(), program, before, screen, child }
    }

    fn screen(&self) -> vt100::Screen {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().clone()
    }

    /// Waits until the screen satisfies a condition; returns its lines.
    fn await_screen(&self, what: &str, is: impl Fn(&[String]) -> bool) -> Vec<String> {
        let lines = || -> Vec<String> { self.screen().rows(0, SIZE.1).collect() };
        let found = wait_for(what, PATIENCE, || {
            let lines = lines();
            Ok(is(&lines).then_some(lines))
        });
        found.unwrap_or_else(|error| panic!("{error}: {:#?}", lines()))
    }

    fn press(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).expect("somebody reads");
    }

    /// Waits for the end of the program.
    fn end(&mut self) -> ExitStatus {
        let ended = wait_for("the end", PATIENCE, || self.child.try_wait());
        ended.expect("it ends")
    }

    /// Checks that the terminal has its former settings, screen and cursor.
    fn assert_restored(&self) {
        let now = tcgetattr(&self.program).expect("it tells how it is set");
        let modes =
            |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        assert_eq!(modes(&now), modes(&self.before));
        let shown = wait_for("the usual screen", PATIENCE, || {
            let screen = self.screen();
            Ok((!screen.alternate_screen() && !screen.hide_cursor()).then_some(()))
        });
        shown.expect("the screen is given back");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Words of the line that begins with `begin`.
fn words<'l>(lines: &'l [String], begin: &str) -> Vec<&'l str> {
    let line = lines.iter().find(|line| line.starts_with(begin));
    line.map(|line| line.split_whitespace().collect()).unwrap_or_default()
}

#[test]
fn the_gateway_is_seen_live_and_the_terminal_given_back() {
    let network = super::network();
    let socket = network.file("control.sock");
    let more = format!("[control]\nsocket = \"{}\"\n", socket.display());
    let gateway = Gateway::start(&network, Path::new(PROGRAM), &config(&more)).expect("natgate");
    let log = network.file("ping.log");
    let server = SERVER1.to_string();
    let arguments = ["-i", "0.05", "-c", "4000", "-w", "180", &server];
    let mut ping = network.node("sub1").start(Path::new("ping"), &arguments, &log).expect("ping");
    let mut terminal = Terminal::with_top(&socket);

    let lines = terminal.await_screen("a rate", |lines| {
        let row = words(lines, "outbound    forwarded");
        row.get(2).and_then(|rate| rate.parse::<f64>().ok()).is_some_and(|rate| rate > 0.0)
    });
    assert!(lines[0].starts_with("natgate ") && lines[0].contains("workers 1"), "{lines:#?}");
    assert!(lines[usize::from(SIZE.0) - 1].contains("q quit"), "{lines:#?}");
    assert!(terminal.screen().alternate_screen() && terminal.screen().hide_cursor());

    // Tab and the right arrow go to the next view, the left arrow to the previous one.
    terminal.press("\t");
    terminal.await_screen("drops", |lines| !words(lines, "reason").is_empty());
    terminal.press("\u{1b}[C");
    let pool = |lines: &[String]| words(lines, "default").first() == Some(&"default");
    terminal.await_screen("pools", pool);
    terminal.press("\u{1b}[C");
    let subscriber = natgate_testnet::SUBSCRIBER1.to_string();
    terminal.await_screen("subscribers", |lines| !words(lines, &subscriber).is_empty());
    terminal.press("\u{1b}[D");
    terminal.await_screen("pools", pool);
    // The picture stops, and continues.
    terminal.press("p");
    let last = usize::from(SIZE.0) - 1;
    terminal.await_screen("the pause", |lines| lines[last].starts_with("paused"));
    terminal.press("p");
    terminal.await_screen("the end of the pause", |lines| lines[last].starts_with("q quit"));
    // The typed address finds its owner.
    terminal.press("/");
    terminal.await_screen("a prompt", |lines| lines[last].starts_with("address or address:port:"));
    terminal.press(&format!("{subscriber}\r"));
    terminal.await_screen("its mapping", |lines| {
        words(lines, "external").contains(&"ports")
            && words(lines, "203.0.113.").contains(&subscriber.as_str())
    });
    terminal.press("q");
    assert!(terminal.end().success());
    terminal.assert_restored();

    // The end of the gateway is reported, and the picture stays.
    let mut terminal = Terminal::with_top(&socket);
    terminal.await_screen("a picture", |lines| lines[last].contains("q quit"));
    let _ = ping.kill().and_then(|()| ping.wait());
    assert_eq!(gateway.stop().expect("it stops").code(), Some(0));
    let lines = terminal.await_screen("the trouble", |lines| {
        lines[last].contains("cannot be reached") && lines[last].contains("control.sock")
    });
    assert!(lines[0].starts_with("natgate "), "{lines:#?}");
    // Control-C also ends the program.
    terminal.press("\u{3}");
    assert!(terminal.end().success());
    terminal.assert_restored();

    // Without a gateway there is one sentence, and the program never takes the screen.
    let mut terminal = Terminal::with_top(&socket);
    assert_eq!(terminal.end().code(), Some(1));
    let lines = terminal
        .await_screen("the sentence", |lines| lines.concat().contains("is `natgate run` running"));
    let said: Vec<&String> = lines.iter().filter(|line| !line.trim().is_empty()).collect();
    assert!(said.len() <= 3, "{said:#?}");
    terminal.assert_restored();
}

/// A host of NAT64 is in the list by its prefix, and is found by its address.
#[test]
fn hosts_with_ipv6_have_their_names() {
    let mut network = super::network();
    network.add_ipv6().unwrap();
    let socket = network.file("control.sock");
    let more = format!("[control]\nsocket = \"{}\"\n", socket.display());
    let config = config_with_ipv6() + &more;
    let gateway = Gateway::start(&network, Path::new(PROGRAM), &config).expect("natgate");
    let host = network.autoconfigure().unwrap().address.to_string();
    let server = Ipv6Addr::from_bits(PREFIX64.to_bits() | u128::from(SERVER1.to_bits()));
    let arguments = ["-n", "-c", "1", "-W", "10", &server.to_string()];
    network.node("sub6").run(20, "ping", &arguments).unwrap();
    let mut terminal = Terminal::with_top(&socket);
    terminal.press("\t\t\t");
    let prefix = format!("{GATEWAY_INSIDE6}").replace("::1", "::/64");
    terminal.await_screen("the subscriber", |lines| !words(lines, &prefix).is_empty());
    terminal.press(&format!("/{host}\r"));
    terminal.await_screen("its mapping", |lines| {
        words(lines, "external").contains(&"ports")
            && words(lines, "203.0.113.").contains(&prefix.as_str())
    });
    terminal.press("q");
    assert!(terminal.end().success());
    assert_eq!(gateway.stop().expect("it stops").code(), Some(0));
}
