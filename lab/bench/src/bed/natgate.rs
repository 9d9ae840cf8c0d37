//! natgate as the subject: `natgate run` between the cables.

use super::{BackEnd, BedError, GATEWAY, Plan, TESTER, ports};
use natgate_testnet::{Gateway, Network};
use std::fs;
use std::net::Ipv4Addr;

/// The first external address.
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Mappings of an external address: few enough for each subscriber to keep one address.
const MAPPINGS_PER_ADDRESS: u32 = 20_000;

/// Translation of natgate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Translation {
    /// natgate translates.
    Pool,
    /// A rule bypasses all packets.
    Bypass,
}

pub(super) struct Natgate {
    gateway: Gateway,
}

impl Natgate {
    pub(super) fn start(
        plan: &Plan,
        back_end: BackEnd,
        translation: Translation,
        network: &Network,
        ends: &[String; 2],
    ) -> Result<Self, BedError> {
        let devices = match back_end {
            BackEnd::Dpdk => ports::servers(network),
            _ => ends.clone(),
        };
        let text = configuration(plan, back_end, translation, &devices);
        let gateway = Gateway::start_in(network, "nat", &plan.program, &text)?;
        Ok(Self { gateway })
    }

    pub(super) fn process(&self) -> u32 {
        self.gateway.process()
    }

    /// Bytes of its resident memory.
    pub(super) fn resident(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    }
}

fn configuration(
    plan: &Plan,
    back_end: BackEnd,
    translation: Translation,
    [inside, outside]: &[String; 2],
) -> String {
    let back_end = back_end.name();
    let addresses = plan.flows.div_ceil(MAPPINGS_PER_ADDRESS);
    let last = Ipv4Addr::from_bits(POOL.to_bits() + addresses);
    let bypass = match translation {
        Translation::Pool => "",
        Translation::Bypass => {
            "[[rule]]\nkind = \"bypass\"\nmatch = { source = \"100.64.0.0/10\" }\n"
        }
    };
    let workers = match plan.workers {
        0 | 1 => String::new(),
        count => format!("[workers]\ncount = {count}\n"),
    };
    format!(
        "[inside]\n\
         device = \"{inside}\"\n\
         backend = \"{back_end}\"\n\
         address = \"{}/24\"\n\
         [outside]\n\
         device = \"{outside}\"\n\
         backend = \"{back_end}\"\n\
         address = \"{}/24\"\n\
         gateway = \"{}\"\n\
         [[route]]\n\
         prefix = \"100.64.0.0/10\"\n\
         via = \"{}\"\n\
         side = \"inside\"\n\
         [[pool]]\n\
         addresses = [\"{POOL}-{last}\"]\n\
         [limits]\n\
         mappings = {}\n\
         new_mappings_per_second = 1000000\n\
         unanswered_give_way = false\n\
         [timeouts]\n\
         udp = \"1h\"\n\
         {workers}{bypass}",
        GATEWAY[0],
        GATEWAY[1],
        TESTER[1],
        TESTER[0],
        u64::from(plan.flows) + 1000,
    )
}
