//! Device names by back end, and the arguments of DPDK's environment.

use super::draft::SideDraft;
use super::problem::{Located, Place};
use super::reader::{Section, Value};
use super::values;
use natgate_gateway::{Backend, ReceiveMode};

/// The back ends by name.
pub(super) const BACKENDS: [(&str, Result<Backend, &str>); 4] = [
    ("af-packet", Ok(Backend::AfPacket)),
    ("af-xdp", Ok(Backend::AfXdp)),
    ("dpdk", Ok(Backend::Dpdk)),
    ("tun", Ok(Backend::Tun)),
];

/// The receive modes by name.
const MODES: [(&str, Result<ReceiveMode, &str>); 2] =
    [("latency", Ok(ReceiveMode::Latency)), ("rate", Ok(ReceiveMode::Rate))];

/// Largest number of arguments of DPDK's environment, and the longest one in bytes.
const MOST_ARGUMENTS: usize = 64;
const LONGEST_ARGUMENT: usize = 256;

/// Options of DPDK's environment that natgate refuses: short form, long form, reason.
const REFUSED: [(&str, &str, &str); 8] = [
    ("-h", "--help", "ends the program"),
    ("-v", "--version", "is for another kind of program"),
    ("-c", "--coremask", CORES),
    ("-l", "--lcores", CORES),
    ("-s", "--service-corelist", CORES),
    ("-S", "--service-coremask", CORES),
    ("-p", "--main-lcore", CORES),
    ("--", "--proc-type", "is for another kind of program"),
];
const CORES: &str = "chooses cores, which natgate does by itself";

/// Reads the device of a side.
pub(super) fn read_device(section: &Section<'_>, backend: Backend, example: &str) -> Option<Named> {
    let value = section.require("device", example)?;
    match backend {
        Backend::Dpdk => value.parsed("a port", port),
        Backend::AfPacket | Backend::AfXdp | Backend::Tun => {
            value.parsed("a device", kernel_device)
        }
    }
}

/// Reads the receive mode. Only packet sockets have one.
pub(super) fn read_mode(section: &Section<'_>, backend: Backend) -> ReceiveMode {
    let Some(value) = section.get("mode") else { return ReceiveMode::default() };
    let mode = value.word(&MODES).unwrap_or_default();
    if mode == ReceiveMode::Rate && backend != Backend::AfPacket {
        let other = backend.name();
        value.wrong(format!(
            "\"rate\" is for backend = \"af-packet\", and this side has \"{other}\"; take it out"
        ));
    }
    mode
}

/// Reads the number of frames in a receive queue.
pub(super) fn read_ring(section: &Section<'_>, backend: Backend) -> Option<u32> {
    let value = section.get("ring")?;
    let most = match backend {
        Backend::AfPacket => 65_536,
        Backend::AfXdp => 16_384,
        Backend::Dpdk | Backend::Tun => {
            let other = backend.name();
            value.wrong(format!(
                "is for \"af-packet\" and \"af-xdp\", and this side has backend = \"{other}\"; \
                 take it out"
            ));
            return None;
        }
    };
    let ring = value.integer(256..=most)?;
    if !ring.is_power_of_two() {
        let (below, above) = (ring.next_power_of_two() / 2, ring.next_power_of_two());
        value.wrong(format!("{ring} is no power of two; write {below} or {above}"));
        return None;
    }
    u32::try_from(ring).ok()
}

/// A device name and its place.
type Named = Located<String>;

/// Checks the name of a Linux device.
pub(super) fn kernel_device(text: &str) -> Result<String, String> {
    const LONGEST: usize = 15;
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    if text.is_empty() || text == "." || text == ".." || text.contains(odd) || text.len() > LONGEST
    {
        let shown = values::quoted(text);
        let rule = "without space, \"/\" and \":\", such as \"eth0\"";
        return Err(format!("{shown} names no device; write 1 to {LONGEST} bytes {rule}"));
    }
    Ok(text.to_owned())
}

/// Checks the name of a DPDK port, or of a virtual device with its arguments.
fn port(text: &str) -> Result<String, String> {
    const LONGEST: usize = 512;
    const LONGEST_NAME: usize = 63;
    let name = port_name(text);
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if text.contains(odd) || text.len() > LONGEST || name.is_empty() || name.len() > LONGEST_NAME {
        let shown = values::quoted(text);
        let rule = "such as \"0000:03:00.0\" or \"net_memif0,role=server\"";
        return Err(format!("{shown} names no DPDK port; write one without spaces {rule}"));
    }
    Ok(text.to_owned())
}

