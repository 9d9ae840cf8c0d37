//! Limits of memory that control groups set for this process: memory.max of version 2,
//! memory.limit_in_bytes of version 1.
//!
//! A group's limit is for all groups in it, too, so every group around this process's own counts as
//! far as it can be seen. Files that the kernel keeps in memory count as taken, but give way.

use super::field;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Memory that a control group leaves to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupLimit {
    /// Bytes that may still be taken.
    pub(super) left: u64,
    /// The file with the limit.
    pub(super) file: PathBuf,
}

/// The files of one version of control groups.
struct Version {
    /// The type of its file system.
    file_system: &'static str,
    /// The name in its lists of controllers; version 2 has one list, without names.
    controller: &'static str,
    limit: &'static str,
    taken: &'static str,
    /// Fields of memory.stat for memory that gives way.
    gives_way: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version {
        file_system: "cgroup2",
        controller: "",
        limit: "memory.max",
        taken: "memory.current",
        gives_way: ["inactive_file ", "active_file "],
    },
    Version {
        file_system: "cgroup",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        taken: "memory.usage_in_bytes",
        gives_way: ["total_inactive_file ", "total_active_file "],
    },
];

/// The tightest limit of this process's groups, if there is one and it can be read.
pub(super) fn tightest() -> Option<GroupLimit> {
    let [groups, mounts] =
        ["/proc/self/cgroup", "/proc/self/mountinfo"].map(fs::read_to_string).map(Result::ok);
    tightest_by(&groups?, &mounts?, Path::new("/"))
}

/// The tightest limit by the texts of the kernel; file systems are mounted below `root`.
fn tightest_by(groups: &str, mounts: &str, root: &Path) -> Option<GroupLimit> {
    let limits = VERSIONS.iter().flat_map(|version| {
        let group = version.group(groups);
        let mounted = mounts.lines().filter_map(move |line| version.place(line, group?));
        mounted.flat_map(|(mount, group)| version.limits(&root.join(mount), &group))
    });
    limits.min_by_key(|limit| limit.left)
}

impl Version {
    /// The path of this process's group: a line is `NUMBER:CONTROLLERS:PATH`.
    fn group<'t>(&self, groups: &'t str) -> Option<&'t str> {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == self.controller).then_some(path)
        })
    }

    /// Place of a group in a mount, if the line of mountinfo is of such a mount: its mount point
    /// without the first `/`, and the group's path in it.
    fn place(&self, line: &str, group: &str) -> Option<(PathBuf, PathBuf)> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (top, point) = (mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1).unwrap_or_default());
        let has_controller = options.split(',').any(|one| one == self.controller);
        if kind != self.file_system || !(self.controller.is_empty() || has_controller) {
            return None;
        }
        // In a container the mount may begin at the container's group, or the path outside of it.
        let inner = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
        let is_inside = inner.components().all(|part| matches!(part, Component::Normal(_)));
        let inner = if is_inside { inner } else { Path::new("") };
        Some((point.trim_start_matches('/').into(), inner.to_owned()))
    }

    /// The limits of a group and of those around it.
    fn limits(&self, mount: &Path, group: &Path) -> Vec<GroupLimit> {
        let folders = group.ancestors().map(|group| mount.join(group)).enumerate();
        let counting = folders.filter(|(distance, folder)| *distance == 0 || is_inherited(folder));
        counting.filter_map(|(_, folder)| self.limit(&folder)).collect()
    }

    /// Memory that the group with this folder leaves. A group without limit says `max`, which is no
    /// number, or, in version 1, a number that no machine has.
    fn limit(&self, folder: &Path) -> Option<GroupLimit> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (limit, taken) = (number(self.limit)?, number(self.taken)?);
        let parts = read("memory.stat").unwrap_or_default();
        let gives_way = self.gives_way.iter().filter_map(|name| field(&parts, name)).sum();
        let left = limit.saturating_sub(taken.saturating_sub(gives_way));
        Some(GroupLimit { left, file: folder.join(self.limit) })
    }
}

