//! The configuration: the file of `natgate run`, read by the same reader, without the parts that
//! need an operating system.

use crate::log;
use natgate_control::config::{self, Configuration};
use natgate_engine::Engine;
use natgate_gateway::{
    self as gateway, Backend, ControlSettings, KernelSettings, MetricsPlace, PageSettings,
    ReceiveMode, Settings, SideSettings,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Name of the file in messages.
pub const NAME: &str = "configuration";

/// Lowest number of mappings that the machine must have room for.
pub const FEWEST: u32 = 100_000;

/// Reads a configuration, and fits it to `memory` bytes.
///
/// # Errors
/// Every problem, one sentence each, with line and column if it has a place in the file.
pub fn read(file: Vec<u8>, memory: u64) -> Result<Configuration, Vec<String>> {
    let mut configuration = config::text_of(file, NAME)
        .and_then(|text| config::read_text(&text, NAME))
        .map_err(config::sentences)?;
    let mut problems = impossible(&configuration.settings);
    let queues = log::memory(&configuration.settings);
    if queues > memory / 2 {
        problems.push(format!(
            "{NAME}: log.queue: the logs' queues may take {} MiB of {}; lower it",
            queues.div_ceil(1 << 20),
            memory >> 20
        ));
    } else {
        problems.extend(fit(&mut configuration.settings, memory - queues).err());
    }
    if problems.is_empty() { Ok(configuration) } else { Err(problems) }
}

/// Problems with settings that need an operating system.
fn impossible(settings: &Settings) -> Vec<String> {
    let insides = settings.realms.iter().map(|realm| (&realm.name[..], &realm.inside));
    let sides = [("inside", &settings.inside), ("outside", &settings.outside)];
    let all_sides = || sides.into_iter().chain(insides.clone());
    let any_side =
        |is_meant: fn(&SideSettings) -> bool| all_sides().any(|(_, side)| is_meant(side));
    let keys = [
        ("backend", any_side(|side| side.backend != Backend::AfPacket)),
        ("mode", any_side(|side| side.mode != ReceiveMode::default())),
        ("ring", any_side(|side| side.ring.is_some())),
        ("workers.cores", !settings.workers.cores.is_empty()),
        ("[dpdk]", settings.dpdk.is_some()),
        (
            "management, [announce], [learn] or [shutdown]",
            settings.kernel != KernelSettings::default(),
        ),
        ("[state]", settings.state.is_some()),
        ("[control]", settings.control != ControlSettings::default()),
        ("[page]", settings.page != PageSettings::default()),
        ("[snmp]", settings.monitoring.snmp.is_some()),
    ];
    let ipv6 = settings.ipv6.configured.then(|| {
        format!("{NAME}: the image has no IPv6; leave out address6, gateway6 and its tables")
    });
    let found = keys.into_iter().filter(|(_, is_there)| *is_there);
    let mut problems: Vec<String> = found
        .map(|(key, _)| {
            format!("{NAME}: {key} needs an operating system, and there is none here; leave it out")
        })
        .collect();
    for (number, one) in settings.logs.iter().enumerate() {
        let problem = log::check(settings, one).err();
        problems.extend(problem.map(|problem| format!("{NAME}: log[{number}]: {problem}")));
    }
    problems.extend(ipv6);
    problems.extend(elsewhere(settings));
    problems.extend(sides.iter().filter(|(_, side)| side.address.is_none()).map(|(name, _)| {
        format!("{NAME}: {name}.address is missing; give the gateway's own address there")
    }));
    problems
}

/// Place of the status page; `None` unless the file configures one.
pub fn status_page(settings: &Settings) -> Option<(Ipv4Addr, u16)> {
    match settings.monitoring.metrics {
        MetricsPlace::At(SocketAddr::V4(place)) => Some((*place.ip(), place.port())),
        _ => None,
    }
}

/// Problem with the place of the status page.
fn elsewhere(settings: &Settings) -> Option<String> {
    let MetricsPlace::At(place) = settings.monitoring.metrics else { return None };
    let (own, _) = settings.inside.address?;
    (place.ip() != IpAddr::V4(own)).then(|| {
        format!(
            "{NAME}: metrics.listen: {place} is not the gateway's own address inside, and the page \
             can be had nowhere else here; write \"{own}:{}\"",
            place.port()
        )
    })
}

/// Bytes of the workers: their engines, the queues between them, and the stacks of the workers
/// beside the first.
fn needed_by(settings: &Settings) -> u64 {
    const STACK: u64 = 2 << 20;
    let (config, workers) = (&settings.engine, settings.workers.count as u64);
    if workers == 1 {
        return Engine::memory(config);
    }
    let engines = workers * Engine::memory(&config.share(workers as u32));
    engines + gateway::team_memory(settings) + (workers - 1) * STACK
}

/// Sets the number of mappings to the most that memory permits, if the file does not set it.
fn fit(settings: &mut Settings, memory: u64) -> Result<(), String> {
    // No address is added at run time. Room for an address takes memory here, even if it is not
    // touched.
    let addresses = settings.engine.count_addresses();
    settings.engine.limits.external_addresses = Some(addresses as u32);
    let needed = needed_by(settings);
    if needed <= memory {
        return Ok(());
    }
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    if settings.engine.limits.mappings.is_some() {
        return Err(format!(
            "{NAME}: limits.mappings needs {} MiB of memory and there are {}; lower it, or leave \
             it out for as many as fit",
            mebibytes(needed),
            mebibytes(memory)
        ));
    }
    let mut with = |mappings| {
        settings.engine.limits.mappings = Some(mappings);
        needed_by(settings) <= memory
    };
    if !with(FEWEST) {
        settings.engine.limits.mappings = None;
        return Err(format!(
            "{NAME}: a table of {FEWEST} mappings does not fit into {} MiB of memory; set \
             limits.mappings lower, or give the machine more",
            mebibytes(memory)
        ));
    }
    let (mut fits, mut too_many) = (FEWEST, 1 << 20);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if with(middle) { fits = middle } else { too_many = middle }
    }
    with(fits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[inside]\ndevice = \"eth0\"\naddress = \"10.0.0.1/24\"\n\
        [outside]\ndevice = \"eth1\"\naddress = \"192.0.2.254/24\"\n\
        [[pool]]\naddresses = [\"203.0.113.0/28\"]\n";

    fn problems(text: &str) -> Vec<String> {
        read(text.into(), 1 << 40).expect_err("there is a problem")
    }

    #[test]
    fn problems_have_line_and_column() {
        assert!(read(GOOD.into(), 1 << 40).is_ok());
        let wrong = problems(&GOOD.replace("10.0.0.1/24", "10.0.0.1/99"));
        assert!(wrong[0].starts_with("configuration:3:11: inside.address: "), "{wrong:?}");
        let bytes = [GOOD.as_bytes(), b"# \xc3\xa4\xff"].concat();
        let wrong = read(bytes, 1 << 40).unwrap_err();
        assert!(wrong[0].starts_with("configuration:9:4: a byte"), "{wrong:?}");
    }

    #[test]
    fn the_configuration_of_a_new_stick_is_good() {
        let file = include_bytes!("../../../packaging/usb/natgate.toml");
        let configuration = read(file.to_vec(), 1 << 40).expect("it is good");
        assert_eq!(configuration.warnings.len(), 0);
    }

    #[test]
    fn what_needs_an_operating_system_is_named() {
        for (key, text) in [
            ("[state]", format!("{GOOD}[state]\nfile = \"/var/lib/natgate/ports\"\n")),
            ("workers.cores", format!("{GOOD}[workers]\ncount = 2\ncores = [0, 1]\n")),
            ("[control]", format!("{GOOD}[control]\nsocket = \"/run/natgate.sock\"\n")),
            ("write \"10.0.0.1:9464\"", format!("{GOOD}[metrics]\nlisten = \"127.0.0.1:9464\"\n")),
            ("metrics.listen", format!("{GOOD}[metrics]\nlisten = \"192.0.2.254:9464\"\n")),
            ("metrics.listen", format!("{GOOD}[metrics]\nlisten = \"[::1]:9464\"\n")),
            ("kind", format!("{GOOD}[[log]]\nkind = \"file\"\npath = \"/var/log/natgate\"\n")),
            ("backend", GOOD.replace("\"eth0\"", "\"eth0\"\nbackend = \"tun\"")),
            ("ring", GOOD.replace("\"eth0\"", "\"eth0\"\nring = 4096")),
            ("no IPv6", format!("{GOOD}[ipv6]\nforwarding = true\n")),
            ("no IPv6", GOOD.replace("[outside]", "address6 = \"2001:db8::1/64\"\n[outside]")),
            ("outside.address", GOOD.replace("address = \"192.0.2.254/24\"\n", "")),
        ] {
            let found = problems(&text);
            assert!(found.iter().any(|problem| problem.contains(key)), "{key}: {found:?}");
        }
    }

    #[test]
    fn the_status_page_is_inside_or_nowhere() {
        let of = |text: &str| {
            let good = read(text.into(), 1 << 40).expect("it is good");
            status_page(&good.settings)
        };
        assert_eq!(of(GOOD), None);
        assert_eq!(of(&format!("{GOOD}[metrics]\nlisten = \"off\"\n")), None);
        let at = of(&format!("{GOOD}[metrics]\nlisten = \"10.0.0.1:9464\"\n"));
        assert_eq!(at, Some((Ipv4Addr::new(10, 0, 0, 1), 9464)));
    }

    #[test]
    fn no_room_is_kept_for_addresses_that_cannot_come() {
        let file = format!("{GOOD}[limits]\nexternal_addresses = 1000\n");
        let read = read(file.into(), 1 << 40).expect("it is good");
        assert_eq!(read.settings.engine.limits.external_addresses, Some(16));
    }

    #[test]
    fn the_table_is_as_large_as_memory_permits() {
        let most = read(GOOD.into(), 1 << 40).expect("it is good").settings;
        let needed = Engine::memory(&most.engine);
        let less = read(GOOD.into(), needed / 2).expect("it fits").settings;
        let mappings = less.engine.limits.mappings.expect("it was set");
        assert!(mappings > FEWEST && Engine::memory(&less.engine) <= needed / 2);
        let mut more = less.clone();
        more.engine.limits.mappings = Some(mappings + mappings / 10);
        assert!(Engine::memory(&more.engine) > needed / 2);
        let none = read(GOOD.into(), 1 << 20).unwrap_err();
        assert!(none[0].contains("100000 mappings"), "{none:?}");
        let said = format!("{GOOD}[limits]\nmappings = 1000000\n");
        let none = read(said.into(), 1 << 20).unwrap_err();
        assert!(none[0].contains("limits.mappings needs"), "{none:?}");
    }
}
