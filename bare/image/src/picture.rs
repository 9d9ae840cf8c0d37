//! Text on a frame buffer, for screens without a text mode (after UEFI): cells become pixels.
//!
//! Writing pixels is slow, and packets wait meanwhile. So printed text is drawn later, some cells
//! at a time ([`Picture::go_on`]). A line that scrolls before its turn is never drawn at its old
//! place.

use crate::screen::{CELLS, COLUMNS, LINES, Write};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

/// Bytes of a pixel. The order of the colors does not matter, because all text is gray.
const PIXEL: u32 = 4;

/// Available letters, largest first.
const SIZES: [RasterHeight; 3] = [RasterHeight::Size32, RasterHeight::Size24, RasterHeight::Size16];

/// Layout of a frame buffer with 32 bits a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    address: u64,
    pitch: u32,
    width: u32,
    height: u32,
}

impl Format {
    /// A frame buffer at an address. Each line begins `pitch` bytes after the one before. Returns
    /// `None` if the numbers are impossible.
    pub fn new(address: u64, pitch: u32, width: u32, height: u32) -> Option<Self> {
        let has_room = width.checked_mul(PIXEL).is_some_and(|len| len <= pitch);
        let is_even = address.is_multiple_of(PIXEL.into()) && pitch.is_multiple_of(PIXEL);
        let ends = address.checked_add(u64::from(pitch) * u64::from(height)).is_some();
        let is_one = address > 0 && width > 0 && height > 0;
        (has_room && is_even && ends && is_one).then_some(Self { address, pitch, width, height })
    }

    /// Pixels of a line, and number of lines.
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Address after the last line.
    pub fn end(&self) -> u64 {
        self.address + u64::from(self.pitch) * u64::from(self.height)
    }

    /// Address of a pixel.
    ///
    /// # Panics
    /// If the pixel does not exist.
    pub fn place(&self, column: u32, line: u32) -> u64 {
        assert!(column < self.width && line < self.height);
        self.address + u64::from(line) * u64::from(self.pitch) + u64::from(column * PIXEL)
    }
}

/// Pixels of a frame buffer.
pub trait Pixels {
    /// Writes a pixel: 0 is black, all ones is white.
    fn write(&mut self, column: u32, line: u32, pixel: u32);
}

/// Cells of the screen, and the drawn content of each.
#[derive(Debug)]
pub struct Picture {
    /// Size of the letters; `None` if there is no frame buffer.
    letters: Option<RasterHeight>,
    cells: [u16; CELLS],
    drawn: [u16; CELLS],
    /// Cell at which drawing continues.
    next: usize,
}

impl Picture {
    /// A picture without a frame buffer.
    pub const fn new() -> Self {
        // No cell has the value 0, so all will be drawn.
        Self { letters: None, cells: [0; CELLS], drawn: [0; CELLS], next: 0 }
    }

    /// Chooses the largest letters with which all cells fit; returns false if no letters are small
    /// enough.
    pub fn fit(&mut self, (width, height): (u32, u32)) -> bool {
        self.letters = SIZES.into_iter().find(|letters| {
            let (cell_width, cell_height) = cell(*letters);
            cell_width * COLUMNS as u32 <= width && cell_height * LINES as u32 <= height
        });
        self.letters.is_some()
    }

    /// Draws at most `most` changed cells; returns true if no others are left.
    pub fn go_on(&mut self, most: usize, pixels: &mut impl Pixels) -> bool {
        let Some(letters) = self.letters else { return true };
        let mut count = 0;
        while self.cells != self.drawn {
            if count == most {
                return false;
            }
            let changed = |place: &usize| self.cells[*place] != self.drawn[*place];
            let Some(place) = (self.next..CELLS).chain(0..self.next).find(changed) else { break };
            draw(letters, place, self.cells[place], pixels);
            self.drawn[place] = self.cells[place];
            self.next = place;
            count += 1;
        }
        true
    }
}

impl Default for Picture {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Picture {
    fn write(&mut self, place: usize, cell: u16) {
        self.cells[place] = cell;
    }

