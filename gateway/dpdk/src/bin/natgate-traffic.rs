//! The tester as a process of its own, on two DPDK ports: for tests and measurements of a
//! translator in another process.

use clap::{Parser, ValueEnum};
use natgate_io::Device;
use natgate_tester::{Load, Mix, Place, Report, Tester, process_time};
use serde_json::{Value, json};
use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

/// Longest packet of the tester.
const MTU: u16 = 1500;

/// Send UDP flows through a translator between two DPDK ports, and report what arrives
#[derive(Parser)]
#[command(after_help = "The translator has these addresses unless told otherwise: inside \
10.0.0.1/24 with a route to\nthe subscribers via 10.0.0.2, outside 192.0.2.1/24 with the gateway \
192.0.2.254.\n\n\
Example:\n\
natgate-traffic --inside net_memif0,role=client,socket=/run/in.sock \\\n  \
--outside net_memif1,role=client,socket=/run/out.sock --flows 1000000 --seconds 10")]
struct Args {
    /// Port that leads to the translator's inside: a virtual device with its arguments, or a name
    #[arg(long, value_name = "PORT")]
    inside: String,
    /// Port that leads to the translator's outside
    #[arg(long, value_name = "PORT")]
    outside: String,
    /// An argument for DPDK; may be repeated (default: the arguments for virtual devices)
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    eal: Option<Vec<String>>,
    /// Number of flows, each with its mapping
    #[arg(long, default_value_t = 1)]
    flows: u32,
    /// Length of a frame on the wire, bytes
    #[arg(long, default_value_t = 64)]
    frame: u16,
    /// Direction of the packets
    #[arg(long, value_enum, default_value_t = Way::Up)]
    way: Way,
    /// Packets a second (default: as many as the translator takes)
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Seconds of sending once every flow has its mapping
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Compare every byte that arrives with the expected byte
    #[arg(long)]
    check: bool,
    /// Process whose processor time is measured meanwhile
    #[arg(long, value_name = "ID")]
    process: Option<u32>,
    /// The translator's inside address
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(10, 0, 0, 1))]
    gateway_inside: Ipv4Addr,
    /// The translator's outside address
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(192, 0, 2, 1))]
    gateway_outside: Ipv4Addr,
    /// The tester's inside address
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(10, 0, 0, 2))]
    own_inside: Ipv4Addr,
    /// The tester's outside address
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(192, 0, 2, 254))]
    own_outside: Ipv4Addr,
    /// The first subscriber; each has 64 flows
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(100, 64, 0, 0))]
    subscribers: Ipv4Addr,
    /// The remote host
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(198, 51, 100, 1))]
    remote: Ipv4Addr,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    Up,
    Down,
    Both,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("natgate-traffic: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Value, Box<dyn Error>> {
    let place = Place {
        gateway: [args.gateway_inside, args.gateway_outside],
        own: [args.own_inside, args.own_outside],
        subscribers: args.subscribers,
        remote: args.remote,
        remotes: 1,
        flows: args.flows,
    };
    let load = Load {
        frames: Mix::of(args.frame)?,
        way: match args.way {
            Way::Up => natgate_tester::Way::Up,
            Way::Down => natgate_tester::Way::Down,
            Way::Both => natgate_tester::Way::Both,
        },
        rate: args.rate.map(|rate| rate as f64),
        duration: Duration::try_from_secs_f64(args.seconds)?,
        check: args.check,
    };
    let eal = natgate_dpdk::start(args.eal.as_deref(), MTU)?;
    let mut inside = eal.open(&args.inside, MTU, 1)?;
    let mut outside = eal.open(&args.outside, MTU, 1)?;
    let devices: [&mut dyn Device; 2] = [&mut inside[0], &mut outside[0]];
    let mut tester = Tester::new(place, devices)?;
    tester.meet()?;
    tester.establish(args.flows)?;
    let time = || args.process.map(process_time).transpose();
    let (before, mut after) = (time()?, Ok(None));
    let report = tester.run_beside(&load, || after = time())?;
    let spent = before.zip(after?).map(|(before, after)| after - before);
    Ok(object(&report, spent))
}

fn object(report: &Report, spent: Option<Duration>) -> Value {
    let seconds = report.elapsed.as_secs_f64();
    let rate = |seconds: f64| (report.received as f64 / seconds).round();
    let delay = &report.delay;
    let mut object = json!({
        "sent": report.sent,
        "received": report.received,
        "wrong": report.wrong,
        "seconds": seconds,
        "packets_per_second": rate(seconds),
        "delay_ns": {
            "p50": delay.percentile(0.5),
            "p99": delay.percentile(0.99),
            "p99.9": delay.percentile(0.999),
            "max": delay.most(),
        },
    });
    if let Some(time) = spent {
        object["process_seconds"] = time.as_secs_f64().into();
        object["packets_per_process_second"] = rate(time.as_secs_f64()).into();
    }
    object
}
