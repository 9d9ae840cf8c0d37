//! Booting from a USB stick, by a BIOS and by UEFI, and the content of the screen.
//!
//! A stick is built like that of `make bare`, and changed as by users: files are written to its
//! partition.

use super::machine::{Machine, PATIENCE, folder};
use super::{CONFIGURATION, workers};
use natgate_bare::picture::{Picture, Pixels};
use natgate_bare::screen::{CELLS, Screen, Write as Cells};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Folder of UEFI in Debian's package ovmf.
const UEFI: &str = "/usr/share/OVMF";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firmware {
    Bios,
    Uefi,
}

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; run `make test`"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// Image of a stick, and its folder.
struct Stick(PathBuf);

impl Stick {
    /// A new stick.
    fn new(test: &str) -> Self {
        let stick = Self(folder(&format!("stick-{test}")));
        let program = format!("{ROOT}/packaging/usb.sh");
        run(&program, &[env!("CARGO_BIN_EXE_natgate-bare"), &stick.image()]);
        stick
    }

    fn image(&self) -> String {
        self.0.join("stick.img").to_str().expect("a path of text").to_owned()
    }

    /// Name of the partition for mtools.
    fn partition(&self) -> String {
        self.image() + "@@1M"
    }

    /// Writes a file, and replaces an earlier one of the name.
    fn write(&self, name: &str, content: &str) {
        let file = self.0.join("file");
        fs::write(&file, content).expect("it can be written");
        let file = file.to_str().expect("a path of text");
        run("mcopy", &["-o", "-i", &self.partition(), file, &format!("::{name}")]);
    }

    fn remove(&self, name: &str) {
        run("mdel", &["-i", &self.partition(), &format!("::{name}")]);
    }

    /// Boots from the stick; the emulator's monitor listens in the machine's folder.
    fn boot(self, firmware: Firmware) -> Machine {
        self.boot_with(firmware, "std")
    }

    /// Boots from the stick with a graphics card of a kind.
    fn boot_with(self, firmware: Firmware, graphics: &str) -> Machine {
        // UEFI places the registers of virtio's cards above 4 GiB.
        let card = if firmware == Firmware::Bios { "e1000" } else { "virtio-net-pci" };
        let mut arguments = vec!["-smp", "cpus=2,sockets=2"];
        arguments.extend(["-vga", graphics, "-monitor", "unix:monitor,server=on,wait=off"]);
        arguments.extend([
            "-device",
            "qemu-xhci",
            "-drive",
            "if=none,id=stick,format=raw,file=stick.img",
        ]);
        arguments.extend(["-device", "usb-storage,drive=stick,removable=on,bootindex=0"]);
        let code = format!("if=pflash,format=raw,readonly=on,file={UEFI}/OVMF_CODE_4M.fd");
        if firmware == Firmware::Uefi {
            // UEFI stores its settings in a file of the machine's own.
            let variables = Path::new(UEFI).join("OVMF_VARS_4M.fd");
            fs::copy(variables, self.0.join("variables")).expect("`make test` installs ovmf");
            let variables = "if=pflash,format=raw,file=variables";
            arguments.extend(["-drive", &code, "-drive", variables]);
        }
        Machine::boot_by(&arguments, self.0, card)
    }
}

/// Sends a command to the emulator.
fn tell_emulator(machine: &Machine, command: &str) {
    let monitor = UnixStream::connect(machine.folder().join("monitor"));
    let mut monitor = monitor.expect("the emulator has a monitor");
    monitor.write_all(command.as_bytes()).expect("it listens");
    // The emulator prints its output and then waits for the next command, which does not come.
    let _ = monitor.shutdown(std::net::Shutdown::Write);
    let _ = std::io::copy(&mut monitor, &mut std::io::sink());
}

/// Expected content of the screen: everything that the image has printed.
fn printed(machine: &Machine) -> String {
    let text = machine.printed.join("\n") + "\n";
    let greeting = concat!("natgate ", env!("CARGO_PKG_VERSION"), " without");
    let begin = text.find(greeting).expect("the image says what it is");
    text[begin..].to_owned()
}

