//! A packet in a buffer that has room behind it.

/// An IPv4 packet at the start of a buffer. The packet may grow up to the buffer's end.
#[derive(Debug)]
pub struct Room<'b> {
    buffer: &'b mut [u8],
    len: usize,
}

impl<'b> Room<'b> {
    /// The packet in the first `len` bytes of a buffer.
    ///
    /// # Panics
    /// When `len` is beyond the buffer.
    pub fn new(buffer: &'b mut [u8], len: usize) -> Self {
        assert!(len <= buffer.len());
        Self { buffer, len }
    }

    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The packet, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }

    /// Length of the buffer, bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Changes the packet's length.
    ///
    /// # Panics
    /// When `len` is beyond the buffer.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.buffer.len());
        self.len = len;
    }
}
