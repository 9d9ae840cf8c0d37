//! The Linux guest. Its kernel is Debian's; the kernel for virtual machines, if it has drivers for
//! the cards. Its initial file system has busybox, nft, their modules, and a script that sets up a
//! masquerading router.
//!
//! Kernel and busybox come from Debian's packages, which are unpacked beside the run and not
//! installed. nft is the machine's own, with its shared libraries. The engine's timings have a
//! second file system with this program in it. So the first file system is small and boots fast.

use super::{Card, Plan};
use natgate_testnet::{GATEWAY_INSIDE, GATEWAY_OUTSIDE, Guest, Network, ROUTER};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prefix of the names of kernel packages.
const KERNEL: &str = "linux-image-";
const BUSYBOX: &str = "busybox-static";

/// Command line of the kernel. The emulator does not have the processor's faults, and their
/// mitigations cost time.
const OPTIONS: &str = "console=ttyS0 quiet panic=-1 mitigations=off";

/// Modules beside those of the card, each after the modules that it needs.
const MODULES: [&str; 5] = ["nf_conntrack", "nf_nat", "nf_tables", "nft_chain_nat", "nft_masq"];

impl Card {
    /// Flavor of Debian's kernel. The kernel for virtual machines is smaller and lacks drivers for
    /// other cards.
    fn flavour(self) -> &'static str {
        match self {
            Self::VirtioNet => "cloud-amd64",
            Self::E1000 | Self::E1000e => "amd64",
        }
    }

    fn modules(self) -> &'static [&'static str] {
        match self {
            Self::VirtioNet => &["virtio_pci", "virtio_net"],
            // The other kernel has this checksum built in; modules look for it by this name.
            Self::E1000 => &["crc32c_generic", "e1000"],
            Self::E1000e => &["crc32c_generic", "e1000e"],
        }
    }
}

/// A guest that can be booted.
pub(super) struct Linux {
    /// Release of the kernel.
    pub(super) version: String,
    kernel: PathBuf,
    /// File systems of the gateway, and of the engine's timings.
    files: [PathBuf; 2],
    /// Command line of the kernel for measurements of the engine.
    options: String,
}

impl Linux {
    /// Fetches missing packages, and builds the guest for this kind of card in the network's
    /// directory. `word` is the option of the image for timings.
    pub(super) fn prepare(
        network: &Network,
        plan: &Plan,
        card: Card,
        word: &str,
    ) -> io::Result<Self> {
        let own = |file: &str| network.file(&format!("{}-{file}", card.device()));
        let packages = plan.packages.clone().unwrap_or_else(|| network.file("packages"));
        fs::create_dir_all(&packages)?;
        let unpacked = own("unpacked");
        for package in [kernel_package(&packages, card)?, busybox_package(&packages)?] {
            run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked))?;
        }
        let kernel = find(&unpacked.join("boot"), "vmlinuz-")?;
        let version = name(&kernel).replacen("vmlinuz-", "", 1);
        let busybox = unpacked.join("bin/busybox");
        let root = own("root");
        let modules = Modules::find(&unpacked.join("lib/modules").join(&version))?;
        lay_out(&root, &busybox, card, &modules)?;
        let files = ["gateway.cpio", "timings.cpio"].map(own);
        pack(&root, &busybox, &files[0])?;
        add_program(&root, &plan.program, "natgate")?;
        pack(&root, &busybox, &files[1])?;
        Ok(Self { version, kernel, files, options: format!("{OPTIONS} {word}") })
    }

    /// The guest as a gateway.
    pub(super) fn gateway(&self) -> Guest<'_> {
        Guest::new(&self.kernel, &self.files[0], OPTIONS)
    }

    /// The guest that measures the engine and ends.
    pub(super) fn timings(&self) -> Guest<'_> {
        Guest::new(&self.kernel, &self.files[1], &self.options)
    }
}

/// The kernel's package: the present one, or Debian's current one.
fn kernel_package(packages: &Path, card: Card) -> io::Result<PathBuf> {
    let there = entries(packages)?.into_iter().find(|file| is_kernel(name(file), card.flavour()));
    if let Some(there) = there {
        return Ok(there);
    }
    // The package depends on the current kernel.
    let any = format!("{KERNEL}{}", card.flavour());
    let depends = run(Command::new("apt-cache").args(["depends", "--important", &any]))?;
    let package = depends
        .split_whitespace()
        .find(|word| word.starts_with(KERNEL) && *word != any && !word.contains(['<', '|']));
    let package = package.ok_or_else(|| {
        io::Error::other(format!("no package {any} is known; as root: apt-get update"))
    })?;
    fetch(packages, package)
}