/// Waits until the screen shows the printed text.
fn wait_for_screen(machine: &Machine, firmware: Firmware) {
    let text = printed(machine);
    let file = machine.folder().join("screen");
    let begin = Instant::now();
    loop {
        let (command, expected): (_, fn(&str, &[u8]) -> bool) = match firmware {
            Firmware::Bios => ("pmemsave 0xb8000 4000 screen\n", shows_text),
            Firmware::Uefi => ("screendump screen\n", shows_picture),
        };
        tell_emulator(machine, command);
        if fs::read(&file).is_ok_and(|shown| expected(&text, &shown)) {
            return;
        }
        let kept = std::env::temp_dir().join("natgate-screen");
        if begin.elapsed() > PATIENCE {
            let _ = fs::copy(&file, &kept);
            panic!("the screen, {}, does not show this:\n{text}", kept.display());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Writes the expected screen of a text.
fn cells(text: &str, cells: &mut impl Cells) {
    let mut screen = Screen::new();
    screen.clear(cells);
    text.bytes().for_each(|byte| screen.put(byte, cells));
}

/// Returns true if a PC's cells show the text.
fn shows_text(text: &str, shown: &[u8]) -> bool {
    struct Memory(Vec<u16>);
    impl Cells for Memory {
        fn write(&mut self, place: usize, cell: u16) {
            self.0[place] = cell;
        }

        fn read(&self, place: usize) -> u16 {
            self.0[place]
        }
    }
    let mut memory = Memory(vec![0; CELLS]);
    cells(text, &mut memory);
    memory.0.iter().flat_map(|cell| cell.to_le_bytes()).eq(shown.iter().copied())
}

/// Returns true if a file of the kind "portable pixmap" shows the drawn text.
fn shows_picture(text: &str, shown: &[u8]) -> bool {
    struct Memory {
        width: u32,
        pixels: Vec<u8>,
    }
    impl Pixels for Memory {
        fn write(&mut self, column: u32, line: u32, pixel: u32) {
            let place = 3 * (line * self.width + column) as usize;
            self.pixels[place..place + 3].copy_from_slice(&pixel.to_le_bytes()[..3]);
        }
    }
    let mut parts = shown.splitn(4, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (kind, size, _, pixels) = (part(), part(), part(), part());
    let size = String::from_utf8_lossy(size).into_owned();
    let size: Vec<u32> = size.split(' ').filter_map(|number| number.parse().ok()).collect();
    let [width, height] = size[..] else { return false };
    let mut picture = Picture::new();
    assert!(kind == b"P6" && picture.fit((width, height)), "{width} x {height}");
    cells(text, &mut picture);
    let mut memory = Memory { width, pixels: vec![0; 3 * (width * height) as usize] };
    picture.go_on(CELLS, &mut memory);
    memory.pixels == pixels
}

#[test]
fn a_bios_boots_the_stick() {
    serves(Firmware::Bios);
}

#[test]
fn uefi_boots_the_stick() {
    serves(Firmware::Uefi);
}

/// Tests the whole path from the stick to packets and back, by screen and keyboard, on both
/// processors.
fn serves(firmware: Firmware) {
    let stick = Stick::new(&format!("serves-{firmware:?}"));
    stick.write("natgate.toml", &format!("{CONFIGURATION}[workers]\ncount = 2\n"));
    let mut machine = stick.boot(firmware);
    machine.wait_for("starts in 5 s");
    machine.press("x");
    machine.wait_for("waiting for a key");
    wait_for_screen(&machine, firmware);
    tell_emulator(&machine, "sendkey s\n");
    machine.wait_until_running();
    workers::all_talk(&machine);
    machine.press("m");
    machine.wait_for("m: further mappings");
    wait_for_screen(&machine, firmware);
    machine.press("ry");
    machine.wait_for_restart();
}

#[test]
fn after_a_bios_problems_on_the_stick_are_shown_with_their_places() {
    problems(Firmware::Bios);
}

#[test]
fn after_uefi_problems_on_the_stick_are_shown_with_their_places() {
    problems(Firmware::Uefi);
}

fn problems(firmware: Firmware) {
    let stick = Stick::new(&format!("problems-{firmware:?}"));
    stick.write("natgate.toml", &CONFIGURATION.replace("10.0.0.1/16", "10.0.0.1/99"));
    let menu = fs::read_to_string(format!("{ROOT}/packaging/usb/grub.cfg")).expect("it is there");
    let line = "natgate/natgate-bare";
    stick.write("grub/grub.cfg", &menu.replace(line, &format!("{line} start")));
    let mut machine = stick.boot(firmware);
    machine.wait_for("configuration:3:11: inside.address: ");
    machine.wait_for("there is no configuration to start with");
    wait_for_screen(&machine, firmware);
    machine.press("c");
    machine.wait_for("there is no configuration that can be used");
}

#[test]
fn the_stick_as_it_is_made_starts_without_a_screen_and_says_so() {
    let mut machine = Stick::new("sample").boot_with(Firmware::Uefi, "none");
    machine.wait_for("there is no screen that natgate can write on");
    machine.wait_for("starts in 5 s");
    machine.wait_until_running();
    machine.press("c");
    machine.wait_for("inside: eth0, 198.18.0.1/15");
}

#[test]
fn a_stick_without_a_configuration_says_so() {
    let stick = Stick::new("empty");
    stick.remove("natgate.toml");
    let mut machine = stick.boot(Firmware::Bios);
    machine.wait_for("configuration: there is none");
}

#[test]
fn the_same_files_make_the_same_stick() {
    let sticks = ["one", "other"].map(|test| {
        let stick = Stick::new(test);
        let bytes = fs::read(stick.image()).expect("it is there");
        fs::remove_dir_all(stick.0).expect("it is ours");
        bytes
    });
    assert!(sticks[0] == sticks[1]);
}
