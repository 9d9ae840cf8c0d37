//! Paths in the unit, configurations, man pages and documents exist in the package.

use crate::{Folder, contents, document, said, text};
use std::fs;
use std::path::Path;

/// Prefixes of paths on a machine.
const BEGINNINGS: &[&str] = &["/usr/", "/etc/", "/var/", "/run/", "/lib/"];

/// Folders that the unit creates, with natgate's files in them.
const MADE: &[&str] = &["/run/natgate", "/var/lib/natgate", "/var/log/natgate"];

/// Paths that the package need not have, and the reason for each.
const OTHERS: &[(&str, &str)] = &[
    ("/etc/bash_completion.d/natgate", "the output of a command of a man page"),
    ("/etc/bird/bird.conf", "a file of Debian's bird2"),
    ("/etc/netns", "a folder of `ip netns`, which the demonstration makes and removes"),
    ("/etc/natgate/a.key", "a key that docs/pair.md makes"),
    ("/etc/natgate/a.pem", "a certificate that docs/pair.md makes"),
    ("/etc/natgate/b.key", "a key that docs/pair.md makes"),
    ("/etc/natgate/b.pem", "a certificate that docs/pair.md makes"),
    ("/etc/natgate/bindings.csv", "a file that the quick start of DS-Lite writes"),
    ("/etc/natgate/ca.pem", "a certificate that docs/pair.md makes"),
    ("/etc/natgate/imported.toml", "the output of a command of the home router's quick start"),
    ("/etc/natgate/lw4o6.toml", "a file that the quick start of DS-Lite writes"),
    ("/etc/natgate/map-e.toml", "a file that the quick start of DS-Lite writes"),
    ("/run/netns/NAME", "a namespace of the operator's"),
    ("/usr/local/share/zsh/site-functions/_natgate", "the output of a command of a man page"),
    ("/usr/sbin/nologin", "a file of Debian's login"),
    ("/var/lib", "a folder of every system"),
    ("/var/log", "a folder of every system"),
];

/// Absolute paths in a text.
pub(crate) fn named(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-*".contains(c);
    let words = text.split(|c| !is_path(c));
    let paths = words.filter(|word| BEGINNINGS.iter().any(|begin| word.starts_with(begin)));
    paths.map(|path| path.trim_end_matches(['.', '/', '-']).to_owned()).collect()
}

/// True if a path exists as soon as the unit has been started.
pub(crate) fn is_made_at_run_time(path: &str) -> bool {
    MADE.iter().any(|made| Path::new(path).starts_with(made))
}

#[test]
fn every_path_that_is_named_is_in_the_package() {
    let files = contents();
    let folder = Folder::new("paths");
    said(crate::PROGRAM, &["man", text(&folder.0)]);
    said(text(&crate::laboratory()), &["man", text(&folder.0)]);
    let mut texts: Vec<(String, String)> = Vec::new();
    for name in [
        "packaging/natgate.toml",
        "packaging/systemd/natgate.service",
        "packaging/systemd/natgate.sysusers",
        "packaging/examples/home-router.toml",
        "packaging/examples/isp-blocks.toml",
        "packaging/examples/cloud-egress.toml",
        "packaging/examples/dslite.toml",
        "packaging/examples/pair-a.toml",
        "packaging/examples/pair-b.toml",
        "README.md",
        "docs/service.md",
        "docs/upgrade.md",
        "docs/metrics.md",
        "docs/logs.md",
        "docs/pcp.md",
        "docs/quickstart-home.md",
        "docs/quickstart-isp.md",
        "docs/quickstart-cloud.md",
        "docs/quickstart-dslite.md",
    ] {
        texts.push((name.to_owned(), document::read(name)));
    }
    for page in fs::read_dir(&folder.0).expect("it is ours").flatten() {
        let text = fs::read_to_string(page.path()).expect("it is ours").replace("\\-", "-");
        texts.push((page.file_name().into_string().expect("text"), text));
    }
    let mut missing = Vec::new();
    for (name, text) in &texts {
        for path in named(text) {
            let known = files.contains(&path)
                || is_made_at_run_time(&path)
                || OTHERS.iter().any(|(other, _)| *other == path);
            if !known {
                missing.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "not in the package: {missing:#?}");
    let all: Vec<String> = texts.iter().flat_map(|(_, text)| named(text)).collect();
    for (other, _) in OTHERS {
        assert!(all.iter().any(|path| path == other), "{other} is named nowhere");
    }
}

/// Links of installed documents lead to installed files.
#[test]
fn links_between_installed_documents_lead_somewhere() {
    let files = contents();
    let root = Folder::new("links");
    said("dpkg-deb", &["--extract", text(crate::package()), text(&root.0)]);
    let documents: Vec<&String> = files.iter().filter(|file| file.ends_with(".md")).collect();
    assert!(documents.len() > 30, "{documents:?}");
    let (mut seen, mut dead) = (0, Vec::new());
    for name in documents {
        let page = fs::read_to_string(root.file(&name[1..])).expect("it is installed");
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.starts_with("http") {
                continue;
            }
            seen += 1;
            let folder = Path::new(name).parent().expect("a file has a folder");
            // An absolute target replaces the folder.
            let path = root.file(text(&folder.join(target)).trim_start_matches('/'));
            if !path.exists() {
                dead.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(seen > 100, "only {seen} links were found");
}