    fn read(&self, place: usize) -> u16 {
        self.cells[place]
    }
}

/// Width and height of a cell, pixels.
fn cell(letters: RasterHeight) -> (u32, u32) {
    (get_raster_width(FontWeight::Regular, letters) as u32, letters.val() as u32)
}

fn draw(letters: RasterHeight, place: usize, content: u16, pixels: &mut impl Pixels) {
    let (width, height) = cell(letters);
    let (left, top) = ((place % COLUMNS) as u32 * width, (place / COLUMNS) as u32 * height);
    // The low byte of a cell is an ASCII character; the font has all of them.
    let Some(letter) = get_raster(char::from(content as u8), FontWeight::Regular, letters) else {
        return;
    };
    for (line, row) in (top..top + height).zip(letter.rows()) {
        for (column, shade) in (left..left + width).zip(row) {
            pixels.write(column, line, u32::from_le_bytes([*shade; PIXEL as usize]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::Screen;

    /// A frame buffer that counts written pixels.
    struct Canvas {
        width: u32,
        pixels: Vec<u32>,
        count: usize,
    }

    impl Canvas {
        fn new((width, height): (u32, u32)) -> Self {
            Self { width, pixels: vec![1; (width * height) as usize], count: 0 }
        }

        /// Pixels of a cell.
        fn cell(&self, place: usize) -> Vec<u32> {
            let (width, height) = cell(RasterHeight::Size16);
            let (left, top) = ((place % COLUMNS) as u32 * width, (place / COLUMNS) as u32 * height);
            let line =
                |line: u32| &self.pixels[(line * self.width + left) as usize..][..width as usize];
            (top..top + height).flat_map(line).copied().collect()
        }
    }

    impl Pixels for Canvas {
        fn write(&mut self, column: u32, line: u32, pixel: u32) {
            assert!(column < self.width);
            self.pixels[(line * self.width + column) as usize] = pixel;
            self.count += 1;
        }
    }

    /// Size of the smallest usable frame buffer.
    fn smallest() -> (u32, u32) {
        let (width, height) = cell(RasterHeight::Size16);
        (width * COLUMNS as u32, height * LINES as u32)
    }

    fn print(text: &str, screen: &mut Screen, picture: &mut Picture) {
        text.bytes().for_each(|byte| screen.put(byte, picture));
    }

    #[test]
    fn letters_are_as_large_as_fits() {
        let (width, height) = smallest();
        let mut picture = Picture::new();
        for (size, letters) in [
            ((width, height), Some(RasterHeight::Size16)),
            ((width - 1, height), None),
            ((width, height - 1), None),
            ((1024, 768), Some(RasterHeight::Size24)),
            ((1920, 1080), Some(RasterHeight::Size32)),
            ((8000, height), Some(RasterHeight::Size16)),
        ] {
            assert_eq!(picture.fit(size), letters.is_some());
            assert_eq!(picture.letters, letters, "{size:?}");
        }
    }

    #[test]
    fn letters_are_drawn_in_their_cells() {
        let mut canvas = Canvas::new(smallest());
        let (mut screen, mut picture) = (Screen::new(), Picture::new());
        assert!(picture.go_on(CELLS, &mut canvas) && picture.fit(smallest()));
        screen.clear(&mut picture);
        print("AB\nA~", &mut screen, &mut picture);
        assert!(picture.go_on(CELLS, &mut canvas));
        assert_eq!(canvas.count, canvas.pixels.len());
        let [a, b, again] = [0, 1, COLUMNS].map(|place| canvas.cell(place));
        assert!(a == again && a != b);
        for cell in [a, b, canvas.cell(COLUMNS + 1)] {
            assert!(cell.iter().any(|pixel| *pixel > 0x8080_8080), "{cell:?}");
            assert!(cell.contains(&0), "{cell:?}");
        }
        assert!(canvas.cell(2).iter().all(|pixel| *pixel == 0));
    }

    #[test]
    fn what_has_changed_is_drawn_some_cells_at_a_time() {
        let mut canvas = Canvas::new(smallest());
        let (mut screen, mut picture) = (Screen::new(), Picture::new());
        picture.fit(smallest());
        screen.clear(&mut picture);
        picture.go_on(CELLS, &mut canvas);
        let area = canvas.count / CELLS;
        canvas.count = 0;
        print("natgate", &mut screen, &mut picture);
        assert!(!picture.go_on(5, &mut canvas));
        assert_eq!(canvas.count, 5 * area);
        assert!(picture.go_on(5, &mut canvas));
        assert_eq!(canvas.count, 7 * area);
        // Lines that scroll away before they are drawn cost nothing.
        canvas.count = 0;
        print(&"x\n".repeat(1000), &mut screen, &mut picture);
        print(&"\n".repeat(30), &mut screen, &mut picture);
        assert!(picture.go_on(CELLS, &mut canvas));
        assert_eq!(canvas.count, 7 * area);
    }

    #[test]
    fn pixels_are_where_the_format_says() {
        let format = Format::new(0x1000, 64, 10, 3).expect("it is one");
        assert_eq!((format.place(9, 2), format.end()), (0x1000 + 128 + 36, 0x1000 + 192));
        for (address, pitch, width, height) in [
            (0, 64, 10, 3),
            (0x1002, 64, 10, 3),
            (0x1000, 62, 10, 3),
            (0x1000, 36, 10, 3),
            (0x1000, 64, 0, 3),
            (u64::MAX - 63, 64, 10, 3),
            (0x1000, 64, 1 << 30, 3),
        ] {
            assert_eq!(Format::new(address, pitch, width, height), None);
        }
    }
}