/// The name of a port without its arguments.
fn port_name(device: &str) -> &str {
    device.split_once(',').map_or(device, |(name, _)| name)
}

/// True if two sides use the same device.
pub(super) fn is_one(one: &SideDraft, other: &SideDraft) -> bool {
    let name = |side: &SideDraft| {
        let device = &side.device.as_ref()?.value;
        Some(match side.backend {
            Backend::Dpdk => port_name(device).to_owned(),
            Backend::AfPacket | Backend::AfXdp | Backend::Tun => device.clone(),
        })
    };
    name(one).is_some() && name(one) == name(other)
}

/// Reports a side that needs an `address` because the kernel has no device for it.
pub(super) fn requires_address(section: &Section<'_>, backend: Backend, example: &str) {
    let message = match backend {
        Backend::AfPacket | Backend::AfXdp | Backend::Tun => return,
        Backend::Dpdk => "is missing, and a DPDK port has none of the kernel's",
    };
    let has_none = section.get("address").is_none() && section.get("address6").is_none();
    if section.is_present() && has_none {
        let Place { key, offset } = &section.place;
        let place = Place { key: format!("{key}.address"), offset: *offset };
        section.report.missing(&place, format!("{message}; write address = {example}"));
    }
}

/// Reads `[dpdk]`: the arguments of DPDK's environment and their place.
pub(super) fn read_dpdk(section: &Section<'_>) -> Option<Located<Vec<String>>> {
    let value = section.get("eal")?;
    let items = value.items("an array of strings such as [\"--in-memory\"]")?;
    if items.len() > MOST_ARGUMENTS {
        value.wrong(format!("has {} arguments; it may have {MOST_ARGUMENTS}", items.len()));
        return None;
    }
    let read = |item: &Value<'_>| item.parsed("an argument in quotes", argument);
    let arguments = items.iter().map(|item| read(item).map(|read| read.value));
    let arguments: Option<Vec<String>> = arguments.collect();
    Some(Located { value: arguments?, place: value.place })
}

/// Checks an argument of DPDK's environment.
fn argument(text: &str) -> Result<String, String> {
    let shown = values::quoted(text);
    if text.is_empty() || text.len() > LONGEST_ARGUMENT || text.contains(char::is_control) {
        let rule = format!("write 1 to {LONGEST_ARGUMENT} bytes, without control characters");
        return Err(format!("{shown} is no argument of DPDK; {rule}"));
    }
    // DPDK accepts an abbreviated long option, and a short option joined with its value.
    let option = text.split_once('=').map_or(text, |(option, _)| option);
    let refused = REFUSED.iter().find(|(short, long, _)| {
        let is_long = option.len() > 2 && option.starts_with("--");
        if is_long { long.starts_with(option) } else { text.starts_with(short) }
    });
    match refused {
        Some((_, _, why)) => Err(format!("{shown} {why}; take it out")),
        None => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_names_and_perhaps_arguments() {
        for good in ["0000:03:00.0", "net_memif0", "net_memif0,role=server,socket=/run/a.sock"] {
            assert_eq!(port(good).as_deref(), Ok(good));
        }
        let long = "n".repeat(64);
        for bad in
            ["", ",role=server", "net memif", "net\n", &long, &format!("n,{}", "a".repeat(512))]
        {
            assert!(port(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn options_that_natgate_cannot_use_are_refused_however_they_are_written() {
        let long = "m".repeat(257);
        for bad in [
            "",
            "-h",
            "--help",
            "--hel",
            "-c",
            "-c3",
            "-l",
            "-l0-3",
            "--lcores=0",
            "--main-lcore",
            "--",
            "--proc-type=secondary",
            "-v",
            "a\0b",
            &long,
        ] {
            assert!(argument(bad).is_err(), "{bad:?}");
        }
        for good in [
            "-m",
            "256",
            "--no-huge",
            "--in-memory",
            "-a",
            "0000:03:00.0",
            "--no-pci",
            "--vdev=net_null0",
            "--log-level=lib.eal:debug",
            "--legacy-mem",
            "--socket-mem=512",
        ] {
            assert_eq!(argument(good).as_deref(), Ok(good));
        }
    }
}
