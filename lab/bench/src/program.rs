//! The running NAT in P4, and the table entries of a controller.

use natgate_p4::{Key, Machine, Program, compile, programs};
use natgate_wire::arp::Mac;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Longer than any measurement.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(7200);

/// Executor of the NAT in P4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum With {
    /// Rust generated from the program.
    Rust,
    /// The interpreter.
    Interpreter,
    /// DPDK's SWX pipeline.
    Swx,
}

impl With {
    /// All executors of this program.
    pub fn all() -> impl Iterator<Item = Self> {
        let swx = cfg!(feature = "dpdk").then_some(Self::Swx);
        [Self::Rust, Self::Interpreter].into_iter().chain(swx)
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rust => "P4 as Rust",
            Self::Interpreter => "P4 interpreted",
            Self::Swx => "P4 by SWX",
        }
    }
}

/// The compiled program.
pub(crate) fn nat() -> Program {
    let text = programs::text("nat").expect("the NAT is compiled with natgate");
    compile("nat.p4", text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

/// The running program without entries.
pub(crate) fn machine(program: &Program, with: With) -> Machine<'_> {
    match with {
        With::Interpreter => Machine::new(program, 1),
        With::Rust => {
            let made = programs::compiled(program, 1);
            Machine::with(program, made.expect("the NAT is compiled with natgate"))
        }
        With::Swx => Machine::with(program, swx::pipeline(program)),
    }
}

/// Prepares `cores` cores that each run the program.
pub(crate) fn prepare(cores: u16) {
    swx::reserve(&nat(), cores);
}

/// Puts an entry into a table.
///
/// # Panics
///
/// If the table refuses the entry.
pub(crate) fn add(
    machine: &mut Machine<'_>,
    table: &str,
    keys: &[Key],
    action: &str,
    args: &[u128],
) {
    let added = machine.insert(table, keys, action, args, 0);
    added.unwrap_or_else(|error| panic!("the laboratory's entries: {error}"));
}

/// Addresses of a forwarder and its neighbors, `[inside, outside]`. The inside is port 1, the
/// outside port 2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// Hardware addresses of the forwarder.
    pub(crate) macs: [Mac; 2],
    /// Addresses of the next hops.
    pub(crate) next_hops: [(Ipv4Addr, Mac); 2],
    /// Network behind the inside's next hop, and its prefix length.
    pub(crate) inside: (Ipv4Addr, u32),
}

impl Links {
    /// Fills the tables with interfaces, routes, next hops and timeouts.
    pub(crate) fn fill(&self, machine: &mut Machine<'_>) {
        let hops = self.next_hops.map(|(address, _)| u128::from(address.to_bits()));
        for (side, (role, port)) in [("inside", 1), ("outside", 2)].into_iter().enumerate() {
            let [own, next] = [self.macs[side], self.next_hops[side].1].map(number);
            add(machine, "interfaces", &[Key::Exact(port)], role, &[own]);
            let keys = [Key::Exact(port), Key::Exact(hops[side])];
            add(machine, "next_hops", &keys, "neighbor", &[own, next]);
        }
        let (address, length) = self.inside;
        let inside = Key::Prefix(address.to_bits().into(), length);
        add(machine, "routes", &[inside], "via", &[hops[0], 1]);
        add(machine, "routes", &[Key::Prefix(0, 0)], "via", &[hops[1], 2]);
        for profile in 0..5 {
            machine.set_profile(profile, TIMEOUT);
        }
    }
}

/// A hardware address as a number of P4.
pub(crate) fn number(mac: Mac) -> u128 {
    mac.0.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

#[cfg(feature = "dpdk")]
mod swx {
    use natgate_dpdk::Swx;
    use natgate_p4::rt::Execute;
    use natgate_p4::{Program, swx};

    fn compiled(program: &Program) -> swx::Pipeline {
        program.swx().unwrap_or_else(|error| panic!("{}", error.rendered()))
    }

    pub(super) fn pipeline(program: &Program) -> Box<dyn Execute> {
        let made = Swx::new(&compiled(program), 1);
        Box::new(made.unwrap_or_else(|error| panic!("the NAT by SWX: {error}")))
    }

    pub(super) fn reserve(program: &Program, pipelines: u16) {
        let reserved = Swx::reserve(&compiled(program), pipelines, 1);
        reserved.unwrap_or_else(|error| panic!("the NAT by SWX: {error}"));
    }
}

#[cfg(not(feature = "dpdk"))]
mod swx {
    use natgate_p4::Program;
    use natgate_p4::rt::Execute;

    pub(super) fn pipeline(_: &Program) -> Box<dyn Execute> {
        unreachable!("a laboratory without DPDK does not ask for its pipelines")
    }

    pub(super) fn reserve(_: &Program, _: u16) {}
}
