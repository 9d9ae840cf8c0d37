//! The meaning of `[dslite]`, `[lw4o6]` and `[[map]]`: each with a sample customer, worked out both
//! ways.

use super::plural;
use super::text::grouped;
use natgate_ipv6::Prefix6;
use natgate_ipv6::softwire::{DsliteSettings, Lw4o6Settings, MapMode, MapRule, PortSets};
use serde::Serialize;
use std::fmt::{self, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most ranges of ports that a text lists.
const MOST_RANGES: usize = 3;

/// A customer, from its IPv4 address and port set to its IPv6 address and back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampleCustomer {
    /// IPv4 address, or prefix of more than one.
    pub ipv4: String,
    /// Identifier of the port set; `None`: the address is not shared.
    pub psid: Option<u16>,
    /// Ranges of ports, such as `1232-1235`.
    pub ports: Vec<String>,
    /// Number of ports.
    pub port_count: u32,
    /// Prefix of the customer's network; `None`: the table does not say.
    pub prefix: Option<String>,
    /// IPv6 address of the tunnel, or of the translation.
    pub ipv6: String,
    /// IPv4 address and port set that follow from the IPv6 address; `None`: it tells nothing.
    pub back: Option<SampleOrigin>,
}

/// The IPv4 side of a customer that follows from its IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampleOrigin {
    /// IPv4 address, or the first one of a prefix.
    pub ipv4: String,
    /// Identifier of the port set.
    pub psid: Option<u16>,
}

/// The meaning of `[dslite]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DsliteMeaning {
    /// The gateway's end of tunnels.
    pub address: String,
    /// Prefixes of the B4s.
    pub b4: Vec<String>,
    /// One B4: a subscriber.
    pub sample: Option<SampleB4>,
}

/// A B4 and the ends of its tunnel's packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampleB4 {
    /// Name of the subscriber.
    pub subscriber: String,
    /// An inner address.
    pub internal: String,
    /// Source and destination of the packets that carry the inner ones to the gateway.
    pub tunnel: (String, String),
}

/// The meaning of `[lw4o6]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lw4o6Meaning {
    /// The gateway's end of tunnels.
    pub address: String,
    /// Other ends of tunnels that bindings name.
    pub brs: Vec<String>,
    /// Number of bindings.
    pub bindings: u64,
    /// Memory of the bindings, bytes.
    pub memory_bytes: u64,
    /// True if customers reach each other.
    pub hairpinning: bool,
    /// True if errors answer what matches no binding.
    pub icmp_errors: bool,
    /// True if ICMP from outside reaches customers.
    pub inbound_icmp: bool,
    /// One customer.
    pub sample: Option<SampleCustomer>,
}

/// The meaning of one `[[map]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DomainMeaning {
    /// `encapsulation` or `translation`.
    pub mode: &'static str,
    /// IPv6 prefix.
    pub ipv6: String,
    /// IPv4 prefix.
    pub ipv4: String,
    /// Number of EA bits.
    pub ea_length: u8,
    /// Bits before the identifier in a port.
    pub psid_offset: u8,
    /// Bits of the identifier.
    pub psid_length: u8,
    /// Address of the border relay, or prefix of the default mapping rule.
    pub end: String,
    /// Number of customers.
    pub customers: u64,
    /// Ports of each customer.
    pub ports_each: u32,
    /// The last customer.
    pub sample: SampleCustomer,
}

fn ranges(sets: PortSets, psid: u16) -> Vec<String> {
    sets.ranges(psid).map(|(first, last)| format!("{first}-{last}")).collect()
}

/// Inner address of the sample: the B4's own (RFC 6333 section 5.7).
const INNER: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

impl DsliteMeaning {
    pub(super) fn of(settings: &DsliteSettings) -> Self {
        let sample = settings.b4.first().map(|prefix| {
            let host = u128::from(prefix.len < 128);
            let b4 = Ipv6Addr::from_bits(prefix.address.to_bits() | host).to_string();
            let tunnel = (b4.clone(), settings.address.to_string());
            let subscriber = match settings.subscriber_length {
                128 => b4,
                len => {
                    let prefix = Prefix6 { address: prefix.address, len };
                    Prefix6 { address: prefix.first(), len }.to_string()
                }
            };
            SampleB4 { subscriber, internal: INNER.to_string(), tunnel }
        });
        Self {
            address: settings.address.to_string(),
            b4: settings.b4.iter().map(ToString::to_string).collect(),
            sample,
        }
    }

    pub(super) fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "  dslite: tunnels from {} to {}", self.b4.join(", "), self.address)?;
        let Some(SampleB4 { subscriber, internal, tunnel }) = &self.sample else { return Ok(()) };
        writeln!(f, "    {internal} behind {} is a host of subscriber {subscriber}", tunnel.0)
    }
}

