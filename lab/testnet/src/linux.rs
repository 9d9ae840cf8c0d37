//! A Linux guest for the emulator: Debian's kernel, and an initial file system with busybox,
//! modules, programs of this machine and a script.
//!
//! Kernel and busybox come from Debian's packages, which are unpacked beside the run and not
//! installed. Programs are the machine's own, with their shared libraries.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{Guest, Machine};
use crate::network::Network;

/// Prefix of the names of kernel packages.
const KERNEL: &str = "linux-image-";
const BUSYBOX: &str = "busybox-static";

/// Command line of the kernel. The emulator does not have the processor's faults, and their
/// mitigations cost time.
const OPTIONS: &str = "console=ttyS0 quiet panic=-1 mitigations=off";

/// First output of [`COMMANDS`].
const READY: &str = "the guest is running";

/// End of a script that executes lines from the serial port, and reports each.
const COMMANDS: &str = "echo the guest is running
count=0
while read -r line; do
    count=$((count + 1))
    eval \"$line\"
    echo \"exit code $? of command $count.\"
done
";

/// A guest that is being made, in a folder of its own.
#[derive(Debug)]
pub struct LinuxGuest {
    /// Release of the kernel.
    pub version: String,
    /// File of the kernel.
    pub kernel: PathBuf,
    busybox: PathBuf,
    /// The initial file system.
    root: PathBuf,
    modules: Modules,
}

impl LinuxGuest {
    /// Fetches those packages of the guest that are not in the folder `packages`. `flavour` is that
    /// of Debian's kernel, such as `cloud-amd64`.
    ///
    /// # Errors
    /// A package cannot be fetched.
    pub fn fetch(packages: &Path, flavour: &str) -> io::Result<()> {
        fs::create_dir_all(packages)?;
        if kernel_package(packages, flavour).is_err() {
            fetch(packages, &current_kernel(flavour)?)?;
        }
        if busybox_package(packages).is_err() {
            fetch(packages, BUSYBOX)?;
        }
        Ok(())
    }

    /// Unpacks kernel and busybox from the folder `packages` into a new folder.
    ///
    /// # Errors
    /// A package is not there or cannot be unpacked, or has compressed modules other than xz.
    pub fn unpack(packages: &Path, folder: &Path, flavour: &str) -> io::Result<Self> {
        let unpacked = folder.join("unpacked");
        fs::create_dir_all(&unpacked)?;
        for package in [kernel_package(packages, flavour)?, busybox_package(packages)?] {
            run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked))?;
        }
        let kernel = find(&unpacked.join("boot"), "vmlinuz-")?;
        let version = name(&kernel).replacen("vmlinuz-", "", 1);
        let busybox = in_usr(&unpacked, "bin/busybox");
        let root = folder.join("root");
        for folder in ["bin", "proc", "sys", "modules"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::copy(&busybox, root.join("bin/busybox"))?;
        let modules = Modules::find(&in_usr(&unpacked, "lib/modules").join(&version))?;
        Ok(Self { version, kernel, busybox, root, modules })
    }

    /// Adds modules of the kernel, and those that they need. Returns the lines of a script that
    /// load them.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn add_modules(&self, modules: &[&str]) -> io::Result<String> {
        let mut files = Vec::new();
        for module in modules {
            self.modules.add(module, &mut files)?;
        }
        let mut load = String::new();
        for file in &files {
            fs::copy(file, self.root.join("modules").join(name(file)))?;
            load += &format!("/bin/busybox insmod /modules/{}\n", name(file));
        }
        Ok(load)
    }

    /// Adds a program of this machine by its name.
    ///
    /// # Errors
    /// The program is not in `PATH`, or cannot be copied.
    pub fn add_tool(&self, program: &str) -> io::Result<()> {
        self.add_program(&find_program(program)?, &format!("bin/{program}"))
    }

    /// Adds a program and its shared libraries. It removes debug symbols, because the guest's
    /// memory may be too small for them.
    ///
    /// # Errors
    /// The program cannot be copied.
    pub fn add_program(&self, program: &Path, place: &str) -> io::Result<()> {
        let file = self.root.join(place);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        run(Command::new("strip").arg("-o").arg(file).arg(program))?;
        let libraries = run(Command::new("ldd").arg(program))?;
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let copy = self.root.join(&library[1..]);
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(library, copy)?;
        }
        Ok(())
    }

    /// Writes the script that the kernel starts, for busybox's shell.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_script(&self, script: &str) -> io::Result<()> {
        let file = self.root.join("init");
        fs::write(&file, format!("#!/bin/busybox sh\n{script}"))?;
        run(Command::new("chmod").arg("755").arg(&file)).map(drop)
    }

    /// Packs the file system for the kernel.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn pack(&self, file: &Path) -> io::Result<()> {
        const SCRIPT: &str = "\"$0\" find . | \"$0\" cpio -o -H newc >\"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(&self.busybox).arg(file).current_dir(&self.root);
        run(&mut command).map(drop)
    }

    /// Boots the guest in place of a node with the cables of a gateway. The guest runs the script
    /// and then waits for commands.
    ///
    /// # Errors
    /// Output of the guest if it ends, or takes too long.
    pub fn start(&self, network: &Network, node: &str, script: &str) -> io::Result<LinuxMachine> {
        self.set_script(&format!("{script}{COMMANDS}"))?;
        let file = self.root.with_extension("cpio");
        self.pack(&file)?;
        Machine::lay_taps_in(network, node, 1)?;
        let guest = Guest { node, ..Guest::new(&self.kernel, &file, OPTIONS) };
        let mut machine = Machine::boot(network, &guest)?;
        machine.wait_for_words(READY)?;
        Ok(LinuxMachine { machine, executed: 0 })
    }
}

