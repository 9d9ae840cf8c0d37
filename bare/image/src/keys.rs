//! The keyboard: which character a key stands for, as far as the menu needs any.

/// What is known of keys that are held down.
#[derive(Debug, Default)]
pub struct Keyboard {
    is_extended: bool,
}

/// Of a key that is let go.
const RELEASED: u8 = 0x80;
/// What follows is a key that older keyboards did not have.
const EXTENDED: u8 = 0xe0;

/// The rows of an American keyboard and the number of each first key.
const ROWS: [(u8, &[u8]); 4] =
    [(2, b"1234567890"), (16, b"qwertyuiop"), (30, b"asdfghjkl"), (44, b"zxcvbnm")];

impl Keyboard {
    /// No key is held down.
    pub const fn new() -> Self {
        Self { is_extended: false }
    }

    /// The character of what the keyboard says (set 1), if that is a letter or a digit that goes
    /// down.
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
        // s down and up, an arrow down and up, 1, a key without a letter.
        let codes = [0x1f, 0x9f, 0xe0, 0x48, 0xe0, 0xc8, 0x02, 0x3a, 0x32];
        let keys: Vec<_> = codes.into_iter().filter_map(|code| keyboard.key(code)).collect();
        assert_eq!(keys, *b"s1m");
    }
}