impl Lw4o6Meaning {
    pub(super) fn of(settings: &Lw4o6Settings) -> Self {
        let table = &settings.bindings;
        // The lowest binding, so that equal files have one sample.
        let sample = table.iter().min_by_key(|binding| (binding.ipv4, binding.psid));
        let sample = sample.map(|binding| {
            let first = binding.sets.ranges(binding.psid).next();
            let found = first.and_then(|(port, _)| table.binding(binding.ipv4, port));
            let shared = |psid| (!binding.sets.is_whole()).then_some(psid);
            SampleCustomer {
                ipv4: binding.ipv4.to_string(),
                psid: shared(binding.psid),
                ports: ranges(binding.sets, binding.psid),
                port_count: binding.sets.ports(),
                prefix: None,
                ipv6: binding.b4.to_string(),
                back: found.map(|found| SampleOrigin {
                    ipv4: found.ipv4.to_string(),
                    psid: shared(found.psid),
                }),
            }
        });
        let own = settings.address.to_bits();
        let others = table.brs().iter().filter(|br| **br != own);
        Self {
            address: settings.address.to_string(),
            brs: others.map(|br| std::net::Ipv6Addr::from_bits(*br).to_string()).collect(),
            bindings: table.len() as u64,
            memory_bytes: table.memory() as u64,
            hairpinning: settings.hairpinning,
            icmp_errors: settings.icmp_errors,
            inbound_icmp: settings.inbound_icmp,
            sample,
        }
    }

    pub(super) fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bindings = plural(self.bindings, "binding", "bindings");
        let memory = bytesize::ByteSize(self.memory_bytes).display().iec();
        writeln!(f, "  lw4o6: {bindings} at {}, {memory}", self.address)?;
        if !self.brs.is_empty() {
            writeln!(f, "    other ends of tunnels: {}", self.brs.join(", "))?;
        }
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        writeln!(
            f,
            "    hairpinning {}, ICMP errors {}, ICMP from outside {}",
            yes(self.hairpinning),
            yes(self.icmp_errors),
            yes(self.inbound_icmp)
        )?;
        self.sample.iter().try_for_each(|sample| sample.text(f))
    }
}

impl DomainMeaning {
    pub(super) fn of(rule: &MapRule) -> Self {
        let parameters = rule.parameters();
        let sets = rule.sets();
        let (mode, end) = match parameters.mode {
            MapMode::Encapsulation(br) => ("encapsulation", br.to_string()),
            MapMode::Translation(dmr) => ("translation", dmr.to_string()),
        };
        let psid = rule.own_psid().unwrap_or((sets.count() - 1) as u16);
        let last = Ipv4Addr::from_bits(parameters.ipv4.last());
        let customer = rule.customer(last, psid);
        let shared = |psid| (!sets.is_whole()).then_some(psid);
        let ipv4 = match customer.len {
            32 => customer.ipv4.to_string(),
            len => format!("{}/{len}", customer.ipv4),
        };
        let back = rule.customer_of(customer.address.to_bits());
        let sample = SampleCustomer {
            ipv4,
            psid: shared(psid),
            ports: ranges(sets, psid),
            port_count: sets.ports(),
            prefix: Some(customer.prefix.to_string()),
            ipv6: customer.address.to_string(),
            back: back.map(|(ipv4, psid)| SampleOrigin {
                ipv4: Ipv4Addr::from_bits(ipv4).to_string(),
                psid: shared(psid),
            }),
        };
        Self {
            mode,
            ipv6: parameters.ipv6.to_string(),
            ipv4: crate::config::show_prefix(parameters.ipv4),
            ea_length: parameters.ea_length,
            psid_offset: parameters.psid_offset,
            psid_length: sets.bits(),
            end,
            customers: 1 << parameters.ea_length,
            ports_each: sets.ports(),
            sample,
        }
    }

    pub(super) fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { mode, ipv6, ipv4, end, .. } = self;
        let customers = plural(self.customers, "customer", "customers");
        let ports = grouped(self.ports_each.into());
        let means = if *mode == "encapsulation" { "to" } else { "Internet in" };
        writeln!(f, "  map: {mode}, {ipv4} in {ipv6}, {means} {end}")?;
        writeln!(f, "    {customers} with {ports} ports each")?;
        self.sample.text(f)
    }
}

impl SampleCustomer {
    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "    for example {}", self.ipv4)?;
        if let Some(psid) = self.psid {
            let shown = self.ports.iter().take(MOST_RANGES).map(String::as_str);
            let shown: Vec<&str> = shown.collect();
            write!(f, ", PSID {psid} ({psid:#x}), ports {}", shown.join(", "))?;
            match self.ports.len().saturating_sub(MOST_RANGES) {
                0 => {}
                more => write!(f, " and {} more ranges", grouped(more as u64))?,
            }
        }
        writeln!(f)?;
        match &self.prefix {
            Some(prefix) => writeln!(f, "      in {prefix} with address {}", self.ipv6)?,
            None => writeln!(f, "      at {}", self.ipv6)?,
        }
        match &self.back {
            Some(SampleOrigin { ipv4, psid: Some(psid) }) => {
                writeln!(f, "      and back: {ipv4}, PSID {psid}")
            }
            Some(SampleOrigin { ipv4, psid: None }) => writeln!(f, "      and back: {ipv4}"),
            None => Ok(()),
        }
    }
}
