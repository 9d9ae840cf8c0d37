//! Text on a PC's screen: 25 lines of 80 characters, each a cell of 16 bits. New lines appear at
//! the bottom.

/// Characters in a line, lines, and cells of the screen.
pub const COLUMNS: usize = 80;
/// See [`COLUMNS`].
pub const LINES: usize = 25;
/// See [`COLUMNS`].
pub const CELLS: usize = COLUMNS * LINES;

/// Gray on black.
const COLOUR: u16 = 0x0700;
const BLANK: u16 = COLOUR | b' ' as u16;

/// The cells of a screen.
pub trait Write {
    /// Changes a cell.
    fn write(&mut self, place: usize, cell: u16);
    /// Content of a cell.
    fn read(&self, place: usize) -> u16;
}

/// Place of the next character.
#[derive(Debug, Default)]
pub struct Screen {
    line: usize,
    column: usize,
}

impl Screen {
    /// A screen with the next character at the top.
    pub const fn new() -> Self {
        Self { line: 0, column: 0 }
    }

    /// Clears the screen.
    pub fn clear(&mut self, cells: &mut impl Write) {
        (0..CELLS).for_each(|place| cells.write(place, BLANK));
        *self = Self::new();
    }

    /// Writes a character. A byte that is not printable ASCII becomes a question mark.
    pub fn put(&mut self, byte: u8, cells: &mut impl Write) {
        match byte {
            b'\n' => self.end_line(cells),
            b'\r' => self.column = 0,
            _ => {
                if self.column == COLUMNS {
                    self.end_line(cells);
                }
                let shown = if (b' '..=b'~').contains(&byte) { byte } else { b'?' };
                cells.write(self.line * COLUMNS + self.column, COLOUR | u16::from(shown));
                self.column += 1;
            }
        }
    }

    fn end_line(&mut self, cells: &mut impl Write) {
        self.column = 0;
        if self.line + 1 < LINES {
            self.line += 1;
            return;
        }
        for place in COLUMNS..CELLS {
            let cell = cells.read(place);
            cells.write(place - COLUMNS, cell);
        }
        (CELLS - COLUMNS..CELLS).for_each(|place| cells.write(place, BLANK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cells(Vec<u16>);

    impl Write for Cells {
        fn write(&mut self, place: usize, cell: u16) {
            self.0[place] = cell;
        }

        fn read(&self, place: usize) -> u16 {
            self.0[place]
        }
    }

    fn shown(text: &str) -> Vec<String> {
        let mut cells = Cells(vec![0; CELLS]);
        let mut screen = Screen::new();
        screen.clear(&mut cells);
        text.bytes().for_each(|byte| screen.put(byte, &mut cells));
        let line =
            |cells: &[u16]| cells.iter().map(|cell| char::from(*cell as u8)).collect::<String>();
        cells.0.chunks(COLUMNS).map(|cells| line(cells).trim_end().to_owned()).collect()
    }

    #[test]
    fn lines_are_where_they_should_be() {
        let lines = shown("first\nsecond \u{7}ne\r\nthird");
        assert_eq!(lines[..4], ["first", "second ?ne", "third", ""]);
        let long = "x".repeat(80) + "y";
        assert_eq!(shown(&long)[..2], ["x".repeat(80), "y".to_owned()]);
        assert_eq!(shown(&("x".repeat(80) + "\ny"))[1], "y");
    }

    #[test]
    fn the_screen_goes_up_when_it_is_full() {
        let text: String = (0..30).map(|line| format!("{line}\n")).collect();
        let lines = shown(&text);
        assert_eq!((lines[0].as_str(), lines[23].as_str(), lines[24].as_str()), ("6", "29", ""));
    }
}
