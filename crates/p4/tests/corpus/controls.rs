//! The program `controls`, made by `natgate p4 compile --emit rust`: changes belong into the program.

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

/// What entries of `Main.first.add` do.
#[derive(Clone, Copy, Debug)]
enum AddAction {
    Plus { x: u16 },
    NoAction,
}

impl Action for AddAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                AddAction::Plus {
                    x: args[0] as u16,
                }
            }
            _ => AddAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Plus { .. } => 0,
            Self::NoAction { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Plus { x } => vec![* x as u128],
            Self::NoAction {} => vec![],
        }
    }
}

/// What entries of `Main.second.add` do.
#[derive(Clone, Copy, Debug)]
enum AddAction2 {
    Plus { x: u16 },
    NoAction,
}

impl Action for AddAction2 {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                AddAction2::Plus {
                    x: args[0] as u16,
                }
            }
            _ => AddAction2::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Plus { .. } => 0,
            Self::NoAction { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Plus { x } => vec![* x as u128],
            Self::NoAction {} => vec![],
        }
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
    main_first_key: u16,
    main_first_sum: u16,
    main_first_calls: u16,
    main_first_plus_x: u16,
    main_first_tmp: bool,
    main_first_tmp_2: u32,
    main_first_result: u16,
    main_second_key: u16,
    main_second_sum: u16,
    main_second_calls: u16,
    main_second_plus_x: u16,
    main_second_tmp: bool,
    main_second_tmp_2: u32,
    main_second_result: u16,
    main_sum: u16,
    main_calls: u16,
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
pub struct Controls {
    add: Exact<u64, AddAction>,
    add_2: Exact<u64, AddAction2>,
    seen: Registers<u16>,
    seen_2: Registers<u16>,
}

impl Controls {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            add: Exact::new(&[16], 1024, false, AddAction::NoAction),
            add_2: Exact::new(&[16], 1024, false, AddAction2::NoAction),
            seen: Registers::new(1, 0_u16),
            seen_2: Registers::new(1, 0_u16),
        }
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

impl Execute for Controls {
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
            0 => &self.add,
            1 => &self.add_2,
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            0 => &mut self.add,
            1 => &mut self.add_2,
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

    fn clear(&mut self) {
        self.seen.clear();
        self.seen_2.clear();
    }
}

/// A packet on its way.
struct Run<'r, P> {
    code: &'r mut Controls,
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
        Ok(())
    }

    /// Applies `Main.first.add`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_add(&mut self) -> (bool, u32) {
        let key = self.v.main_first_key as u64;
        let (found, place) = self.code.add.find(self.tick, key);
        match found.action {
            AddAction::Plus { x } => {
                self.v.main_first_plus_x = x;
                self.main_first_plus()
            }
            AddAction::NoAction {} => self.no_action(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Main.second.add`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_add_2(&mut self) -> (bool, u32) {
        let key = self.v.main_second_key as u64;
        let (found, place) = self.code.add_2.find(self.tick, key);
        match found.action {
            AddAction2::Plus { x } => {
                self.v.main_second_plus_x = x;
                self.main_second_plus()
            }
            AddAction2::NoAction {} => self.no_action(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `Pre`.
    #[inline(always)]
    fn pre(&mut self) {}
    /// `Main.first.plus`.
    #[inline(always)]
    fn main_first_plus(&mut self) {
        self.v.main_first_sum = self
            .v
            .main_first_sum
            .wrapping_add(self.v.main_first_plus_x);
    }

    /// `Main.first`.
    #[inline(always)]
    fn main_first(&mut self) {
        let (hit, action) = self.apply_add();
        self.v.main_first_tmp = hit;
        self.v.main_first_tmp_2 = action as u32;
        let index = 0x0_u128;
        self.v.main_first_result = self.pass.read(&self.code.seen, index);
        self.v.main_first_calls = self.v.main_first_result.wrapping_add(1_u16);
        let index = 0x0_u128;
        self.pass.write(&mut self.code.seen, index, self.v.main_first_calls);
    }

    /// `Main.second.plus`.
    #[inline(always)]
    fn main_second_plus(&mut self) {
        self.v.main_second_sum = self
            .v
            .main_second_sum
            .wrapping_add(self.v.main_second_plus_x);
    }

    /// `Main.second`.
    #[inline(always)]
    fn main_second(&mut self) {
        let (hit, action) = self.apply_add_2();
        self.v.main_second_tmp = hit;
        self.v.main_second_tmp_2 = action as u32;
        let index = 0x0_u128;
        self.v.main_second_result = self.pass.read(&self.code.seen_2, index);
        self.v.main_second_calls = self.v.main_second_result.wrapping_add(1_u16);
        let index = 0x0_u128;
        self.pass.write(&mut self.code.seen_2, index, self.v.main_second_calls);
    }

    /// `Main`.
    #[inline(always)]
    fn main(&mut self) {
        self.port = Some(2_u32 as u32);
        self.v.main_sum = 0_u16;
        self.v.main_calls = 0_u16;
        self.v.main_first_key = self.v.main_hdr_words.a;
        self.v.main_first_sum = self.v.main_sum;
        self.v.main_first_calls = 0_u16;
        self.main_first();
        self.v.main_sum = self.v.main_first_sum;
        self.v.main_calls = self.v.main_first_calls;
        self.v.main_hdr_words.c = (self.v.main_hdr_words.c & 0xffff_u32)
            | ((self.v.main_calls as u32) << 16);
        self.v.main_second_key = self.v.main_hdr_words.a;
        self.v.main_second_sum = self.v.main_sum;
        self.v.main_second_calls = 0_u16;
        self.main_second();
        self.v.main_sum = self.v.main_second_sum;
        self.v.main_calls = self.v.main_second_calls;
        self.v.main_hdr_words.c = (self.v.main_hdr_words.c & 0xffff0000_u32)
            | ((self.v.main_calls as u32) << 0);
        self.v.main_hdr_words.b = self.v.main_sum;
    }

    /// `Deparser`.
    #[inline(always)]
    fn deparser(&mut self) {
        if self.v.deparser_hdr_words.valid {
            self.head.extend_from_slice(&self.v.deparser_hdr_words.bytes());
        }
    }
}
