//! `natgate import`: reads another translator's configuration and writes natgate's.
//!
//! The crate natgate-import reads and writes. This file has the arguments, the streams and the exit
//! codes. At the end it reads the result as `natgate run` would.

use crate::Failure;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use natgate_cli::print;
use natgate_control::config;
use natgate_import::{Format, Grade, Hints, ImportError, Imported, MOST_BYTES, Remark, import};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
FILE is the output of one of these commands, as root, or a file:
  iptables-save                  tables of iptables; tables of ip6tables are not read
  nft list ruleset               text, or JSON with -j; its remarks count objects instead of lines
  VPP's startup commands         lines such as `nat44 add address 203.0.113.1`,
                                 `set nat timeout udp 300`, `map add domain ...`
                                 and `dslite add pool address 203.0.113.1`
  Jool's JSON                    the file of `jool file handle`: pool4, bib, global, eamt,
                                 denylist4; of jool and of jool_siit
  Jool's commands                a script with lines such as `jool pool4 add --tcp 203.0.113.1`
                                 and `jool_siit eamt add 192.0.2.0/24 2001:db8::/120`
  tayga.conf                     tayga's file
  Snabb's lwAFTR                 softwire-config with its binding-table; of all versions

Standard output has natgate's configuration. A comment in it names each line of the input that it
comes from. Standard error has a sentence with the reason for each line that natgate treats
differently, or that has no equivalent.

Named sets and maps of nftables are expanded. Drops of FORWARD become rules of kind drop. A line is
lost if, without it, other hosts are translated or pass than before.

Jool's NAT64 becomes [nat64] with a pool, and its SIIT becomes [siit] with [[siit.map]]. Fixed
endpoints of IPv6 hosts (bib) and exceptions (denylist4) are lost. tayga's prefix and maps become
[siit]; without maps, its dynamic pool becomes a pool of [nat64], whose hosts share the addresses.

The softwires of Snabb, and VPP's MAP domains with one rule for each customer, become [lw4o6] and a
file of bindings. --bindings names this file; without it, it is bindings.csv beside the file of -o.
VPP's other MAP domains become [[map]], and its AFTR becomes [dslite]. Snabb's br counts relays from
1; in a file with a br 0, it counts from 0.

The exit code is 0 if natgate accepts the resulting configuration. It is 1 if natgate does not
accept it yet (the sentences tell why), if a line is lost, or if something has no equivalent and
--strict is given. It is 2 if FILE does not have its format.

With --json, standard output has one object:
  {\"config\": \"...\", \"bindings\": null or \"...\", \"accepted\": true, \"errors\": [...],
   \"remarks\": [{\"line\", \"text\", \"grade\": \"differs\", \"no_equivalent\" or \"lost\",
   \"message\"}]}

Examples:
iptables-save | natgate import - -o natgate.toml
natgate import ruleset.nft --inside eth1 --outside eth0 --external 203.0.113.1
natgate import --from vpp startup.conf --json
natgate import tayga.conf --inside eth1 --outside eth0
natgate import lwaftr.conf -o natgate.toml --bindings bindings.csv";

/// Read the configuration of iptables, nftables, VPP, Jool, tayga or Snabb as natgate's
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
    /// Write the bindings of [lw4o6] to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    bindings: Option<PathBuf>,
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
    /// softwire-config of Snabb's lwAFTR
    Snabb,
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
        From::Snabb => Format::Snabb,
    });
    let (inside, outside) = (args.inside.clone(), args.outside.clone());
    let place = bindings_place(args).context("the folder of --bindings")?;
    let bindings = place.as_ref().map(|(_, name)| name.clone());
    let hints = Hints { inside, outside, external: args.external.clone(), bindings };
    let imported = import(&text, format, &hints).map_err(|error| match error {
        ImportError::Malformed { line, message } => {
            Failure::Input(vec![format!("{name}:{line}: {message}")])
        }
        error @ ImportError::External(_) => Failure::Input(vec![format!("--external: {error}")]),
        error => input(error.to_string()),
    })?;
    let shown = args.output.as_deref().map(Path::display);
    let shown = shown.map_or_else(|| "what came of it".to_owned(), |path| path.to_string());
    if imported.bindings.is_some() && place.is_none() && !args.json {
        return Err(input(
            "has customers for a file of bindings; give its name with --bindings, or -o for both"
                .to_owned(),
        ));
    }
    let problems = problems(&imported, &shown);
    let count = |grade| imported.remarks.iter().filter(|remark| remark.grade == grade).count();
    let (without, lost) = (count(Grade::Without), count(Grade::Lost));
    write(args, &imported, place.map(|(path, _)| path), &problems)?;
    if !args.json {
        for remark in &imported.remarks {
            eprintln!("{}", sentence(&name, remark));
        }
        problems.iter().for_each(|problem| eprintln!("natgate: {problem}"));
    }
    verdict(args.strict, problems.len(), without, lost)
}

