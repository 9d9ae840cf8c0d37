//! The program `select`, made by `natgate p4 compile --emit rust`: changes belong into the program.

use natgate_p4::rt::*;

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    valid: bool,
    a: u16,
    b: u16,
    c: u32,
}

impl Words {
    #[inline(always)]
    fn read(bytes: [u8; 8]) -> Self {
        Self {
            valid: true,
            a: u16::from_be_bytes([bytes[0], bytes[1]]),
            b: u16::from_be_bytes([bytes[2], bytes[3]]),
            c: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0..2].copy_from_slice(&self.a.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.b.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.c.to_be_bytes());
        bytes
    }
}

/// Headers, metadata and variables of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    main_parser_hdr_words: Words,
    main_parser_meta_note: u32,
    main_parser_istd_direction: u32,
    main_parser_istd_pass: u8,
    main_parser_istd_loopedback: bool,
    main_parser_istd_input_port: u32,
    pre_hdr_words: Words,
    pre_meta_note: u32,
    pre_istd_input_port: u32,
    pre_istd_parser_error: u32,
    pre_istd_direction: u32,
    pre_istd_pass: u8,
    pre_istd_loopedback: bool,
    pre_ostd_decrypt: bool,
    pre_ostd_said: u32,
    pre_ostd_decrypt_start_offset: u16,
    main_hdr_words: Words,
    main_meta_note: u32,
    main_istd_direction: u32,
    main_istd_pass: u8,
    main_istd_loopedback: bool,
    main_istd_timestamp: u64,
    main_istd_parser_error: u32,
    main_istd_class_of_service: u8,
    main_istd_input_port: u32,
    main_ostd_class_of_service: u8,
    deparser_hdr_words: Words,
    deparser_meta_note: u32,
    deparser_ostd_class_of_service: u8,
}

/// The table that is being applied, with the key and where its entry is.
#[derive(Clone, Copy, Debug)]
enum Applied {
    Nothing,
}

/// The program's tables, and what its objects remember.
#[derive(Debug)]
pub struct Select {}
impl Select {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {}
    }

    #[inline(always)]
    fn run<'r, P: Pass>(
        &'r mut self,
        world: &'r mut World,
        packet: &'r [u8],
        head: &'r mut Vec<u8>,
        pass: P,
    ) -> Run<'r, P> {
        let errors = Errors { too_short: 1, timeout: 5 };
        Run {
            now: world.now(),
            tick: world.tick(),
            code: self,
            world,
            head,
            input: Input::new(packet, errors),
            port: None,
            applied: Applied::Nothing,
            pass,
            v: Slots::default(),
        }
    }
}

impl Execute for Select {
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict {
        let mut run = self.run(world, packet, head, Work);
        run.process(port);
        Verdict {
            port: run.port,
            taken: run.input.taken(),
        }
    }

    fn table(&self, number: usize) -> &dyn Store {
        match number {
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            _ => panic!("there is no table {number}"),
        }
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match object {
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match object {
            _ => false,
        }
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        match object {
            _ => None,
        }
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        match object {
            _ => false,
        }
    }

    fn clear(&mut self) {}
}

/// A packet on its way.
struct Run<'r, P> {
    code: &'r mut Select,
    world: &'r mut World,
    now: u64,
    tick: Tick,
    input: Input<'r>,
    head: &'r mut Vec<u8>,
    port: Option<u32>,
    applied: Applied,
    pass: P,
    v: Slots,
}

