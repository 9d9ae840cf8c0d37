//! Man pages and shell completions, made from the same description as `--help`.
//!
//! A page's head, options and subcommands are clap_mangen's. The text after the options in `--help`
//! is ours: examples and tables keep their lines, sentences are filled.

use crate::Failure;
use crate::NO_OUTPUT;
use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write the man pages, one for each subcommand, to a directory
#[derive(clap::Args)]
#[command(after_help = "Example:\nnatgate man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// The directory
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Print completions for a shell
///
/// The shell completes subcommands, options and the values of options.
#[derive(clap::Args)]
#[command(after_help = "Examples:\nnatgate completions bash >/etc/bash_completion.d/natgate\n\
    natgate completions zsh >/usr/local/share/zsh/site-functions/_natgate\n\
    natgate completions fish >~/.config/fish/completions/natgate.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints completions for the program `name`, which `command` describes.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(
    args: &CompletionsArgs,
    name: &str,
    mut command: Command,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    Ok(io::stdout().write_all(&text).context(NO_OUTPUT)?)
}

/// Writes the page of the program that `command` describes, if `top`, and those of its subcommands
/// but for the ones in `without`.
///
/// # Errors The directory does not exist, or a page cannot be written.
pub fn pages(args: &ManArgs, command: Command, top: bool, without: &[&str]) -> Result<(), Failure> {
    let directory = &args.directory;
    if !directory.is_dir() {
        let shown = directory.display();
        return Err(Failure::Input(vec![format!("{shown} is no directory; make it first")]));
    }
    let mut command = command.disable_help_subcommand(true);
    command.build();
    for below in visible(&command).filter(|below| !without.contains(&below.get_name())) {
        write_pages(below, directory)?;
    }
    if top {
        write_page(&command, directory)?;
    }
    Ok(())
}

/// Writes the page of the program that `command` describes, without pages of its subcommands:
/// `user` is the program that starts this one, and whose pages describe them.
///
/// # Errors The page cannot be written.
pub fn overview(args: &ManArgs, command: Command, user: &str) -> Result<(), Failure> {
    let names: Vec<String> =
        visible(&command).map(|below| format!("{user}-{}(1)", below.get_name())).collect();
    let page = page_of(command.clone());
    let mut text = Vec::new();
    let mut render = || {
        render_head(&page, &mut text)?;
        let mut see = Roff::new();
        see.control("SH", ["SEE ALSO"]);
        see.text([roman(names.join(", "))]);
        see.to_writer(&mut text)
    };
    render().context("a page cannot be written")?;
    let path = args.directory.join(page.get_filename());
    Ok(fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?)
}

/// Writes the page of a command, and those of the commands under it.
fn write_pages(command: &Command, directory: &Path) -> anyhow::Result<()> {
    for below in visible(command) {
        write_pages(below, directory)?;
    }
    write_page(command, directory)
}

/// Subcommands that `--help` lists.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn write_page(command: &Command, directory: &Path) -> anyhow::Result<()> {
    let page = page_of(command.clone());
    let path = directory.join(page.get_filename());
    let text = render(command, &page).context("a page cannot be written")?;
    fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
}

fn page_of(command: Command) -> Man {
    Man::new(command).manual("natgate").source(concat!("natgate ", env!("CARGO_PKG_VERSION")))
}

/// The sections that every page begins with.
fn render_head(page: &Man, text: &mut Vec<u8>) -> io::Result<()> {
    page.render_title(text)?;
    page.render_name_section(text)?;
    page.render_synopsis_section(text)?;
    page.render_description_section(text)
}

fn render(command: &Command, page: &Man) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    render_head(page, &mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        page.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(rest) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        notes(&rest.to_string()).to_writer(&mut text)?;
    }
    let mut see = Roff::new();
    see.control("SH", ["SEE ALSO"]);
    see.text([roman(match command.get_display_name() {
        Some(name) if name != "natgate" => "natgate(1)",
        _ => "The documentation in /usr/share/doc/natgate",
    })]);
    see.to_writer(&mut text)?;
    Ok(text)
}

/// The text after the options.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut section = "";
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')) {
        let (head, rest) = block.split_once('\n').unwrap_or((block, ""));
        let (wanted, block) = match head {
            "Example:" | "Examples:" => ("EXAMPLES", rest),
            _ => ("NOTES", block),
        };
        if wanted != section {
            roff.control("SH", [wanted]);
            section = wanted;
        } else {
            roff.control("PP", []);
        }
        let is_kept = |line: &str| wanted == "EXAMPLES" || line.starts_with(' ');
        let mut kept = false;
        for line in block.lines() {
            if is_kept(line) != kept {
                kept = !kept;
                roff.control(if kept { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line)]);
        }
        if kept {
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_filled_and_tables_and_examples_are_not() {
        let text =
            "It does\nthis. Such as:\n  a  b\n  c  d\n\nAnd that.\n\nExamples:\nnatgate a\n.b";
        let page = notes(text).to_roff();
        let expected = ".SH NOTES\nIt does\nthis. Such as:\n.nf\n  a  b\n  c  d\n.fi\n.PP\n\
                        And that.\n\
            .SH EXAMPLES\n.nf\nnatgate a\n\\&.b\n.fi\n";
        assert_eq!(page, expected);
    }
}
