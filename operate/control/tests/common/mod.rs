//! Helpers that tests of the configuration's sections have in common.

use natgate_control::config::Problem;

/// Six lines, so that the next line is line 7; two addresses of 64,512 ports.
pub(crate) const HEAD: &str = "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n[[pool]]\n\
                               addresses = [\"203.0.113.0/31\"]\n";

/// Problems as text: line, column, key and message.
pub(crate) fn texts(problems: &[Problem]) -> Vec<String> {
    let text = |problem: &Problem| {
        let (line, column) = (problem.line.unwrap(), problem.column.unwrap());
        format!("{line}:{column} {}: {}", problem.key, problem.message)
    };
    problems.iter().map(text).collect()
}
