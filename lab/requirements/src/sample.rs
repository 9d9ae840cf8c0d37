//! Small sample trees for this crate's tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A citation, composed of parts so that this crate's own files do not contain it.
pub(crate) fn cite(what: &str) -> String {
    format!("//{} {what}", '=')
}

pub(crate) fn cite_test(what: &str) -> String {
    format!("//{} test {what}", '=')
}

/// A directory with files, which is removed when dropped.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new(files: &[(&str, String)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("natgate-requirements-{}-{number}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        for (file, text) in files {
            let path = tree.0.join(file);
            fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