/// The exit code, and its sentence.
fn verdict(strict: bool, problems: usize, without: usize, lost: usize) -> Result<(), Failure> {
    if problems > 0 {
        let what = "natgate does not accept what came of it yet";
        let count = if problems == 1 { "1 problem" } else { &format!("{problems} problems") };
        return Err(Failure::Runtime(anyhow!("{what} ({count}); edit it, then natgate check")));
    }
    if lost > 0 {
        let lines = if lost == 1 { "line is lost" } else { "lines are lost" };
        return Err(Failure::Runtime(anyhow!(
            "{lost} {lines} on which it depends which hosts are translated or pass; edit what \
             came of it"
        )));
    }
    if strict && without > 0 {
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

/// The path of the file of bindings, and its name in the configuration.
fn bindings_place(args: &Args) -> io::Result<Option<(PathBuf, String)>> {
    let Some(path) = &args.bindings else {
        let beside = |output: &PathBuf| output.with_file_name("bindings.csv");
        return Ok(args.output.as_ref().map(|output| (beside(output), "bindings.csv".to_owned())));
    };
    // A relative name starts in the folder of the configuration.
    let is_beside = args.output.as_ref().is_some_and(|output| output.parent() == path.parent());
    let name = match path.file_name() {
        Some(name) if is_beside => PathBuf::from(name),
        _ => std::path::absolute(path)?,
    };
    Ok(Some((path.clone(), name.display().to_string())))
}

/// The problems that natgate has with the result.
fn problems(imported: &Imported, shown: &str) -> Vec<config::Problem> {
    let mut problems = config::read_text(&imported.config, shown).err().unwrap_or_default();
    if let Some(text) = &imported.bindings {
        let refused = config::parse_bindings(text, "bindings", Ipv6Addr::UNSPECIFIED).err();
        problems.extend(refused.unwrap_or_default());
    }
    problems
}

/// Writes a file that must not exist yet.
fn create(path: &Path, text: &str) -> anyhow::Result<()> {
    let there = || match path.exists() {
        true => format!("{} exists already; choose another name", path.display()),
        false => format!("{} cannot be written", path.display()),
    };
    let mut file = File::options().write(true).create_new(true).open(path).with_context(there)?;
    if let Err(error) = file.write_all(text.as_bytes()) {
        // Half a file must not stay on disk.
        let _ = fs::remove_file(path);
        let what = format!("{} cannot be written", path.display());
        return Err(anyhow::Error::from(error).context(what));
    }
    Ok(())
}

fn write(
    args: &Args,
    imported: &Imported,
    place: Option<PathBuf>,
    problems: &[config::Problem],
) -> anyhow::Result<()> {
    let Imported { config, bindings, remarks } = imported;
    let mut text = config.clone();
    let written = place.zip(bindings.as_ref());
    if let Some((path, bindings)) = &written {
        create(path, bindings)?;
    }
    if let Some(path) = &args.output {
        if let Err(error) = create(path, config) {
            // The bindings belong to this configuration.
            if let Some((path, _)) = &written {
                let _ = fs::remove_file(path);
            }
            return Err(error);
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
            "bindings": bindings,
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