/// True if a group's limit holds for the groups in it, too: version 1 can have other groups.
fn is_inherited(folder: &Path) -> bool {
    let inherited = fs::read_to_string(folder.join("memory.use_hierarchy"));
    inherited.map_or(true, |inherited| inherited.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const MOUNTS: &str = "\
23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 23 0:28 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
";
    const SECOND: &str =
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
    const FIRST: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    /// A container's: the mount begins at its group.
    const INNER: &str =
        "35 31 0:32 /docker/1f /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    const GROUPS: &str = "\
9:name=systemd:/init.scope
4:memory:/docker/1f/natgate
1:cpu,cpuacct:/
0::/system.slice/natgate.service
";

    /// A folder in the place of the root of all file systems.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let name = format!("natgate-groups-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        /// Writes files of a group.
        fn write(&self, folder: &str, files: &[(&str, String)]) {
            let folder = self.0.join("sys/fs/cgroup").join(folder);
            fs::create_dir_all(&folder).expect("a folder");
            for (name, text) in files {
                fs::write(folder.join(name), text).expect("a file");
            }
        }

        /// A group of version 2 with a limit in MiB, if it has one, and 200 MiB taken, of which 50
        /// give way.
        fn second(&self, folder: &str, limit: Option<u64>) {
            let limit = limit.map_or("max\n".to_owned(), |limit| format!("{}\n", limit * MIB));
            let stat =
                format!("anon 7\nfile 9\ninactive_file {}\nactive_file {}\n", 20 * MIB, 30 * MIB);
            let taken = format!("{}\n", 200 * MIB);
            let folder = format!("unified/{folder}");
            let files = [("memory.max", limit), ("memory.current", taken), ("memory.stat", stat)];
            self.write(&folder, &files);
        }

        /// A group of version 1 with a limit in bytes, and 200 MiB taken, of which 50 give way.
        fn first(&self, folder: &str, limit: u64, is_inherited: bool) {
            let stat = format!(
                "inactive_file 1\ntotal_inactive_file {}\ntotal_active_file {}\n",
                20 * MIB,
                30 * MIB
            );
            let folder = format!("memory/{folder}");
            let files = [
                ("memory.limit_in_bytes", format!("{limit}\n")),
                ("memory.usage_in_bytes", format!("{}\n", 200 * MIB)),
                ("memory.use_hierarchy", format!("{}\n", u8::from(is_inherited))),
                ("memory.stat", stat),
            ];
            self.write(&folder, &files);
        }

        fn tightest(&self, mount: &str) -> Option<(u64, String)> {
            let limit = tightest_by(GROUPS, &format!("{MOUNTS}{mount}"), &self.0)?;
            let file = limit.file.strip_prefix(self.0.join("sys/fs/cgroup")).expect("below it");
            Some((limit.left / MIB, file.to_str().expect("text").to_owned()))
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_tightest_group_of_version_2_counts_wherever_it_is_around() {
        let root = Root::new("second");
        assert_eq!(root.tightest(SECOND), None);
        root.second("system.slice", None);
        root.second("system.slice/natgate.service", None);
        // A group beside its own is none of its own.
        root.second("system.slice/other.service", Some(1));
        assert_eq!(root.tightest(SECOND), None);
        for (own, around, left, folder) in [
            (Some(1000), None, 850, "system.slice/natgate.service"),
            (Some(1000), Some(900), 750, "system.slice"),
            (Some(800), Some(900), 650, "system.slice/natgate.service"),
            (None, Some(100), 0, "system.slice"),
        ] {
            root.second("system.slice/natgate.service", own);
            root.second("system.slice", around);
            let expected = (left, format!("unified/{folder}/memory.max"));
            assert_eq!(root.tightest(SECOND), Some(expected));
        }
        // If the path is not below the mount, the top of the mount is all that can be seen.
        root.second("", Some(500));
        let outside = SECOND.replace(" / ", " /elsewhere ");
        assert_eq!(root.tightest(&outside), Some((350, "unified/memory.max".to_owned())));
        assert_eq!(root.tightest(FIRST), None);
    }

    #[test]
    fn the_tightest_group_of_version_1_counts() {
        const UNLIMITED: u64 = 0x7fff_ffff_ffff_f000;
        let root = Root::new("first");
        root.first("", UNLIMITED, true);
        root.first("docker/1f", UNLIMITED, true);
        root.first("docker/1f/natgate", UNLIMITED, true);
        assert!(root.tightest(FIRST).is_some_and(|(left, _)| left > 1 << 40));
        root.first("docker/1f", 600 * MIB, true);
        let file = |folder| format!("memory/{folder}/memory.limit_in_bytes");
        assert_eq!(root.tightest(FIRST), Some((450, file("docker/1f"))));
        root.first("docker/1f/natgate", 700 * MIB, true);
        assert_eq!(root.tightest(FIRST), Some((450, file("docker/1f"))));
        root.first("docker/1f", 600 * MIB, false);
        assert_eq!(root.tightest(FIRST), Some((550, file("docker/1f/natgate"))));
        // Within the container the same group is elsewhere.
        root.first("natgate", 300 * MIB, true);
        assert_eq!(root.tightest(INNER), Some((150, file("natgate"))));
        // With both versions, the tighter limit.
        root.second("system.slice/natgate.service", Some(200));
        let both = format!("{INNER}{SECOND}");
        let own = "unified/system.slice/natgate.service/memory.max".to_owned();
        assert_eq!(root.tightest(&both), Some((50, own)));
    }

    #[test]
    fn texts_that_say_nothing_set_no_limit() {
        for (groups, mounts) in [("", ""), (GROUPS, "- - -\n1 - cgroup2\n"), ("x\n::\n", SECOND)] {
            assert_eq!(tightest_by(groups, mounts, Path::new("/nonexistent")), None);
        }
    }
}
