//! The keyboard: characters of keys, as far as the menu needs them.

/// State of the keyboard.
#[derive(Debug, Default)]
pub struct Keyboard {
    is_extended: bool,
}

/// Bit of a released key.
const RELEASED: u8 = 0x80;
/// Prefix of a key that older keyboards lack.
const EXTENDED: u8 = 0xe0;

/// Rows of an American keyboard, with the number of the first key of each.
const ROWS: [(u8, &[u8]); 4] =
    [(2, b"1234567890"), (16, b"qwertyuiop"), (30, b"asdfghjkl"), (44, b"zxcvbnm")];

impl Keyboard {
    /// A keyboard without a pressed key.
    pub const fn new() -> Self {
        Self { is_extended: false }
    }

    /// Character of a scan code (set 1), if it is a pressed letter or digit.
    pub fn key(&mut self, code: u8) -> Option<u8> {
        if code == EXTENDED {
            self.is_extended = true;
            return None;
        }
        if std::mem::take(&mut self.is_extended) || code & RELEASED != 0 {
            return None;
        }
        ROWS.iter().find_map(|(first, row)| {
            code.checked_sub(*first).and_then(|place| row.get(usize::from(place)).copied())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_told_when_they_go_down() {
        let mut keyboard = Keyboard::new();
        // Press and release of s, press and release of an arrow, 1, a key without a letter.
        let codes = [0x1f, 0x9f, 0xe0, 0x48, 0xe0, 0xc8, 0x02, 0x3a, 0x32];
        let keys: Vec<_> = codes.into_iter().filter_map(|code| keyboard.key(code)).collect();
        assert_eq!(keys, *b"s1m");
    }
}