/// A running Linux guest that executes commands.
#[derive(Debug)]
pub struct LinuxMachine {
    machine: Machine,
    /// Number of executed commands.
    executed: usize,
}

impl LinuxMachine {
    /// Executes a line of the shell to its end.
    ///
    /// # Errors
    /// Output of the guest if the exit code is not 0, or if the command takes too long.
    pub fn run(&mut self, command: &str) -> io::Result<()> {
        self.machine.write_line(command)?;
        self.executed += 1;
        let end = format!(" of command {}.", self.executed);
        self.machine.wait_for_words(&end)?;
        let log = self.machine.log();
        if log.contains(&format!("exit code 0{end}")) {
            return Ok(());
        }
        Err(io::Error::other(format!("{command}: failed: {log}")))
    }
}

fn kernel_package(packages: &Path, flavour: &str) -> io::Result<PathBuf> {
    let there = entries(packages)?.into_iter().find(|file| is_kernel(name(file), flavour));
    there.ok_or_else(|| {
        io::Error::other(format!("{}: no {KERNEL}*-{flavour} there", packages.display()))
    })
}

fn busybox_package(packages: &Path) -> io::Result<PathBuf> {
    find(packages, BUSYBOX)
}

/// Name of the current kernel's package, on which Debian's package of the flavor depends.
fn current_kernel(flavour: &str) -> io::Result<String> {
    let any = format!("{KERNEL}{flavour}");
    let depends = run(Command::new("apt-cache").args(["depends", "--important", &any]))?;
    let package = depends
        .split_whitespace()
        .find(|word| word.starts_with(KERNEL) && *word != any && !word.contains(['<', '|']));
    package.map(str::to_owned).ok_or_else(|| {
        io::Error::other(format!("no package {any} is known; as root: apt-get update"))
    })
}

fn fetch(packages: &Path, package: &str) -> io::Result<()> {
    run(Command::new("apt-get").args(["download", "--quiet", package]).current_dir(packages))
        .map(drop)
}

/// Place of a file in unpacked packages: newer ones have all below `usr`.
fn in_usr(unpacked: &Path, file: &str) -> PathBuf {
    let former = unpacked.join(file);
    if former.exists() { former } else { unpacked.join("usr").join(file) }
}

/// Returns true if a package's file is a kernel of this flavor:
/// `linux-image-6.1.0-56-cloud-amd64_6.1...deb`, or since Debian 13
/// `linux-image-6.12.48+deb13-cloud-amd64_6.12...deb`.
fn is_kernel(file: &str, flavour: &str) -> bool {
    let package = file.split('_').next().and_then(|package| package.strip_prefix(KERNEL));
    let release = package.and_then(|rest| rest.strip_suffix(flavour));
    let release = release.and_then(|release| release.strip_suffix('-'));
    let is_number = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
    release.is_some_and(|release| release.split('-').all(is_number))
}

/// Loadable modules of the kernel, by their names in the kernel's spelling. A file that is not
/// there exists compressed, with the ending `.xz`.
#[derive(Debug)]
struct Modules(BTreeMap<String, PathBuf>);

impl Modules {
    fn find(folder: &Path) -> io::Result<Self> {
        let mut modules = BTreeMap::new();
        let mut folders = vec![folder.join("kernel")];
        while let Some(folder) = folders.pop() {
            for path in entries(&folder)? {
                if path.is_dir() {
                    folders.push(path);
                } else if let Some((module, ending)) = name(&path).split_once(".ko") {
                    let file = match ending {
                        "" => path.clone(),
                        ".xz" => path.with_extension(""),
                        _ => return Err(io::Error::other(compressed(&path))),
                    };
                    modules.insert(module.replace('-', "_"), file);
                }
            }
        }
        Ok(Self(modules))
    }

