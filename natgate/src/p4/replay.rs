//! `natgate p4 replay`: runs captures through a program. The packets' timestamps are the program's
//! clock.
//!
//! The inside is the program's port 1, the outside port 2, as in `natgate p4 run`. A frame enters
//! as it was captured, with its link header, and is written as it leaves. If a capture is damaged,
//! the results of all packets before the damage are written before the command fails.

use super::subject::{ENTRIES_HELP, Subject};
use crate::Failure;
use crate::captures::{Captures, create};
use anyhow::Context;
use indicatif::ProgressBar;
use natgate_engine::Side;
use natgate_gateway::replay::{Flush, Input, Step};
use natgate_io::pcap::Writer;
use natgate_p4::{Counts, FIRST_PORT, Machine, Outcome};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Port 1 is the inside, port 2 the outside. The program gets the frames of the capture, and the
output has the frames that leave. --stats counts the frames that were received, sent, dropped by
the program, and sent to ports that do not exist (\"elsewhere\").";

const EXAMPLE: &str = "\
Example:
natgate p4 replay p4/nat.p4 --entries p4/nat.toml --in before.pcapng --out after.pcapng";

/// Take captures through a program
///
/// The program's time is that of the packets, nanoseconds since 1970. The same captures, program,
/// entries and seed give the same bytes.
#[derive(clap::Args)]
#[command(
    override_usage = "natgate p4 replay FILE --in FILE --out FILE [OPTIONS]\n       \
        natgate p4 replay FILE --inside FILE --outside FILE --out FILE [OPTIONS]",
    after_help = format!("{AFTER_HELP}\n\n{ENTRIES_HELP}\n\n{EXAMPLE}")
)]
pub(super) struct Args {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    captures: Captures,
    /// Messages to controllers, one JSON object a line
    #[arg(long, value_name = "FILE")]
    digests: Option<PathBuf>,
    /// Counts of frames by result, one JSON object
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Seed of all random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let written = [&args.digests, &args.stats].into_iter().flatten();
    args.captures.check_files(args.subject.files(), written.map(PathBuf::as_path))?;
    let compiled = args.subject.compile()?;
    let (machine, _) = args.subject.machine(&compiled, args.seed)?;
    let progress = ProgressBar::no_length();
    let (mut input, flush) = args.captures.open_input(&progress)?;
    let output = State::Fresh(Some(args.captures.create_output()?));
    let digests = args.digests.as_deref().map(create).transpose()?;
    let stats = args.stats.as_deref().map(create).transpose()?;
    let mut replay = Replay { machine, output, digests, counts: Counts::default(), now: 0 };
    let end = replay.run(&mut input, flush, &args.captures);
    progress.finish_and_clear();
    let finished = replay.begin(&input).and_then(|()| replay.flush());
    if let Some(mut stats) = stats {
        write_stats(&mut stats, &replay.counts).context("the counters cannot be written")?;
    }
    end.and(finished)
}

/// The output. Its first blocks need the interfaces, which are known only later.
enum State {
    Fresh(Option<BufWriter<File>>),
    /// The writer, and the interfaces' numbers: inside, outside.
    Begun(Writer<BufWriter<File>>, [u32; 2]),
}

struct Replay<'p> {
    machine: Machine<'p>,
    output: State,
    digests: Option<BufWriter<File>>,
    counts: Counts,
    /// Latest timestamp so far, nanoseconds since 1970.
    now: u64,
}

impl Replay<'_> {
    fn run(
        &mut self,
        input: &mut Input<impl Read>,
        flush: Flush,
        captures: &Captures,
    ) -> Result<(), Failure> {
        while let Some(step) = input.next_step().map_err(|error| captures.failure(error))? {
            self.begin(input)?;
            if let Step::Packet(arrival) = step {
                self.now = self.now.max(arrival.time.0);
                self.take(arrival.side, input.frame()).context(UNWRITTEN)?;
            }
            if flush == Flush::EachPacket {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the beginning of the output, unless it has been written.
    fn begin(&mut self, input: &Input<impl Read>) -> Result<(), Failure> {
        let State::Fresh(output) = &mut self.output else { return Ok(()) };
        let Some(output) = output.take() else { return Ok(()) };
        let [first, second] = input.interfaces();
        if first.1.link != second.1.link {
            let sentence = "the two sides have different link types, but frames leave a program as \
                            it made them; give captures of one link type";
            return Err(Failure::Input(vec![sentence.to_owned()]));
        }
        let number = |side| u32::from(second.0 == side);
        let numbers = [number(Side::Inside), number(Side::Outside)];
        let writer = Writer::new(output, &[first.1, second.1]).context(UNWRITTEN)?;
        self.output = State::Begun(writer, numbers);
        Ok(())
    }

    fn take(&mut self, side: Side, frame: &[u8]) -> io::Result<()> {
        let (now, port) = (Duration::from_nanos(self.now), FIRST_PORT + side as u32);
        self.counts.received += 1;
        match self.machine.process(now, port, frame) {
            Outcome::Dropped => self.counts.dropped += 1,
            Outcome::Sent { port, packet } => self.send(port, &packet)?,
        }
        while let Some((name, fields)) = self.machine.digest() {
            if let Some(digests) = &mut self.digests {
                let fields = fields.into_iter().map(|(name, value)| (name.into(), shown(value)));
                let fields: Map<String, Value> = fields.collect();
                let time = self.now as f64 / 1e9;
                writeln!(digests, "{}", json!({ "time": time, "digest": name, "fields": fields }))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, port: u32, packet: &[u8]) -> io::Result<()> {
        let State::Begun(writer, numbers) = &mut self.output else { return Ok(()) };
        match numbers.get(port.wrapping_sub(FIRST_PORT) as usize) {
            Some(interface) => {
                self.counts.sent += 1;
                writer.packet(*interface, self.now, &[], packet)
            }
            None => {
                self.counts.elsewhere += 1;
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if let Some(digests) = &mut self.digests {
            digests.flush().context("messages to controllers cannot be written")?;
        }
        match &mut self.output {
            State::Fresh(_) => Ok(()),
            State::Begun(writer, _) => Ok(writer.flush().context(UNWRITTEN)?),
        }
    }
}

const UNWRITTEN: &str = "what leaves the program cannot be written";

/// A number of up to 64 bits as a JSON number; a larger one as text.
fn shown(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| format!("{value:#x}").into(), Value::from)
}

fn write_stats(output: &mut impl Write, counts: &Counts) -> io::Result<()> {
    let Counts { received, sent, dropped, elsewhere, .. } = counts;
    let object = json!({
        "received": received, "sent": sent, "dropped": dropped, "elsewhere": elsewhere
    });
    writeln!(output, "{object:#}")?;
    output.flush()
}
