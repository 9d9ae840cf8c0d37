//! Documents with commands and files in fenced blocks.
//!
//! The word behind a fence is the language of the block. A second word is its destination: a path
//! for the content of a file, or `host` for commands of an internal machine. Documents are never
//! changed here.

use std::fs;

/// A fenced block.
pub(crate) struct Block {
    pub(crate) language: String,
    /// Second word behind the fence, or empty.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// Languages of blocks with commands.
pub(crate) const SHELL: &str = "sh";

/// Text of a document.
pub(crate) fn read(name: &str) -> String {
    let path = format!("{}/{name}", crate::ROOT);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fenced blocks of a document, in order.
pub(crate) fn blocks(name: &str) -> Vec<Block> {
    let text = read(name);
    let mut lines = text.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let Some(words) = line.strip_prefix("```") else { continue };
        let (language, place) = words.split_once(' ').unwrap_or((words, ""));
        let content: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(Block {
            language: language.to_owned(),
            place: place.to_owned(),
            text: content.join("\n") + "\n",
        });
    }
    blocks
}

/// Commands of a block: its lines without comments, each joined with its continuation lines.
pub(crate) fn commands(block: &Block) -> Vec<String> {
    let joined = block.text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Parts of a document's running text in backticks.
pub(crate) fn spans(name: &str) -> Vec<String> {
    let mut fenced = false;
    let text = read(name);
    let prose = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    let prose: Vec<&str> = prose.collect();
    prose.join("\n").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
