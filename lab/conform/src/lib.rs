//! A suite that tests the RFCs' requirements on a translator from outside, through its two links.
//!
//! The suite plays the hosts on both sides. It sends raw packets into one side, receives the
//! packets that come out of either side, and reports for each requirement if it is met, with the
//! packets as evidence. It needs no knowledge of the translator's inside. So it tests a device on a
//! desk ([`Live`]) as well as the program's own gateway in simulated time ([`Simulated`]), where
//! two hours pass at once.
//!
//! [`run`] runs the suite. `suite` has the requirements and their tests, by topic. [`Report`] is
//! the result, as text, JSON or a page of HTML. [`comparison`] compares several reports.
//!
//! Every test ends after a bounded time and a bounded number of packets. A report names every
//! requested requirement, tried or not.
//!
//! ```
//! use natgate_conform::{Options, Simulated, run, surround};
//!
//! let text = r#"
//! [inside]
//! device = "lan"
//! address = "10.0.0.1/8"
//! [outside]
//! device = "wan"
//! address = "192.0.2.2/30"
//! gateway = "192.0.2.1"
//! [[pool]]
//! addresses = ["203.0.113.0/28"]
//! "#;
//! let mut settings = natgate_control::config::parse(text, "natgate.toml").expect("it is right");
//! let setup = surround(&mut settings).expect("room for hosts");
//! let gateway = Simulated::new(&settings, [7; 32]).expect("it is right");
//! let options = Options { only: vec!["rfc4787#REQ-1".to_owned()], ..Options::default() };
//! let report = run(Box::new(gateway), setup, options, &mut |_| {}).expect("packets pass");
//! assert_eq!(report.items.len(), 1);
//! ```

#![forbid(unsafe_code)]

mod bench;
mod catalogue;
mod families;
mod flow;
mod hosts;
mod hosts6;
mod live;
mod packet;
mod packet6;
mod report;
mod schedule;
mod setup;
mod simulated;
mod stage;
mod suite;
mod surroundings;

pub use bench::Bench;
pub use catalogue::{Requirement, requirements};
pub use live::{Live, LiveError};
pub use report::{Count, Item, Report, Verdict, comparison};
pub use setup::{Families, Hosts, Options, Setup, Siit, Timers};
pub use simulated::Simulated;
pub use surroundings::{NoPlace, surround};

use packet::Packet;
use stage::{Stage, World};
use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;
use suite::{Kind, Trial};

/// Number of attempts for the first packet and for the ARP request to the inside address.
const TRIES: u32 = 5;

/// Longest time of each attempt.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reason why no test could run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// A side has too few hosts.
    #[error("the {side} has {count} host addresses; give it at least {}", Hosts::FEWEST)]
    FewHosts {
        /// Name of the side.
        side: &'static str,
        /// Number of its host addresses.
        count: usize,
    },
    /// No host answers for the inside address.
    #[error(
        "nobody on the inside answers ARP for {0}; is the translator there, is that its inside \
         address, and is it the inside's device?"
    )]
    NoGateway(Ipv4Addr),
    /// No host answers for the IPv6 address on the inside.
    #[error(
        "nobody on the inside answers a neighbor solicitation for {0}; is that the translator's \
         IPv6 address there?"
    )]
    NoGateway6(Ipv6Addr),
    /// Packets from inside do not come out.
    #[error(
        "a UDP datagram from {from} on the inside to {to} did not come out on the outside; does \
         the translator translate {from}, and has it a route to {to}?"
    )]
    NothingPasses {
        /// Inside host that sent the packet.
        from: SocketAddrV4,
        /// Outside host that should receive the packet.
        to: SocketAddrV4,
    },
}

/// Every requirement, in order, with the time that its test waits for timers; `None` if the
/// requirement is not visible from outside.
pub fn catalogue(options: &Options) -> Vec<(&'static Requirement, Option<Duration>)> {
    let needs = |one: &Requirement| suite::find(&one.id).map(|trial| trial.needs(options));
    requirements().map(|one| (one, needs(one))).collect()
}

