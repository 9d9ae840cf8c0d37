//! Table entries as they stand on the command line: `TABLE KEYS ACTION [ARGUMENTS]`.

use natgate_p4::{Key, Machine};
use std::net::Ipv4Addr;

/// Adds an entry to its table.
pub(super) fn add(machine: &mut Machine<'_>, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (table, keys, action, args) = match words[..] {
        [table, keys, action] => (table, keys, action, ""),
        [table, keys, action, args] => (table, keys, action, args),
        _ => {
            return Err("an entry is a table, its keys, an action and its arguments, such as \
                        \"routes 0.0.0.0/0 via 192.0.2.1,2\""
                .into());
        }
    };
    let keys = keys.split(',').map(key).collect::<Result<Vec<_>, _>>()?;
    let args = args.split(',').filter(|arg| !arg.is_empty()).map(value);
    let args = args.collect::<Result<Vec<_>, _>>()?;
    machine.insert(table, &keys, action, &args, 0).map_err(|error| error.to_string())
}

fn key(text: &str) -> Result<Key, String> {
    if let Some((left, mask)) = text.split_once("&&&") {
        return Ok(Key::Masked(value(left)?, value(mask)?));
    }
    match text.split_once('/') {
        Some((left, length)) => {
            let wrong = |_| format!("{length:?} is no length of a prefix; write 10.0.0.0/8, say");
            Ok(Key::Prefix(value(left)?, length.parse().map_err(wrong)?))
        }
        None => Ok(Key::Exact(value(text)?)),
    }
}

/// `10`, `0xa`, `192.0.2.1`, `02:00:00:00:00:01`.
fn value(text: &str) -> Result<u128, String> {
    let hexadecimal = |text: &str| u128::from_str_radix(text, 16).ok();
    let address = || text.parse::<Ipv4Addr>().ok().map(|address| u32::from(address).into());
    let found = match text.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits),
        None if text.contains(':') => {
            let bytes: Vec<&str> = text.split(':').collect();
            let is_mac = bytes.len() == 6 && bytes.iter().all(|byte| byte.len() == 2);
            is_mac.then(|| hexadecimal(&bytes.concat())).flatten()
        }
        None => text.parse().ok().or_else(address),
    };
    found.ok_or_else(|| {
        format!("{text:?} is no value; write a number, 0x..., an IPv4 or a hardware address")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_or_addresses() {
        assert_eq!((value("10"), value("0xA")), (Ok(10), Ok(10)));
        assert_eq!(value("192.0.2.1"), Ok(0xc000_0201));
        assert_eq!(value("02:00:00:00:00:fe"), Ok(0x0200_0000_00fe));
        assert_eq!(key("10.0.0.0/8"), Ok(Key::Prefix(0x0a00_0000, 8)));
        assert_eq!(key("5&&&0xf"), Ok(Key::Masked(5, 15)));
        for wrong in ["", "x", "-1", "1.2.3", "02:00", "0x", "1/x", "02:00:00:00:00:+f"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
