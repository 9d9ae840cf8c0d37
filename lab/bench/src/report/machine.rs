//! Facts of the machine that a figure depends on, read from the kernel and measured.
//!
//! Facts that the kernel does not report stay empty. In some containers the kernel reports little.

use super::Table;
use serde::Serialize;
use std::fs::read_to_string;
use std::process::Command;
use std::time::{Duration, Instant};

/// Machine and time of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Begin of the experiment, UTC.
    pub date: String,
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub processors: usize,
    /// Rate of the time-stamp counter, measured; `None` if there is none.
    pub tsc_hz: Option<f64>,
    /// The caches of the first processor.
    pub caches: Vec<Cache>,
    /// Total memory, bytes.
    pub memory_bytes: u64,
    /// Available memory, bytes.
    pub available_bytes: u64,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// The kernel's release.
    pub kernel: String,
    /// Load averages over 1, 5 and 15 minutes when the experiment began.
    pub load: Vec<f64>,
    /// The program's version.
    pub natgate: &'static str,
    /// Commit of the checkout in the working folder, with `+` if files differ from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A cache.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// Level, from 1.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size, bytes.
    pub bytes: u64,
}

/// State of huge pages.
#[derive(Clone, Debug, Serialize)]
pub struct HugePages {
    /// Mode of transparent huge pages: `always`, `madvise`, `never`.
    pub transparent: String,
    /// Reserved huge pages of the default size.
    pub reserved: u64,
    /// Free pages among the reserved ones.
    pub free: u64,
    /// Default size, bytes.
    pub bytes: u64,
}

impl Machine {
    /// Reads the machine's facts; takes a fiftieth of a second for the time-stamp counter.
    pub fn look() -> Self {
        let memory = |field: &str| field_of("/proc/meminfo", field);
        Self {
            date: date(),
            cpu: text_of("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            tsc_hz: tsc_hz(),
            caches: caches(),
            memory_bytes: memory("MemTotal") << 10,
            available_bytes: memory("MemAvailable") << 10,
            huge_pages: HugePages {
                transparent: transparent(),
                reserved: memory("HugePages_Total"),
                free: memory("HugePages_Free"),
                bytes: memory("Hugepagesize") << 10,
            },
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load: load(),
            natgate: env!("CARGO_PKG_VERSION"),
            commit: commit(),
        }
    }

    /// Cycles of the time-stamp counter in a nanosecond; 1 if there is no counter.
    pub fn cycles_per_ns(&self) -> f64 {
        self.tsc_hz.map_or(1.0, |hertz| hertz / 1e9)
    }

    /// Table of the facts.
    pub fn table(&self) -> Table {
        let caches: Vec<String> = self.caches.iter().map(Cache::to_string).collect();
        let load: Vec<String> = self.load.iter().map(f64::to_string).collect();
        let gibibytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let tsc = self.tsc_hz.map_or("none".into(), |hertz| format!("{:.1} MHz", hertz / 1e6));
        let pages = &self.huge_pages;
        Table::new(["", "what the figures were measured on"])
            .row(["Date", &self.date])
            .row(["Processor", &self.cpu])
            .row(["Processors used at most", &self.processors.to_string()])
            .row(["Time-stamp counter", &tsc])
            .row(["Caches", &caches.join(", ")])
            .row(["Memory", &gibibytes(self.memory_bytes)])
            .row(["Available at that time", &gibibytes(self.available_bytes)])
            .row(["Transparent huge pages", &pages.transparent])
            .row([
                "Reserved huge pages",
                &format!(
                    "{} of {} free, {} KiB each",
                    pages.free,
                    pages.reserved,
                    pages.bytes >> 10
                ),
            ])
            .row(["Kernel", &self.kernel])
            .row(["Load averages at that time", &load.join(", ")])
            .row(["natgate", self.natgate])
            .row(["Commit", self.commit.as_deref().unwrap_or("not known")])
    }
}

impl std::fmt::Display for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = match self.kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        write!(f, "L{}{letter} {} KiB", self.level, self.bytes >> 10)
    }
}

fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

/// Text behind the colon of a field in a file.
fn text_of(path: &str, field: &str) -> String {
    let content = read(path);
    let line = content.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, v)| v.trim().into())
}

fn field_of(path: &str, field: &str) -> u64 {
    let text = text_of(path, &format!("{field}:"));
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Mode that the kernel writes in brackets.
fn transparent() -> String {
    let modes = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = modes.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(String::new(), |(mode, _)| mode.into())
}

fn load() -> Vec<f64> {
    let averages = read("/proc/loadavg");
    averages.split(' ').take(3).filter_map(|average| average.parse().ok()).collect()
}

fn caches() -> Vec<Cache> {
    let cache = |index: u32| {
        let fact = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            Some(read_to_string(path).ok()?.trim().to_string())
        };
        let bytes = fact("size")?.strip_suffix('K')?.parse::<u64>().ok()? << 10;
        Some(Cache { level: fact("level")?.parse().ok()?, kind: fact("type")?, bytes })
    };
    (0..8).map_while(cache).collect()
}

/// Rate of the time-stamp counter by the monotonic clock.
#[cfg(target_arch = "x86_64")]
fn tsc_hz() -> Option<f64> {
    let now = || (Instant::now(), natgate_timings::cycles());
    let (start, from) = now();
    while start.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (end, to) = now();
    Some((to - from) as f64 / (end - start).as_secs_f64())
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_hz() -> Option<f64> {
    None
}

/// Commit of the checkout in the working folder; `None` without git or a checkout.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["describe", "--always", "--dirty=+"]).output().ok()?;
    let name = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(name.trim().to_owned())
}

/// The present time in UTC.
fn date() -> String {
    // SAFETY: the kernel's calendar functions read one value and write the other; both live during
    // the calls.
    let time = unsafe {
        let seconds = libc::time(std::ptr::null_mut());
        let mut time = std::mem::zeroed::<libc::tm>();
        libc::gmtime_r(&raw const seconds, &raw mut time);
        time
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        time.tm_year + 1900,
        time.tm_mon + 1,
        time.tm_mday,
        time.tm_hour,
        time.tm_min,
        time.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        let machine = Machine::look();
        assert!(machine.processors > 0 && machine.memory_bytes >= machine.available_bytes);
        assert!(machine.date.starts_with("20") && machine.date.ends_with("UTC"), "{machine:?}");
        let cycles = machine.cycles_per_ns();
        assert!((0.05..20.0).contains(&cycles), "{cycles} cycles a nanosecond");
    }
}