impl<P: Pass> Run<'_, P> {
    /// Takes the packet through the program.
    #[inline(always)]
    fn process(&mut self, port: u32) {
        self.begin(port);
        self.finish();
    }

    /// As far as nothing waits for a large table.
    #[inline(always)]
    fn begin(&mut self, port: u32) {
        self.v.main_parser_istd_input_port = port as u32;
        self.v.pre_istd_input_port = port as u32;
        self.v.main_istd_input_port = port as u32;
        self.v.main_istd_timestamp = self.now as u64;
        if let Err(Stop::Reject(error)) = self.parse_main_parser() {
            self.v.pre_istd_parser_error = error as u32;
            self.v.main_istd_parser_error = error as u32;
        }
        self.v.pre_hdr_words = self.v.main_parser_hdr_words;
        self.v.pre_meta_note = self.v.main_parser_meta_note;
        self.pre();
        self.v.main_hdr_words = self.v.main_parser_hdr_words;
        self.v.main_meta_note = self.v.pre_meta_note;
    }

    /// The rest; on the way ahead, whether there may be more to fetch.
    #[inline(always)]
    fn finish(&mut self) -> bool {
        self.main();
        if P::IS_AHEAD {
            return false;
        }
        self.v.deparser_hdr_words = self.v.main_hdr_words;
        self.v.deparser_meta_note = self.v.main_meta_note;
        self.deparser();
        false
    }

    /// The parser `MainParser`.
    #[inline(always)]
    fn parse_main_parser(&mut self) -> Result<(), Stop> {
        self.parse_main_parser_start()
    }

    /// Its state `start`.
    #[inline(always)]
    fn parse_main_parser_start(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.main_parser_hdr_words = Words::read(self.input.extract()?);
        let key_0 = self.v.main_parser_hdr_words.a;
        let key_1 = self.v.main_parser_hdr_words.b;
        if key_0 == 1_u16 && key_1 == 2_u16 {
            self.parse_main_parser_values()
        } else if key_0 & 0xff00_u16 == 0x1200_u16 {
            self.parse_main_parser_mask()
        } else if key_0 & 0xfff8_u16 == 0x3e8_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff8_u16 == 0x3e8_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff8_u16 == 0x3e8_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff0_u16 == 0x3f0_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff0_u16 == 0x3f0_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff0_u16 == 0x3f0_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfe00_u16 == 0x400_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfe00_u16 == 0x400_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfe00_u16 == 0x400_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xff00_u16 == 0x600_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xff00_u16 == 0x600_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xff00_u16 == 0x600_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xff80_u16 == 0x700_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xff80_u16 == 0x700_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xff80_u16 == 0x700_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xffc0_u16 == 0x780_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xffc0_u16 == 0x780_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xffc0_u16 == 0x780_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff0_u16 == 0x7c0_u16 && key_1 == 5_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff0_u16 == 0x7c0_u16 && key_1 & 0xfffe_u16 == 6_u16 {
            self.parse_main_parser_ranges()
        } else if key_0 & 0xfff0_u16 == 0x7c0_u16 && key_1 & 0xfffe_u16 == 8_u16 {
            self.parse_main_parser_ranges()
        } else {
            self.parse_main_parser_other()
        }
    }

    /// Its state `values`.
    #[inline(always)]
    fn parse_main_parser_values(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.main_parser_meta_note = 1_u32;
        Ok(())
    }

    /// Its state `mask`.
    #[inline(always)]
    fn parse_main_parser_mask(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.main_parser_meta_note = 2_u32;
        Ok(())
    }

    /// Its state `ranges`.
    #[inline(always)]
    fn parse_main_parser_ranges(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.main_parser_meta_note = 3_u32;
        Ok(())
    }

    /// Its state `other`.
    #[inline(always)]
    fn parse_main_parser_other(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.main_parser_meta_note = 4_u32;
        Ok(())
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `Pre`.
    #[inline(always)]
    fn pre(&mut self) {}
    /// `Main`.
    #[inline(always)]
    fn main(&mut self) {
        self.port = Some(2_u32 as u32);
        self.v.main_hdr_words.c = self.v.main_meta_note;
    }

    /// `Deparser`.
    #[inline(always)]
    fn deparser(&mut self) {
        if self.v.deparser_hdr_words.valid {
            self.head.extend_from_slice(&self.v.deparser_hdr_words.bytes());
        }
    }
}
