//! The gateway as an image that boots without an operating system. It is an ordinary program;
//! `machine` has its start and the results of its system calls.

mod attendant;
mod crew;
mod gateway;
mod machine;
mod program;

use attendant::Attendant;
use gateway::Gateway;
use machine::{cards, clock, console, last_words, restart, system, watchdog};
use natgate_bare::acpi;
use natgate_bare::alarm::Alarm;
use natgate_bare::boot::Addresses;
use natgate_bare::options::Options;
use natgate_bare::settings;
use natgate_timings::{Fill, Timing};
use program::Program;

/// Most bytes of the command line and of the configuration.
const MOST_OPTIONS: usize = 4096;
const MOST_FILE: u64 = 256 << 20;

fn main() {
    system::share_heap();
    let has_screen = console::start();
    clock::start();
    last_words::catch_panics();
    println!("natgate {} without an operating system", env!("CARGO_PKG_VERSION"));
    if !has_screen {
        println!("there is no screen that natgate can write on; the console is the serial port");
    }
    let memory = system::free_memory();
    let (mebibytes, megahertz) = (memory >> 20, clock::frequency() / 1_000_000);
    println!("{mebibytes} MiB of memory, processor at {megahertz} MHz");
    let tables = system::told().and_then(|told| told.tables);
    let processors = acpi::processors(&system::Physical, tables);
    if let count @ 2.. = processors.len() {
        println!("{count} processors");
    }
    if machine::ports::random().is_none() {
        println!("this processor has no random numbers: who knows when it started may guess ports");
    }
    watchdog::start();
    let options = options();
    if let Some(size) = options.timings {
        measure(|cycles_per_ns| {
            for &entries in size.entries() {
                println!("{}", Timing::measure(entries, size, cycles_per_ns).to_line());
            }
        });
    }
    // A quarter of the memory is left for other uses than the table.
    let for_table = memory / 4 * 3;
    if options.fill {
        measure(|cycles_per_ns| match Fill::measure(for_table, cycles_per_ns) {
            Some(fill) => println!("{}", fill.to_line()),
            None => println!("{mebibytes} MiB hold no table of {} entries", settings::FEWEST),
        });
    }
    let alarm = Alarm::default();
    let cards = cards::find(&alarm);
    for card in &cards {
        let state = match &card.device {
            Ok((device, _)) => natgate_bare::text::link(device.link()),
            Err(error) => format!("{}: {error}", card.name),
        };
        println!("{} {}: {state}", card.place, card.kind);
    }
    if cards.is_empty() {
        println!("no network card that natgate knows: Intel 82540EM to 82583V, virtio-net");
    }
    let attendant = Attendant::new(alarm);
    if let Some(name) = options.p4 {
        let seed = options.seed.unwrap_or_else(system::random);
        Program::new((name, seed), (cards, attendant), file(program::ENTRIES)).run()
    }
    let configuration = file(settings::NAME).and_then(|file| settings::read(file, for_table));
    match &configuration {
        Ok(good) => good.warnings.iter().for_each(|warning| println!("{warning}")),
        Err(problems) => problems.iter().for_each(|problem| println!("{problem}")),
    }
    Gateway::new(options, (cards, processors, attendant), configuration.ok()).run()
}

/// Runs a measurement that prints lines of JSON, then restarts the machine.
fn measure(action: impl FnOnce(f64)) -> ! {
    watchdog::pause();
    let cycles_per_ns = clock::frequency() as f64 / 1e9;
    if cycles_per_ns > 0.0 {
        action(cycles_per_ns);
    } else {
        println!("{}", clock::MISSING);
    }
    println!("the machine starts again");
    restart::restart()
}

/// Options on the boot loader's command line. Unknown words are reported and skipped, because an
/// unattended machine should start.
fn options() -> Options {
    let Some(address) = system::told().and_then(|told| told.command_line) else {
        return Options::default();
    };
    let mut text = Vec::new();
    let mut byte = [0];
    while text.len() < MOST_OPTIONS
        && system::Physical.read(address + text.len() as u64, &mut byte)
        && byte != [0]
    {
        text.extend(byte);
    }
    Options::parse(&String::from_utf8_lossy(&text)).unwrap_or_else(|problem| {
        println!("{problem}");
        Options::default()
    })
}

/// Reads the first file that was loaded with the image; `name` is its name in messages.
fn file(name: &str) -> Result<Vec<u8>, Vec<String>> {
    let sentence = |text: &str| vec![format!("{name}: {text}")];
    let module = system::told().and_then(|told| told.modules.first().copied());
    let (start, len) = module.ok_or_else(|| {
        sentence(
            "there is none; have the boot loader load a file with the image (a USB stick: \
             natgate.toml; QEMU: -initrd FILE)",
        )
    })?;
    if len > MOST_FILE {
        return Err(sentence("it is longer than 256 MiB; name the right one"));
    }
    let mut file = vec![0; len as usize];
    if system::Physical.read(start, &mut file) {
        Ok(file)
    } else {
        Err(sentence(
            "the boot loader has put it where this image cannot read; load it below 4 GiB",
        ))
    }
}
