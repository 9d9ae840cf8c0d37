//! Within a crate, modules import in one direction: no ring of modules needs each other.
//!
//! A module is a file or a folder at the top of a crate's `src`. It imports another module if its
//! text names the other by `crate::` (or by `super::` up to the top), directly or by a name that
//! the root of the crate exports. Tests of a module may import what they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates in which modules still need each other.
const EXCEPTIONS: [&str; 6] =
    ["core/engine", "core/ipv6", "core/model", "lab/bench", "operate/import", "operate/logs"];

/// Folders of crates.
const FOLDERS: [&str; 7] = ["core", "gateway", "operate", "p4", "bare", "lab", "natgate"];

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The code of a file: without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|two| {
        two[0] == "#[cfg(test)]" && two[1].starts_with("mod ") && two[1].ends_with('{')
    });
    let code = &lines[..tests.unwrap_or(lines.len())];
    let bare = code.iter().map(|line| line.split("//").next().unwrap_or_default());
    bare.collect::<Vec<_>>().join("\n")
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Names after a path's beginning: one, or the first one of each part in braces.
fn names(after: &str) -> Vec<&str> {
    let Some(group) = after.strip_prefix('{') else { return vec![word(after)] };
    let (mut depth, mut names, mut is_start) = (1, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => is_start = true,
            c if is_start && !c.is_whitespace() => {
                names.push(word(&group[at..]));
                is_start = false;
            }
            _ => {}
        }
    }
    names
}

/// Modules of a crate, from the text of its root; without those of tests.
fn modules(root: &str) -> BTreeSet<&str> {
    let lines: Vec<&str> = root.lines().collect();
    let is_of_test = |at: usize| at > 0 && lines[at - 1] == "#[cfg(test)]";
    let all = lines.iter().enumerate().filter(|(at, _)| !is_of_test(*at));
    all.filter_map(|(_, line)| {
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    })
    .collect()
}

/// Names that the root takes from its modules, with the module of each.
fn exported<'r>(root: &'r str, modules: &BTreeSet<&'r str>) -> BTreeMap<&'r str, &'r str> {
    let statements = root.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let mut exported = BTreeMap::new();
    for statement in statements {
        let Some(&module) = modules.get(word(statement)) else { continue };
        let rest = &statement[module.len()..];
        exported.extend(rest.split([':', '{', '}', ',', ' ', '\n']).map(|name| (name, module)));
    }
    exported
}

/// Imports between the modules of a crate: the text of its root, and names and texts of the files
/// below `src`.
fn imports(root: &str, files: &[(String, String)]) -> Imports {
    let root = code(root);
    let modules = modules(&root);
    let exported = exported(&root, &modules);
    let mut imports = Imports::new();
    for (name, text) in files {
        let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
        let own = path.split('/').next().unwrap_or_default();
        if !modules.contains(own) || path.split('/').any(|part| part == "tests") {
            continue;
        }
        let text = code(text);
        let up = "super::".repeat(path.split('/').count());
        let ups = text.split(&up).skip(1).filter(|rest| !rest.starts_with("super::"));
        let taken = text.split("crate::").skip(1).chain(ups).flat_map(names);
        let others = taken.filter_map(|name| modules.get(name).or_else(|| exported.get(name)));
        let others = others.filter(|other| **other != own).map(|&other| other.to_owned());
        imports.entry(own.to_owned()).or_default().extend(others);
    }
    imports
}

/// Modules that import themselves by way of others.
fn rings(imports: &Imports) -> Vec<&str> {
    let is_in_ring = |module: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(others) = open.pop().map(|next| imports.get(next)) {
            let new = others.into_iter().flatten().filter(|other| seen.insert(*other));
            open.extend(new.collect::<Vec<_>>());
        }
        seen.contains(module)
    };
    imports.keys().filter(|module| is_in_ring(module)).map(|module| &module[..]).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Roots of libraries and programs, below the root of the tree.
fn roots(tree: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&tree.join(folder), &mut files));
    files.retain(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"));
    files
}

#[test]
fn modules_of_a_crate_import_in_one_direction() {
    let tree = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &Path| fs::read_to_string(path).expect("a readable file");
    let roots = roots(tree);
    assert!(roots.len() > 35, "only {} crates were found", roots.len());
    let mut excepted = BTreeSet::new();
    for root in roots {
        let source = root.parent().expect("it has a folder");
        let mut paths = Vec::new();
        collect(source, &mut paths);
        let name = |path: &Path| path.strip_prefix(source).expect("below").display().to_string();
        let files: Vec<_> = paths.iter().map(|path| (name(path), read(path))).collect();
        let imports = imports(&read(&root), &files);
        let rings = rings(&imports);
        let of = source.parent().and_then(|of| of.strip_prefix(tree).ok()).expect("below");
        match EXCEPTIONS.iter().find(|one| of == Path::new(one)) {
            Some(one) if !rings.is_empty() => drop(excepted.insert(one)),
            _ => assert!(
                rings.is_empty(),
                "{}: {rings:?} need each other: {imports:#?}",
                of.display()
            ),
        }
    }
    assert_eq!(excepted.len(), EXCEPTIONS.len(), "only {excepted:?} have rings");
}

#[test]
fn a_ring_is_found_by_any_way_of_importing() {
    let root =
        "mod a;\npub mod b;\nmod c;\n#[cfg(test)]\nmod tests;\npub use c::{C, Other as D};\n";
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let of = |files: &[(String, String)]| {
        let imports = imports(root, files);
        rings(&imports).join(" ")
    };
    let straight = [
        file("a.rs", "use crate::{b::{B, X}, C};\n// crate::a\nfn a() { crate::c::go() }"),
        file("b/mod.rs", "use crate::D;\n#[cfg(test)]\nmod tests {\nuse crate::a::A;\n}"),
        file("c.rs", "use crate::Elsewhere;"),
        file("tests.rs", "use crate::a::A;"),
    ];
    assert_eq!(of(&straight), "");
    for back in ["use crate::a::A;", "use crate::{\n    x::Y,\n    a::A,\n};", "use super::a::A;"] {
        let files = [&straight[..2], &[file("c.rs", back)]].concat();
        assert_eq!(of(&files), "a b c", "{back}");
    }
    let deep = [file("a.rs", "use crate::b::B;"), file("b/deep.rs", "use super::super::a::A;")];
    assert_eq!(of(&deep), "a b");
    let own = [file("a.rs", "use crate::b::B;"), file("b/deep.rs", "use super::a::A;")];
    assert_eq!(of(&own), "");
}
