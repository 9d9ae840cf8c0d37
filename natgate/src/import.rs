//! `natgate import`: reads another translator's configuration and writes natgate's.
//!
//! The crate natgate-import reads and writes. This file has the arguments, the streams and the exit
//! codes. At the end it reads the result as `natgate run` would.

use crate::Failure;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use natgate_cli::print;
use natgate_control::config;
use natgate_import::{Format, Grade, Hints, ImportError, MOST_BYTES, Remark, import};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
FILE is the output of one of these commands, as root, or a file:
  iptables-save                  tables of iptables; tables of ip6tables are not read
  nft list ruleset               text, or JSON with -j; its remarks count objects instead of lines
  VPP's startup commands         lines such as `nat44 add address 203.0.113.1`
                                 and `set nat timeout udp 300`
  Jool's JSON                    the file of `jool file handle`: pool4, bib, global, eamt,
                                 denylist4; of jool and of jool_siit
  Jool's commands                a script with lines such as `jool pool4 add --tcp 203.0.113.1`
                                 and `jool_siit eamt add 192.0.2.0/24 2001:db8::/120`
  tayga.conf                     tayga's file

Standard output has natgate's configuration. A comment in it names each line of the input that it
comes from. Standard error has a sentence with the reason for each line that natgate treats
differently, or that has no equivalent.

Named sets and maps of nftables are expanded. Drops of FORWARD become rules of kind drop. A line is
lost if, without it, other hosts are translated or pass than before.

Jool's NAT64 becomes [nat64] with a pool, and its SIIT becomes [siit] with [[siit.map]]. Fixed
endpoints of IPv6 hosts (bib) and exceptions (denylist4) are lost. tayga's prefix and maps become
[siit]; without maps, its dynamic pool becomes a pool of [nat64], whose hosts share the addresses.

The exit code is 0 if natgate accepts the resulting configuration. It is 1 if natgate does not
accept it yet (the sentences tell why), if a line is lost, or if something has no equivalent and
--strict is given. It is 2 if FILE does not have its format.

With --json, standard output has one object:
  {\"config\": \"...\", \"accepted\": true, \"errors\": [...], \"remarks\": [{\"line\", \"text\",
   \"grade\": \"differs\", \"no_equivalent\" or \"lost\", \"message\"}]}

Examples:
iptables-save | natgate import - -o natgate.toml
natgate import ruleset.nft --inside eth1 --outside eth0 --external 203.0.113.1
natgate import --from vpp startup.conf --json
natgate import tayga.conf --inside eth1 --outside eth0";

/// Read the rules of iptables, nftables, VPP, Jool or tayga as a configuration
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The file; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the file [default: guessed]
    #[arg(long, value_enum, value_name = "PROGRAM")]
    from: Option<From>,
    /// Device of the inside, if the file names none
    #[arg(long, value_name = "DEVICE")]
    inside: Option<String>,
    /// Device of the outside, if the file names none
    #[arg(long, value_name = "DEVICE")]
    outside: Option<String>,
    /// External address, range or prefix, if the file means the address of the device
    #[arg(long, value_name = "ADDRESS")]
    external: Option<String>,
    /// Write the configuration to this file, which must not exist yet
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Fail if anything has no equivalent
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    /// iptables-save
    Iptables,
    /// nft list ruleset, as text or JSON
    Nft,
    /// VPP's command line
    Vpp,
    /// Jool's JSON, or a script of its commands
    Jool,
    /// tayga.conf
    Tayga,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let input = |message: String| Failure::Input(vec![format!("{name}: {message}")]);
    let text = read(&args.file).map_err(input)?;
    let format = args.from.map(|from| match from {
        From::Iptables => Format::Iptables,
        From::Nft => Format::Nft,
        From::Vpp => Format::Vpp,
        From::Jool => Format::Jool,
        From::Tayga => Format::Tayga,
    });
    let (inside, outside) = (args.inside.clone(), args.outside.clone());
    let hints = Hints { inside, outside, external: args.external.clone() };
    let imported = import(&text, format, &hints).map_err(|error| match error {
        ImportError::Malformed { line, message } => {
            Failure::Input(vec![format!("{name}:{line}: {message}")])
        }
        error @ ImportError::External(_) => Failure::Input(vec![format!("--external: {error}")]),
        error => input(error.to_string()),
    })?;
    let shown = args.output.as_deref().map(Path::display);
    let shown = shown.map_or_else(|| "what came of it".to_owned(), |path| path.to_string());
    let problems = match config::read_text(&imported.config, &shown) {
        Ok(_) => Vec::new(),
        Err(problems) => problems,
    };
    let count = |grade| imported.remarks.iter().filter(|remark| remark.grade == grade).count();
    let (without, lost) = (count(Grade::Without), count(Grade::Lost));
    write(args, &imported.config, &imported.remarks, &problems)?;
    if !args.json {
        for remark in &imported.remarks {
            eprintln!("{}", sentence(&name, remark));
        }
        problems.iter().for_each(|problem| eprintln!("natgate: {problem}"));
    }
    if !problems.is_empty() {
        let count = problems.len();
        let what = "natgate does not accept what came of it yet";
        return Err(Failure::Runtime(anyhow!(
            "{what} ({count} problems); edit it, then natgate check"
        )));
    }
    if lost > 0 {
        let lines = if lost == 1 { "line is lost" } else { "lines are lost" };
        return Err(Failure::Runtime(anyhow!(
            "{lost} {lines} on which it depends which hosts are translated or pass; edit what \
             came of it"
        )));
    }
    if args.strict && without > 0 {
        return Err(Failure::Runtime(anyhow!(
            "{without} lines have no equivalent, and --strict is given"
        )));
    }
    Ok(())
}