/// Returns true if a package's file is a kernel of this flavor:
/// `linux-image-6.1.0-56-cloud-amd64_6.1...deb`.
fn is_kernel(file: &str, flavour: &str) -> bool {
    let package = file.split('_').next().and_then(|package| package.strip_prefix(KERNEL));
    let release = package.and_then(|rest| rest.strip_suffix(flavour));
    release.is_some_and(|release| {
        release.ends_with('-') && release.chars().all(|c| c.is_ascii_digit() || ".-".contains(c))
    })
}

fn busybox_package(packages: &Path) -> io::Result<PathBuf> {
    let there = entries(packages)?.into_iter().find(|file| name(file).starts_with(BUSYBOX));
    there.map_or_else(|| fetch(packages, BUSYBOX), Ok)
}

fn fetch(packages: &Path, package: &str) -> io::Result<PathBuf> {
    run(Command::new("apt-get").args(["download", "--quiet", package]).current_dir(packages))?;
    find(packages, package)
}

/// Loadable modules of the kernel, by their names in the kernel's spelling.
struct Modules(BTreeMap<String, PathBuf>);

impl Modules {
    fn find(folder: &Path) -> io::Result<Self> {
        let mut modules = BTreeMap::new();
        let mut folders = vec![folder.join("kernel")];
        while let Some(folder) = folders.pop() {
            for path in entries(&folder)? {
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(module) = name(&path).strip_suffix(".ko") {
                    modules.insert(module.replace('-', "_"), path);
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
        for needed in needed(&fs::read(path)?) {
            self.add(&needed, files)?;
        }
        files.push(path.clone());
        Ok(())
    }
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

/// Installs all files except this program.
fn lay_out(root: &Path, busybox: &Path, card: Card, modules: &Modules) -> io::Result<()> {
    for folder in ["bin", "proc", "modules"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(busybox, root.join("bin/busybox"))?;
    add_program(root, &find_program("nft")?, "bin/nft")?;
    let mut files = Vec::new();
    for module in card.modules().iter().chain(&MODULES) {
        modules.add(module, &mut files)?;
    }
    let mut load = String::new();
    for file in &files {
        fs::copy(file, root.join("modules").join(name(file)))?;
        load += &format!("$busybox insmod /modules/{}\n", name(file));
    }
    let script = root.join("init");
    fs::write(&script, init(&load))?;
    run(Command::new("chmod").arg("755").arg(&script)).map(drop)
}

/// Init script of the guest: the engine's timings if the command line requests them, otherwise a
/// router.
fn init(load: &str) -> String {
    format!(
        "#!/bin/busybox sh
busybox=/bin/busybox
$busybox mount -t proc proc /proc
case \" $($busybox cat /proc/cmdline) \" in
*' timings '*) /natgate bench timings --lines; $busybox reboot -f ;;
*' timings=quick '*) /natgate bench timings --lines --quick; $busybox reboot -f ;;
esac
{load}$busybox ip link set lo up
$busybox ip address add {GATEWAY_INSIDE}/24 dev eth0
$busybox ip address add {GATEWAY_OUTSIDE}/24 dev eth1
$busybox ip link set eth0 up
$busybox ip link set eth1 up
$busybox ip route add default via {ROUTER}
/bin/nft 'table ip nat {{ chain out {{
    type nat hook postrouting priority srcnat; oifname eth1 masquerade; }}; }}' &&
echo 1 >/proc/sys/net/ipv4/ip_forward &&
echo linux is running
while :; do $busybox sleep 3600; done
"
    )
}

/// Copies a program and its shared libraries. It removes debug symbols, because the guest's memory
/// may be too small for them.
fn add_program(root: &Path, program: &Path, place: &str) -> io::Result<()> {
    run(Command::new("strip").arg("-o").arg(root.join(place)).arg(program))?;
    let libraries = run(Command::new("ldd").arg(program))?;
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(&library[1..]);
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(library, copy)?;
    }
    Ok(())
}

/// Packs a folder for the kernel.
fn pack(root: &Path, busybox: &Path, file: &Path) -> io::Result<()> {
    const SCRIPT: &str = "\"$0\" find . | \"$0\" cpio -o -H newc >\"$1\"";
    let mut command = Command::new("sh");
    run(command.args(["-c", SCRIPT]).arg(busybox).arg(file).current_dir(root)).map(drop)
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
}
