//! The screen: text mode of a PC, or a frame buffer of the boot loader.

use super::{boot, system};
use natgate_bare::boot::Display as Kind;
use natgate_bare::picture::{Format, Picture, Pixels};
use natgate_bare::screen::{CELLS, Screen, Write};

/// Address of a PC's text.
const TEXT: usize = 0xb_8000;

/// Cells of a picture that are drawn at once; packets wait meanwhile.
const CELLS_AT_ONCE: usize = 8;

/// The screen and its content.
pub(super) struct Display {
    kind: Kind,
    screen: Screen,
    picture: Picture,
}

impl Display {
    /// No screen yet.
    pub(super) const fn new() -> Self {
        Self { kind: Kind::None, screen: Screen::new(), picture: Picture::new() }
    }

    /// Clears the screen; returns false if there is no usable one.
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

    /// Clears a picture; returns false if it is too small or not reachable.
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

    /// Writes a character.
    pub(super) fn put(&mut self, byte: u8) {
        match self.kind {
            Kind::Text => self.screen.put(byte, &mut Cells),
            Kind::Picture(_) => self.screen.put(byte, &mut self.picture),
            Kind::None => {}
        }
    }

    /// Shows some of the characters that are not shown yet; returns true if none is left.
    pub(super) fn go_on(&mut self) -> bool {
        match self.kind {
            Kind::Picture(format) => self.picture.go_on(CELLS_AT_ONCE, &mut Frame(format)),
            Kind::Text | Kind::None => true,
        }
    }
}

/// Cells of the text mode.
struct Cells;

impl Write for Cells {
    fn write(&mut self, place: usize, cell: u16) {
        assert!(place < CELLS);
        // SAFETY: every PC has the screen's cells at this address, and nothing else.
        unsafe { ((TEXT + 2 * place) as *mut u16).write_volatile(cell) }
    }

    fn read(&self, place: usize) -> u16 {
        assert!(place < CELLS);
        // SAFETY: as above.
        unsafe { ((TEXT + 2 * place) as *const u16).read_volatile() }
    }
}

/// Pixels of the mapped frame buffer.
struct Frame(Format);

impl Pixels for Frame {
    fn write(&mut self, column: u32, line: u32, pixel: u32) {
        let place = self.0.place(column, line);
        // SAFETY: the boot loader reports the frame buffer at this address, and nothing else is
        // there.
        unsafe { (place as *mut u32).write_volatile(pixel) }
    }
}
