//! The screen: a PC's text, or a picture that the boot loader has set up.

use super::{boot, system};
use natgate_bare::boot::Display as Kind;
use natgate_bare::picture::{Format, Picture, Pixels};
use natgate_bare::screen::{CELLS, Screen, Write};

/// Where a PC's text is.
const TEXT: usize = 0xb_8000;

/// Cells of a picture that are drawn in one go: packets wait for it.
const CELLS_AT_ONCE: usize = 8;

/// The screen, and what is on it.
pub(super) struct Display {
    kind: Kind,
    screen: Screen,
    picture: Picture,
}

impl Display {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { kind: Kind::None, screen: Screen::new(), picture: Picture::new() }
    }

    /// Clears the screen that there is; `false`: there is none that can be written on.
    pub(super) fn start(&mut self) -> bool {
        self.kind = match system::told().map_or(Kind::Text, |told| told.display) {
            Kind::Picture(format) if !self.clear_picture(format) => Kind::None,
            kind => kind,
        };
        if self.kind == Kind::Text {
            self.screen.clear(&mut Cells);
        }
        self.kind != Kind::None
    }

    /// Clears a picture; `false`: it is too small, or lies where it cannot be reached.
    fn clear_picture(&mut self, format: Format) -> bool {
        let (width, height) = format.size();
        if format.end() > boot::registers_end() || !self.picture.fit((width, height)) {
            return false;
        }
        for line in 0..height {
            (0..width).for_each(|column| Frame(format).write(column, line, 0));
        }
        self.screen.clear(&mut self.picture);
        true
    }

    /// Puts a character.
    pub(super) fn put(&mut self, byte: u8) {
        match self.kind {
            Kind::Text => self.screen.put(byte, &mut Cells),
            Kind::Picture(_) => self.screen.put(byte, &mut self.picture),
            Kind::None => {}
        }
    }

    /// Shows some of what has been put and is not shown yet; `true`: nothing is left.
    pub(super) fn go_on(&mut self) -> bool {
        match self.kind {
            Kind::Picture(format) => self.picture.go_on(CELLS_AT_ONCE, &mut Frame(format)),
            Kind::Text | Kind::None => true,
        }
    }
}

/// The cells of the text.
struct Cells;

impl Write for Cells {
    fn write(&mut self, place: usize, cell: u16) {
        assert!(place < CELLS);
        // SAFETY: the cells of the screen are there on every PC, and nothing else.
        unsafe { ((TEXT + 2 * place) as *mut u16).write_volatile(cell) }
    }

    fn read(&self, place: usize) -> u16 {
        assert!(place < CELLS);
        // SAFETY: as above.
        unsafe { ((TEXT + 2 * place) as *const u16).read_volatile() }
    }
}

/// The pixels of the picture, which is mapped.
struct Frame(Format);

impl Pixels for Frame {
    fn write(&mut self, column: u32, line: u32, pixel: u32) {
        let place = self.0.place(column, line);
        // SAFETY: the boot loader says that the picture is there, and nothing else.
        unsafe { (place as *mut u32).write_volatile(pixel) }
    }
}