/// Tries the requested requirements; reports each result as soon as it is known.
///
/// # Errors
/// [`Unreachable`] if no packet passes the translator, so that no statement is possible.
pub fn run(
    bench: Box<dyn Bench>,
    setup: Setup,
    options: Options,
    observer: &mut dyn FnMut(&Item),
) -> Result<Report, Unreachable> {
    for (side, hosts) in [("inside", setup.inside_hosts), ("outside", setup.outside_hosts)] {
        if hosts.count() < Hosts::FEWEST {
            return Err(Unreachable::FewHosts { side, count: hosts.count() });
        }
    }
    let world = Rc::new(RefCell::new(World::new(bench, setup, options.clone())));
    let begin = world.borrow().bench.now();
    schedule::run_alone(&world, meet(&world))?;

    let wanted = |trial: &&Trial| trial.requirements.iter().any(|one| options.wants(one));
    let patient = |trial: &&Trial| trial.needs(&options) <= options.patience;
    let (trials, left_out): (Vec<_>, Vec<_>) = suite::trials().filter(wanted).partition(patient);
    let mut items = schedule::run_all(&world, trials, observer);
    for trial in left_out {
        items.extend(
            trial.requirements.iter().map(|one| Item::left_out(one, trial.needs(&options))),
        );
    }
    let unseen = requirements().filter(|one| suite::find(&one.id).is_none());
    items.extend(unseen.map(|one| Item::unseen(one, suite::why_unseen(&one.id))));
    items.retain(|item| options.wants(&item.id));
    items.sort_by_key(|item| catalogue::rank(&item.id));

    let world = world.borrow();
    Ok(Report {
        natgate: env!("CARGO_PKG_VERSION").to_owned(),
        subject: String::new(),
        seconds: (world.bench.now() - begin).as_secs_f64(),
        external: world.externals.clone(),
        items,
    })
}

/// Finds the translator on both sides.
async fn meet(world: &Rc<RefCell<World>>) -> Result<(), Unreachable> {
    use natgate_engine::Side;
    let stage = Stage::lease(world).expect("there are hosts enough");
    let gateway = stage.setup().inside_gateway;
    let mut found = None;
    for _ in 0..TRIES {
        hosts::Hosts::ask(&mut *world.borrow_mut().bench, Side::Inside, stage.inside(0), gateway);
        let end = stage.now() + PATIENCE;
        while found.is_none() && stage.now() < end {
            stage.rest(PATIENCE / 20).await;
            found = world.borrow().hosts.found(Side::Inside, gateway);
        }
        if found.is_some() {
            break;
        }
    }
    let mac = found.ok_or(Unreachable::NoGateway(gateway))?;
    world.borrow_mut().hosts.set_translator(Side::Inside, mac);
    let (from, to) = (stage.near(0), stage.far(0));
    for _ in 0..TRIES {
        stage.send(Side::Inside, &Packet::udp(from, to, b"natgate conform"));
        let end = stage.now() + PATIENCE;
        if let Some(came) = stage.take_until(end, (Side::Outside, *to.ip()), |_| true).await {
            stage.note_external(*came.source().ip());
            meet6(world, &stage).await?;
            stage.finish();
            return Ok(());
        }
    }
    Err(Unreachable::NothingPasses { from, to })
}

/// Finds the translator's IPv6 address on the inside, if it has one.
async fn meet6(world: &Rc<RefCell<World>>, stage: &Stage) -> Result<(), Unreachable> {
    let Some(families) = stage.setup().families else { return Ok(()) };
    let gateway = families.gateway;
    for _ in 0..TRIES {
        let sender = families.host(stage.inside(0));
        hosts6::Hosts6::ask(&mut *world.borrow_mut().bench, sender, gateway);
        let end = stage.now() + PATIENCE;
        while stage.now() < end {
            stage.rest(PATIENCE / 20).await;
            if world.borrow().hosts.six.found(gateway).is_some() {
                return Ok(());
            }
        }
    }
    Err(Unreachable::NoGateway6(gateway))
}

impl Trial {
    /// Longest wait of the test for timers.
    fn needs(&self, options: &Options) -> Duration {
        match self.kind {
            Kind::Timed(needs, _) => needs(&options.timers),
            Kind::Quick(_) | Kind::Alone(_) => Duration::ZERO,
        }
    }
}
