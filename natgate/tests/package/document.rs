//! Documents with commands and files in fenced blocks, as tests read them.
//!
//! The word behind a fence is the block's language. A second word says where it belongs: a path for
//! a file's content, `host` for commands of a machine inside. Documents never change here.

use std::fs;

/// A fenced block.
pub(crate) struct Block {
    pub(crate) language: String,
    /// The second word behind the fence, or nothing.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// Languages of blocks with commands.
pub(crate) const SHELL: &str = "sh";

/// A document's text.
pub(crate) fn read(name: &str) -> String {
    let path = format!("{}/{name}", crate::ROOT);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of a document, in order.
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

/// The commands of a block: its lines without comments, each with the lines that continue it.
pub(crate) fn commands(block: &Block) -> Vec<String> {
    let joined = block.text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Pieces of a document's running text that stand in backticks.
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