/// Reads the file, or standard input.
fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let most = MOST_BYTES as u64 + 1;
    let count = match path == Path::new("-") {
        true => io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    count.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file; `-` reads standard input".to_owned(),
        io::ErrorKind::PermissionDenied => format!("it cannot be read: {error}; run as its owner"),
        _ => format!("it cannot be read: {error}"),
    })?;
    if bytes.len() > MOST_BYTES {
        return Err(format!("has more than {} MiB; is it the right file?", MOST_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        format!("byte {offset} is no text (UTF-8); it should be what the program prints")
    })
}

fn write(
    args: &Args,
    config: &str,
    remarks: &[Remark],
    problems: &[config::Problem],
) -> anyhow::Result<()> {
    let mut text = config.to_owned();
    if let Some(path) = &args.output {
        let there = || match path.exists() {
            true => format!("{} exists already; choose another name", path.display()),
            false => format!("{} cannot be written", path.display()),
        };
        let mut file =
            File::options().write(true).create_new(true).open(path).with_context(there)?;
        if let Err(error) = file.write_all(config.as_bytes()) {
            // Half a configuration must not stay on disk.
            let _ = fs::remove_file(path);
            return Err(
                anyhow::Error::from(error).context(format!("{} cannot be written", path.display()))
            );
        }
        text.clear();
    }
    if args.json {
        let grade = |remark: &Remark| match remark.grade {
            Grade::Differs => "differs",
            Grade::Without => "no_equivalent",
            Grade::Lost => "lost",
        };
        let remark = |one: &Remark| {
            json!({
                "line": one.line,
                "text": one.text,
                "grade": grade(one),
                "message": one.message,
            })
        };
        let answer = json!({
            "config": config,
            "accepted": problems.is_empty(),
            "errors": problems,
            "remarks": remarks.iter().map(remark).collect::<Vec<_>>(),
        });
        text = format!("{answer}\n");
    }
    print(&text)
}

fn sentence(name: &str, remark: &Remark) -> String {
    let Remark { line, text, grade, message } = remark;
    let what = match grade {
        Grade::Differs => "differs",
        Grade::Without => "no equivalent",
        Grade::Lost => "lost",
    };
    match line {
        0 => format!("{name}: {what}: {message}"),
        line => format!("{name}:{line}: {what}: `{text}` {message}"),
    }
}
