//! The screen, the serial port and the keyboard.
//!
//! Printing never waits. A queue holds the bytes that the serial port cannot take yet, and the
//! cells hold the text that a slow screen does not show yet. [`pump`] continues both.

use super::display::Display;
use super::ports::{in8, out8};
use super::sole::Sole;
use natgate_bare::keys::Keyboard;
use std::fmt;

/// The first serial port.
const SERIAL: u16 = 0x3f8;
const LINE_STATUS: u16 = SERIAL + 5;
/// Bytes in the port's own queue once it is empty.
const FIFO: usize = 16;

/// Ports of the keyboard controller.
const KEYBOARD: u16 = 0x60;
const KEYBOARD_STATUS: u16 = 0x64;

/// Most bytes that wait for the serial port; further bytes are not sent.
const QUEUE: usize = 64 << 10;

static CONSOLE: Sole<Console> = Sole::new(Console::new());

struct Console {
    display: Display,
    keyboard: Keyboard,
    has_serial: bool,
    queue: [u8; QUEUE],
    first: usize,
    count: usize,
}

impl Console {
    const fn new() -> Self {
        Self {
            display: Display::new(),
            keyboard: Keyboard::new(),
            has_serial: false,
            queue: [0; QUEUE],
            first: 0,
            count: 0,
        }
    }

    fn print(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.display.put(*byte);
            if *byte == b'\n' {
                self.enqueue(b'\r');
            }
            self.enqueue(*byte);
        }
        self.pump();
    }

    fn enqueue(&mut self, byte: u8) {
        if self.has_serial && self.count < QUEUE {
            self.queue[(self.first + self.count) % QUEUE] = byte;
            self.count += 1;
        }
    }

    /// Continues with waiting output; returns true if none is left.
    fn pump(&mut self) -> bool {
        const EMPTY: u8 = 1 << 5;
        let is_shown = self.display.go_on();
        if self.count > 0 && in8(LINE_STATUS) & EMPTY != 0 {
            for _ in 0..FIFO.min(self.count) {
                out8(SERIAL, self.queue[self.first]);
                self.first = (self.first + 1) % QUEUE;
                self.count -= 1;
            }
        }
        is_shown && self.count == 0
    }

    fn key(&mut self) -> Option<u8> {
        const HAS_BYTE: u8 = 1;
        if self.has_serial && in8(LINE_STATUS) & HAS_BYTE != 0 {
            return Some(in8(SERIAL));
        }
        let status = in8(KEYBOARD_STATUS);
        if status == u8::MAX || status & HAS_BYTE == 0 {
            return None;
        }
        self.keyboard.key(in8(KEYBOARD))
    }
}

/// Sets the serial port up (115,200 bits a second, 8 data bits, no parity) and clears the screen.
/// Returns false if there is no usable screen.
pub(crate) fn start() -> bool {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 0xc7), (4, 3)] {
        out8(SERIAL + register, value);
    }
    CONSOLE.with(|console| {
        // Without a port all bits are ones.
        console.has_serial = in8(LINE_STATUS) != u8::MAX;
        console.display.start()
    })
}

/// Prints bytes.
pub(crate) fn print(bytes: &[u8]) {
    CONSOLE.with(|console| console.print(bytes));
}

/// Sends and shows some of the waiting output; returns true if none is left.
pub(crate) fn pump() -> bool {
    CONSOLE.with(Console::pump)
}

/// The next key that was pressed.
pub(crate) fn key() -> Option<u8> {
    CONSOLE.with(Console::key)
}

/// Takes the console from a printing processor, for the last words. That processor does not
/// continue.
pub(super) fn seize() {
    CONSOLE.seize();
}

/// Writer for last words. It allocates nothing and interrupts other output.
pub(crate) struct LastWords;

impl LastWords {
    pub(crate) fn new() -> Self {
        seize();
        Self
    }
}

impl fmt::Write for LastWords {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        print(text.as_bytes());
        Ok(())
    }
}
