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
        ("[lw4o6]", settings.ipv6.lw4o6.is_some()),
    ];
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
    problems.extend(elsewhere(settings));
    let has_ipv6 = [&settings.ipv6.inside, &settings.ipv6.outside].map(|own| own.address.is_some());
    let without =
        sides.iter().zip(has_ipv6).filter(|((_, own), has)| own.address.is_none() && !has);
    problems.extend(without.map(|((name, _), _)| {
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
    let Some((own, _)) = settings.inside.address else {
        return Some(format!(
            "{NAME}: metrics.listen: the page is at inside.address, which is missing; give it, or \
             leave out the page"
        ));
    };
    (place.ip() != IpAddr::V4(own)).then(|| {
        format!(
            "{NAME}: metrics.listen: {place} is not the gateway's own address inside, and the page \
             can be had nowhere else here; write \"{own}:{}\"",
            place.port()
        )
    })
}

/// Bytes of the workers: their engines and tables of IPv6, the queues between them, and the stacks
/// of the workers beside the first.
fn needed_by(settings: &Settings) -> u64 {
    const STACK: u64 = 2 << 20;
    let (config, workers) = (&settings.engine, settings.workers.count as u64);
    let mut ipv6 = settings.ipv6.clone();
    ipv6.share.of = settings.workers.count as u16;
    let share = config.share(workers as u32);
    let each = Engine::memory(&share) + ipv6.memory(&share);
    match workers {
        1 => each,
        _ => workers * each + gateway::team_memory(settings) + (workers - 1) * STACK,
    }
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
        let hosts = match settings.ipv6.memory(&settings.engine) {
            0 => String::new(),
            bytes => format!(" beside {} MiB for hosts (limits.subscribers)", mebibytes(bytes)),
        };
        return Err(format!(
            "{NAME}: a table of {FEWEST} mappings does not fit into {} MiB of memory{hosts}; set \
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
            (
                "[lw4o6]",
                GOOD.replace("[outside]", "address6 = \"2001:db8::1/64\"\n[outside]")
                    + "[lw4o6]\naddress = \"2001:db8:ffff::2\"\nbindings = \"bindings.csv\"\n",
            ),
            ("outside.address", GOOD.replace("address = \"192.0.2.254/24\"\n", "")),
        ] {
            let found = problems(&text);
            assert!(found.iter().any(|problem| problem.contains(key)), "{key}: {found:?}");
        }
    }

    #[test]
    fn a_side_of_ipv6_needs_no_ipv4_address() {
        let ipv6 = GOOD.replace("address = \"10.0.0.1/24\"", "address6 = \"2001:db8::1/64\"");
        let ipv6 = format!("{ipv6}[nat64]\n");
        assert!(read(ipv6.clone().into(), 1 << 40).is_ok());
        let with_page = format!("{ipv6}[metrics]\nlisten = \"10.0.0.1:9464\"\n");
        let wrong = problems(&with_page);
        assert!(wrong[0].contains("the page is at inside.address"), "{wrong:?}");
    }

    #[test]
    fn hosts_of_ipv6_take_memory_from_the_table() {
        let memory = Engine::memory(&read(GOOD.into(), 1 << 40).unwrap().settings.engine) / 4 * 3;
        let mappings = |file: &str| {
            let settings = read(file.into(), memory).expect("it fits").settings;
            (settings.engine.limits.mappings.expect("it was set"), needed_by(&settings))
        };
        let ipv6 = GOOD.replace("[outside]", "address6 = \"2001:db8::1/64\"\n[outside]");
        let ((ipv4, _), (nat64, needed)) = (mappings(GOOD), mappings(&format!("{ipv6}[nat64]\n")));
        assert!(nat64 < ipv4 && needed <= memory, "{nat64} of {ipv4}");
        let two = format!("{ipv6}[nat64]\n[workers]\ncount = 2\n");
        assert!(mappings(&two).1 <= memory);
        let wrong = read(format!("{ipv6}[nat64]\n").into(), memory / 4).unwrap_err();
        assert!(wrong[0].contains("MiB for hosts (limits.subscribers); set"), "{wrong:?}");
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
