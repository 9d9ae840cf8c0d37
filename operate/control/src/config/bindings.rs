//! The file of lw4o6's bindings: one binding a line, `ipv4,psid_offset,psid_length,psid,b4[,br]`.
//!
//! Empty lines and lines that begin with `#` are ignored, and so is a first line with the names of
//! the columns. Numbers are decimal, or hexadecimal after `0x`. A file with any problem gives no
//! table at all. A problem has the line and the column of the fault.

use super::problem::Problem;
use natgate_ipv6::softwire::{Binding, BindingTable, Conflict, PortSets};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Most problems of a file that are reported.
const MOST_PROBLEMS: usize = 100;
/// Largest file, bytes.
const MAX_FILE: u64 = 4 << 30;
/// Columns of a line.
const COLUMNS: [&str; 6] = ["ipv4", "psid_offset", "psid_length", "psid", "b4", "br"];
/// Columns that a line must have.
const REQUIRED: usize = 5;

/// Reads the file. `default_br` is the BR address of lines that have none.
///
/// # Errors
/// Every problem, but at most 100.
pub fn read_bindings(path: &Path, default_br: Ipv6Addr) -> Result<BindingTable, Vec<Problem>> {
    let name = path.display().to_string();
    let unreadable = |message: String| vec![Problem::of_file(&name, message)];
    let remedy = "name a file of bindings you may read";
    let len = fs::metadata(path).map(|file| file.len());
    if len.is_ok_and(|len| len > MAX_FILE) {
        return Err(unreadable(format!("is longer than {} GiB; {remedy}", MAX_FILE >> 30)));
    }
    let bytes =
        fs::read(path).map_err(|error| unreadable(format!("cannot be read: {error}; {remedy}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = "has a byte that is not UTF-8; save the file as UTF-8".to_owned();
        vec![Problem { line: Some(line), column: Some(1), ..Problem::of_file(&name, message) }]
    })?;
    parse_bindings(&text, &name, default_br)
}

/// Reads bindings from a text. Problems call the file `name`.
///
/// # Errors
/// As [`read_bindings`].
pub fn parse_bindings(
    text: &str,
    name: &str,
    default_br: Ipv6Addr,
) -> Result<BindingTable, Vec<Problem>> {
    let mut problems = Vec::new();
    // A line has about 40 bytes.
    let mut bindings = Vec::with_capacity(text.len() / 40);
    let mut lines: Vec<u32> = Vec::with_capacity(text.len() / 40);
    for (number, line) in (1_u32..).zip(text.lines()) {
        let row = line.trim_start();
        let is_head = bindings.is_empty() && problems.is_empty() && row.starts_with(COLUMNS[0]);
        if row.is_empty() || row.starts_with('#') || is_head {
            continue;
        }
        match binding(line, default_br) {
            Ok(binding) => {
                bindings.push(binding);
                lines.push(number);
            }
            Err((column, key, message)) => problems.push(Problem {
                line: Some(number as usize),
                column: Some(column),
                key: key.to_owned(),
                ..Problem::of_file(name, message)
            }),
        }
        if problems.len() >= MOST_PROBLEMS {
            return Err(problems);
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let table = BindingTable::new(&bindings, default_br, MOST_PROBLEMS);
    table.map_err(|conflicts| {
        let rows = Rows { bindings: &bindings, lines: &lines, text, name };
        conflicts.into_iter().map(|conflict| rows.problem(conflict)).collect()
    })
}

/// Reads one binding, as the lines of the file have it.
///
/// # Errors
/// One sentence: the fault and the remedy.
pub fn parse_binding(line: &str, default_br: Ipv6Addr) -> Result<Binding, String> {
    binding(line, default_br).map_err(|(_, key, message)| format!("{key}: {message}"))
}

/// Column, name of the column, and sentence of a fault.
type Fault = (usize, &'static str, String);

/// A field: its column, from 1, and its text.
#[derive(Clone, Copy, Default)]
struct Field<'l> {
    column: usize,
    text: &'l str,
    name: &'static str,
}

impl Field<'_> {
    fn wrong(self, message: String) -> Fault {
        (self.column, self.name, message)
    }

    fn number(self, most: u16, wanted: &str) -> Result<u16, Fault> {
        let parsed = match self.text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => self.text.parse::<u64>(),
        };
        match parsed {
            Ok(number) if number <= most.into() => Ok(number as u16),
            Ok(number) => {
                Err(self.wrong(format!("{number} is out of bounds; {wanted} is from 0 to {most}")))
            }
            Err(_) => {
                let text = super::values::quoted(self.text);
                Err(self.wrong(format!("{text} is no number; {wanted} is from 0 to {most}")))
            }
        }
    }

    fn address6(self) -> Result<Ipv6Addr, Fault> {
        match self.text.parse::<Ipv6Addr>() {
            Ok(address) if is_host(address) => Ok(address),
            Ok(_) => super::values6::address6(self.text).map_err(|message| self.wrong(message)),
            Err(_) => {
                let text = super::values::quoted(self.text);
                let example = "write one such as 2001:db8::1";
                Err(self.wrong(format!("{text} is no IPv6 address; {example}")))
            }
        }
    }
}

/// True if an address is in the range of global unicast addresses or of local ones, so that no
/// further check is needed.
fn is_host(address: Ipv6Addr) -> bool {
    matches!(address.octets()[0], 0x20..=0x3f | 0xfc | 0xfd)
}

fn fields(line: &str) -> Result<([Field<'_>; 6], usize), Fault> {
    let mut fields = [Field::default(); 6];
    let (mut count, mut start) = (0, 0);
    for part in line.split(',') {
        let text = part.trim();
        let column = start + (part.len() - part.trim_start().len()) + 1;
        if count == COLUMNS.len() {
            let message = "the line has more than 6 columns; take the rest out".to_owned();
            return Err((column, "", message));
        }
        fields[count] = Field { column, text, name: COLUMNS[count] };
        count += 1;
        start += part.len() + 1;
    }
    if count < REQUIRED {
        let columns = COLUMNS[..REQUIRED].join(",");
        let message = format!("the line has {count} columns of 5; write {columns}[,br]");
        return Err((start, "", message));
    }
    Ok((fields, count))
}

fn binding(line: &str, default_br: Ipv6Addr) -> Result<Binding, Fault> {
    let ([ipv4, offset, length, psid, b4, br], count) = fields(line)?;
    let address = ipv4.text.parse::<Ipv4Addr>().map_err(|_| {
        let text = super::values::quoted(ipv4.text);
        ipv4.wrong(format!("{text} is no IPv4 address; write one such as 192.0.2.1"))
    })?;
    if natgate_engine::is_martian(address.to_bits()) {
        let message = format!("{address} is no address that a host can have; write unicast");
        return Err(ipv4.wrong(message));
    }
    let bits = offset.number(15, "the offset")?;
    let len = length.number(16, "the length")?;
    let sets = PortSets::new(bits as u8, len as u8)
        .map_err(|error| length.wrong(format!("{error}; write a smaller length")))?;
    let set = psid.number(u16::MAX, "the PSID")?;
    if u32::from(set) >= sets.count() {
        let (needed, most) = (u16::BITS - set.leading_zeros(), sets.count() - 1);
        let message = format!("{set} needs {needed} bits, and psid_length is {len}");
        return Err(psid.wrong(format!("{message}; write at most {most}")));
    }
    let b4 = b4.address6()?;
    let has_br = count > REQUIRED && !br.text.is_empty();
    let br = if has_br { br.address6()? } else { default_br };
    Ok(Binding { ipv4: address, sets, psid: set, b4, br })
}

/// The rows of a file, for sentences about conflicts.
struct Rows<'f> {
    bindings: &'f [Binding],
    lines: &'f [u32],
    text: &'f str,
    name: &'f str,
}

impl Rows<'_> {
    /// Line and column of a binding's address.
    fn place(&self, number: usize) -> (usize, usize) {
        let line = self.lines[number] as usize;
        let row = self.text.lines().nth(line - 1).unwrap_or_default();
        (line, row.len() - row.trim_start().len() + 1)
    }

    fn problem(&self, conflict: Conflict) -> Problem {
        let (number, key, message) = match conflict {
            Conflict::Same(earlier, later) => {
                let (one, other) = (self.bindings[earlier], self.bindings[later]);
                let (line, column) = self.place(earlier);
                let set = match other.sets.is_whole() {
                    true => "all ports".to_owned(),
                    false => format!("port set {}", other.psid),
                };
                let message = format!(
                    "{} with {set} is bound to {} in line {line}, column {column}, already; keep \
                     one of the two",
                    other.ipv4, one.b4
                );
                (later, "ipv4", message)
            }
            Conflict::Divided(earlier, later) => {
                let (one, other) = (self.bindings[earlier].sets, self.bindings[later].sets);
                let (line, column) = self.place(earlier);
                let message = format!(
                    "{} has offset {} and length {} here, and {} and {} in line {line}, column \
                     {column}; all port sets of an address need the same (RFC 7597 section 5.1)",
                    self.bindings[later].ipv4,
                    other.offset(),
                    other.bits(),
                    one.offset(),
                    one.bits()
                );
                (later, "psid_length", message)
            }
            Conflict::Brs(place) => {
                let most = natgate_ipv6::softwire::MOST_BRS;
                let message =
                    format!("the file has more than {most} BR addresses; use one of the others");
                (place, "br", message)
            }
        };
        let (line, column) = self.place(number);
        Problem {
            line: Some(line),
            column: Some(column),
            key: key.to_owned(),
            ..Problem::of_file(self.name, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2);

    fn refused(text: &str) -> Vec<String> {
        let problems = parse_bindings(text, "b.csv", BR).expect_err(text);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_are_bindings() {
        let text = "# customers\nipv4,psid_offset,psid_length,psid,b4,br\n\n\
            203.0.113.7,0,6,1,2001:db8:b4::1\r\n \
            203.0.113.7 , 0 , 6 , 0x3f , fd00::2 , 2001:db8::9\n\
            203.0.113.8,6,0,0,2001:db8:b4::3,\n";
        let table = parse_bindings(text, "b.csv", BR).expect("good lines");
        assert_eq!(table.len(), 3);
        let one = table.binding([203, 0, 113, 7].into(), 1024).expect("a binding");
        assert_eq!((one.b4.to_string(), one.br), ("2001:db8:b4::1".to_owned(), BR));
        let two = table.binding([203, 0, 113, 7].into(), 65_535).expect("a binding");
        assert_eq!((two.psid, two.br.to_string()), (63, "2001:db8::9".to_owned()));
        assert!(table.binding([203, 0, 113, 8].into(), 0).is_some());
        assert!(parse_bindings("", "b.csv", BR).expect("no line").is_empty());
    }

    #[test]
    fn faults_have_line_column_and_arithmetic() {
        let good = "203.0.113.7,0,6,1,2001:db8::1\n";
        let cases = [
            ("203.0.113,0,6,1,::1", "2:1: ipv4: \"203.0.113\" is no IPv4 address"),
            ("127.0.0.1,0,6,1,2001:db8::1", "2:1: ipv4: 127.0.0.1 is no address that a host"),
            ("203.0.113.7,16,0,1,2001:db8::1", "2:13: psid_offset: 16 is out of bounds"),
            (
                "203.0.113.7,6,11,1,2001:db8::1",
                "2:15: psid_length: offset 6 and PSID length 11 are 17 bits, and a port has 16",
            ),
            (
                "203.0.113.7,0,6,64,2001:db8::1",
                "2:17: psid: 64 needs 7 bits, and psid_length is 6; write at most 63",
            ),
            ("203.0.113.7,0,6,x,2001:db8::1", "2:17: psid: \"x\" is no number"),
            ("203.0.113.7,0,6,2,192.0.2.1", "2:19: b4: \"192.0.2.1\" is no IPv6 address"),
            ("203.0.113.7,0,6,2,ff02::1", "2:19: b4: ff02::1 is in ff00::/8 (multicast)"),
            ("203.0.113.7,0,6,2,2001:db8::1,x", "2:31: br: \"x\" is no IPv6 address"),
            ("203.0.113.7,0,6,2", "2:18: the line has 4 columns of 5"),
            ("203.0.113.7,0,6,2,2001:db8::1,2001:db8::2,7", "2:43: the line has more than 6"),
            (
                "203.0.113.7,0,6,1,2001:db8::2",
                "2:1: ipv4: 203.0.113.7 with port set 1 is bound to 2001:db8::1 in line 1, \
                 column 1",
            ),
            (
                " 203.0.113.7,1,6,2,2001:db8::2",
                "2:2: psid_length: 203.0.113.7 has offset 1 and length 6 here, and 0 and 6 in line \
                 1, column 1",
            ),
        ];
        for (line, expected) in cases {
            let problems = refused(&format!("{good}{line}\n"));
            assert_eq!(problems.len(), 1, "{line}: {problems:#?}");
            let expected = format!("b.csv:{expected}");
            assert!(problems[0].starts_with(&expected), "{}\n{expected}", problems[0]);
        }
        assert_eq!(refused(&"x\n".repeat(200)).len(), 100);
    }

    #[test]
    fn a_million_lines_are_read_in_time() {
        use std::fmt::Write;
        let mut text = String::new();
        for number in 0..1_000_000_u32 {
            let address = Ipv4Addr::from_bits(0xc633_0000 + number / 64);
            let (psid, high) = (number % 64, number >> 16);
            writeln!(text, "{address},6,6,{psid},2001:db8:{high:x}:{:x}::1", number & 0xffff)
                .expect("a string takes all");
        }
        let start = std::time::Instant::now();
        let table = parse_bindings(&text, "b.csv", BR).expect("good lines");
        let time = start.elapsed();
        assert_eq!(table.len(), 1_000_000);
        // Three seconds are the limit of an optimized program.
        let most = if cfg!(debug_assertions) { 60 } else { 3 };
        assert!(time.as_secs() < most, "{time:?}");
    }
}