    /// Adds the files of a module and of the modules that it needs, in the order of loading. A
    /// missing module may be built into the kernel; otherwise the guest reports the missing part.
    fn add(&self, module: &str, files: &mut Vec<PathBuf>) -> io::Result<()> {
        let Some(path) = self.0.get(module).filter(|path| !files.contains(path)) else {
            return Ok(());
        };
        if !path.exists() {
            run(Command::new("xz").arg("--decompress").arg(path.with_extension("ko.xz")))?;
        }
        for needed in needed(&fs::read(path)?) {
            self.add(&needed, files)?;
        }
        files.push(path.clone());
        Ok(())
    }
}

fn compressed(module: &Path) -> String {
    format!("{}: modules of a kernel have to be uncompressed, or xz", module.display())
}

/// Modules that a module needs. The module lists them in a text that ends with a zero.
fn needed(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let place = module.windows(FIELD.len()).position(|bytes| bytes == FIELD);
    let rest = place.map_or(&[][..], |place| &module[place + FIELD.len()..]);
    let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

fn find_program(program: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    let found = found.into_iter().find(|file| file.is_file());
    found.ok_or_else(|| io::Error::other(format!("{program} is not in PATH")))
}

/// File in a folder whose name begins with `begin`.
fn find(folder: &Path, begin: &str) -> io::Result<PathBuf> {
    let found = entries(folder)?.into_iter().find(|file| name(file).starts_with(begin));
    found.ok_or_else(|| io::Error::other(format!("{}: no {begin}... there", folder.display())))
}

/// Entries of a folder, in order of their names.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let named = |error| io::Error::other(format!("{}: {error}", folder.display()));
    let all = fs::read_dir(folder).map_err(named)?.map(|entry| Ok(entry?.path()));
    let mut paths = all.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Runs a program to its end; returns its output.
fn run(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} ended with {}: {}", output.status, said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_files() {
        let cloud = "linux-image-6.1.0-56-cloud-amd64_6.1.192-2_amd64.deb";
        let usual = "linux-image-6.1.0-56-amd64_6.1.192-2_amd64.deb";
        assert!(is_kernel(cloud, "cloud-amd64") && is_kernel(usual, "amd64"));
        assert!(!is_kernel(cloud, "amd64") && !is_kernel(usual, "cloud-amd64"));
        let cloud = "linux-image-6.12.48+deb13-cloud-amd64_6.12.48-1_amd64.deb";
        assert!(is_kernel(cloud, "cloud-amd64") && !is_kernel(cloud, "amd64"));
        assert!(is_kernel("linux-image-6.12.48+deb13-amd64_6.12.48-1_amd64.deb", "amd64"));
        assert!(!is_kernel("linux-image-amd64_6.1.192-2_amd64.deb", "amd64"));
        assert!(!is_kernel("linux-image-6.1.0-56-rt-amd64_6.1.192-2_amd64.deb", "amd64"));
        assert!(!is_kernel("busybox-static_1.35.0_amd64.deb", "amd64"));
    }

    #[test]
    fn modules_say_what_they_need() {
        let module = b"\x7fELF\0license=GPL\0depends=nf_nat,nf-tables\0name=nft_masq\0";
        assert_eq!(needed(module), ["nf_nat", "nf_tables"]);
        assert_eq!(needed(b"\0depends=\0"), [""; 0]);
        assert_eq!(needed(b"nothing"), [""; 0]);
    }

    #[test]
    fn modules_are_unpacked_or_refused() {
        let folder = std::env::temp_dir().join(format!("natgate-modules-{}", std::process::id()));
        let net = folder.join("kernel/net");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("nf-nat.ko"), "\0depends=\0").unwrap();
        fs::write(net.join("nft_nat.ko"), "\0depends=nf-nat\0").unwrap();
        run(Command::new("xz").arg(net.join("nft_nat.ko"))).unwrap();
        let modules = Modules::find(&folder).unwrap();
        let mut files = Vec::new();
        for _ in 0..2 {
            modules.add("nft_nat", &mut files).unwrap();
            assert_eq!(files, [net.join("nf-nat.ko"), net.join("nft_nat.ko")]);
        }
        assert_eq!(fs::read(&files[1]).unwrap(), b"\0depends=nf-nat\0");
        fs::write(net.join("nf_tables.ko.zst"), "").unwrap();
        let refused = Modules::find(&folder).unwrap_err().to_string();
        assert!(refused.contains("nf_tables.ko.zst: modules of a kernel"), "{refused}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_of_newer_packages_are_below_usr() {
        let folder = std::env::temp_dir().join(format!("natgate-usr-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let places = ["bin", "lib/modules"].map(|file| in_usr(&folder, file));
        assert_eq!(places, [folder.join("bin"), folder.join("usr/lib/modules")]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
