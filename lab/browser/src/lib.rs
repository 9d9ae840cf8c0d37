//! A headless Chromium, driven by its DevTools protocol over two pipes.
//!
//! One browser, one page. Commands wait for their answers for a bounded time. Events of the browser
//! (errors on the console, failed requests) are kept for [`Chromium::complaints`].
//!
//! ```no_run
//! use natgate_browser::Chromium;
//!
//! let mut browser = Chromium::start("example");
//! browser.open("http://127.0.0.1:8080/");
//! browser.wait_text("h1", "natgate");
//! assert_eq!(browser.complaints("http://127.0.0.1:8080"), [""; 0]);
//! ```

use base64::Engine as _;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for any step of the browser or the page; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(50);

/// The browser reads commands from descriptor 3 and writes answers to descriptor 4. A shell can set
/// both up.
const SCRIPT: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

const ARGUMENTS: &[&str] = &[
    "--headless=new",
    // The sandbox does not work for root.
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--lang=en-US",
    "about:blank",
];

/// A browser for tests; it ends when dropped.
///
/// # Panics
/// Every method panics if the browser is missing, ends, or takes too long.
#[derive(Debug)]
pub struct Chromium {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    last: u64,
    told: Vec<Value>,
    profile: PathBuf,
}

impl Chromium {
    /// Starts a browser with an empty page; `name` is a part of its profile's name.
    pub fn start(name: &str) -> Self {
        Self::start_by(&[], name)
    }

    /// Starts a browser with a command in front, such as one that enters a namespace.
    pub fn start_by(before: &[&str], name: &str) -> Self {
        let folder = format!("natgate-page-{name}-{}", std::process::id());
        let profile = std::env::temp_dir().join(folder);
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args(before)
            .arg("chromium")
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(ARGUMENTS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let (commands, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let messages = read(answers);
        let session = String::new();
        let mut one =
            Self { child, commands, messages, session, last: 0, told: Vec::new(), profile };
        let target = one.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = one.call("Target.attachToTarget", attach);
        one.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Runtime", "Log", "Page", "Network", "Accessibility"] {
            one.call(&format!("{domain}.enable"), json!({}));
        }
        one
    }

    /// Calls a method of the DevTools protocol and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let bytes = format!("{message}\0");
        self.commands.write_all(bytes.as_bytes()).expect("Chromium (package chromium) listens");
        loop {
            let message = match self.messages.recv_timeout(PATIENCE) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer from Chromium"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{method}: Chromium has gone; is the package chromium installed?")
                }
            };
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.told.push(message);
        }
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState === 'complete'");
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, script: &str) -> Value {
        let question = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", question);
        assert!(answer.get("exceptionDetails").is_none(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The text of the first element that a selector matches.
    pub fn text(&mut self, selector: &str) -> String {
        let script = format!("document.querySelector({selector:?})?.textContent ?? ''");
        self.value(&script).as_str().unwrap_or_default().trim().to_owned()
    }

    /// Waits until an expression is true in the page.
    pub fn wait(&mut self, script: &str) {
        let until = Instant::now() + PATIENCE;
        while self.value(&format!("Boolean({script})")) != true {
            assert!(Instant::now() < until, "has not become true: {script}");
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the text of the first element that a selector matches contains a part.
    pub fn wait_text(&mut self, selector: &str, part: &str) {
        self.wait(&format!("document.querySelector({selector:?})?.textContent.includes({part:?})"));
    }

    /// Clicks the middle of the first element that a selector matches.
    pub fn click(&mut self, selector: &str) {
        let script = format!(
            "(() => {{ const found = document.querySelector({selector:?}); \
             found.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
             const box = found.getBoundingClientRect(); \
             return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})()"
        );
        let place = self.value(&script);
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place["x"], "y": place["y"], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key by its name.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "/" => 191,
            other => panic!("{other} has no code here"),
        };
        let text = match key {
            "Enter" => "\r",
            "/" => "/",
            _ => "",
        };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [down, "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types a text into the focused element.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the size of the page, pixels.
    pub fn size(&mut self, width: u32, height: u32, is_phone: bool) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the system's color scheme: `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Returns a picture of the screen. If `NATGATE_SCREENSHOTS` names a folder, the picture is
    /// also written there as `name`.
    pub fn picture(&mut self, name: &str, is_whole: bool) -> Vec<u8> {
        let wish = json!({ "format": "png", "captureBeyondViewport": is_whole });
        let answer = self.call("Page.captureScreenshot", wish);
        let data = answer["data"].as_str().expect("a picture");
        let picture = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        if let Some(folder) = std::env::var_os("NATGATE_SCREENSHOTS") {
            fs::create_dir_all(&folder).unwrap();
            fs::write(PathBuf::from(folder).join(format!("{name}.png")), &picture).unwrap();
        }
        picture
    }

    /// Errors and warnings of the console, failed scripts, and requests to other origins than the
    /// page's own.
    pub fn complaints(&mut self, origin: &str) -> Vec<String> {
        // Events in flight arrive before this call returns.
        self.value("new Promise((done) => setTimeout(done, 0))");
        let told = std::mem::take(&mut self.told);
        told.iter().filter_map(|message| complaint(message, origin)).collect()
    }
}

fn complaint(message: &Value, origin: &str) -> Option<String> {
    let params = &message["params"];
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" => {
            let kind = params["type"].as_str()?;
            ["error", "warning", "assert"].contains(&kind).then(|| params["args"].to_string())
        }
        "Log.entryAdded" => {
            let level = params["entry"]["level"].as_str()?;
            ["error", "warning"].contains(&level).then(|| params["entry"].to_string())
        }
        "Network.requestWillBeSent" => {
            let url = params["request"]["url"].as_str()?;
            (!url.starts_with(origin)).then(|| format!("asked for {url}"))
        }
        _ => None,
    }
}

/// Splits the browser's output into messages, each of which ends with a zero.
fn read(mut answers: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, messages) = sync_channel(100_000);
    thread::spawn(move || {
        let (mut rest, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = answers.read(&mut piece) {
            rest.extend_from_slice(&piece[..count]);
            while let Some(end) = rest.iter().position(|&byte| byte == 0) {
                let message: Vec<u8> = rest.drain(..=end).collect();
                let message = serde_json::from_slice(&message[..end]).expect("a message");
                if sender.send(message).is_err() {
                    return;
                }
            }
        }
    });
    messages
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.session.clear();
        let close = format!("{}\0", json!({ "id": 0, "method": "Browser.close" }));
        let asked = self.commands.write_all(close.as_bytes());
        let until = Instant::now() + Duration::from_secs(5);
        while asked.is_ok() && Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(PAUSE);
        }
        // Both calls fail only if the browser has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
