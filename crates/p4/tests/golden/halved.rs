//! The program `halved`, made by `natgate p4 compile --emit rust`: changes belong into the program.

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

/// What entries of `Main.small` do.
#[derive(Clone, Copy, Debug)]
enum SmallAction {
    Set { x: u32 },
    Mark { x: u16 },
    NoAction,
}

impl Action for SmallAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                SmallAction::Set {
                    x: args[0] as u32,
                }
            }
            1 => {
                SmallAction::Mark {
                    x: args[0] as u16,
                }
            }
            _ => SmallAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Set { .. } => 0,
            Self::Mark { .. } => 1,
            Self::NoAction { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Set { x } => vec![* x as u128],
            Self::Mark { x } => vec![* x as u128],
            Self::NoAction {} => vec![],
        }
    }
}

/// What entries of `Main.learning` do.
#[derive(Clone, Copy, Debug)]
enum LearningAction {
    Known { x: u32 },
    Learn,
}

impl Action for LearningAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                LearningAction::Known {
                    x: args[0] as u32,
                }
            }
            _ => LearningAction::Learn,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Known { .. } => 0,
            Self::Learn { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Known { x } => vec![* x as u128],
            Self::Learn {} => vec![],
        }
    }
}

/// What entries of `Main.large` do.
#[derive(Clone, Copy, Debug)]
enum LargeAction {
    Take { x: u32 },
    Leave,
    NoAction,
}

impl Action for LargeAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                LargeAction::Take {
                    x: args[0] as u32,
                }
            }
            1 => LargeAction::Leave,
            _ => LargeAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Take { .. } => 0,
            Self::Leave { .. } => 1,
            Self::NoAction { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Take { x } => vec![* x as u128],
            Self::Leave {} => vec![],
            Self::NoAction {} => vec![],
        }
    }
}

/// Headers, metadata and variables of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    main_parser_hdr_words: Words,
    main_parser_hdr_other: Words,
    main_parser_meta_note: u32,
    main_parser_meta_kept: u32,
    main_parser_meta_kind: u8,
    main_parser_meta_was_hit: bool,
    main_parser_istd_direction: u32,
    main_parser_istd_pass: u8,
    main_parser_istd_loopedback: bool,
    main_parser_istd_input_port: u32,
    pre_hdr_words: Words,
    pre_hdr_other: Words,
    pre_meta_note: u32,
    pre_meta_kept: u32,
    pre_meta_kind: u8,
    pre_meta_was_hit: bool,
    pre_istd_input_port: u32,
    pre_istd_parser_error: u32,
    pre_istd_direction: u32,
    pre_istd_pass: u8,
    pre_istd_loopedback: bool,
    pre_ostd_decrypt: bool,
    pre_ostd_said: u32,
    pre_ostd_decrypt_start_offset: u16,
    main_hdr_words: Words,
    main_hdr_other: Words,
    main_meta_note: u32,
    main_meta_kept: u32,
    main_meta_kind: u8,
    main_meta_was_hit: bool,
    main_istd_direction: u32,
    main_istd_pass: u8,
    main_istd_loopedback: bool,
    main_istd_timestamp: u64,
    main_istd_parser_error: u32,
    main_istd_class_of_service: u8,
    main_istd_input_port: u32,
    main_ostd_class_of_service: u8,
    main_adder_sum: u32,
    main_adder_more: u32,
    main_adder_calls: u16,
    main_adder_result: u16,
    main_calls: u16,
    main_local: u32,
    main_drawn: u16,
    main_set_x: u32,
    main_mark_x: u16,
    main_known_x: u32,
    main_learn_result: bool,
    main_take_x: u32,
    main_tmp: bool,
    main_tmp_2: u32,
    main_small_hit: bool,
    main_tmp_3: bool,
    main_tmp_4: u32,
    main_result: u16,
    main_result_2: u32,
    main_number: u32,
    main_tmp_5: bool,
    main_tmp_6: u32,
    main_result_3: u16,
    main_tmp_7: bool,
    main_tmp_8: u32,
    deparser_hdr_words: Words,
    deparser_hdr_other: Words,
    deparser_meta_note: u32,
    deparser_meta_kept: u32,
    deparser_meta_kind: u8,
    deparser_meta_was_hit: bool,
    deparser_ostd_class_of_service: u8,
    sum_sum: u16,
}

/// The table that is being applied, with the key and where its entry is.
#[derive(Clone, Copy, Debug)]
enum Applied {
    Nothing,
    Learning { key: u64, place: Place },
}

/// The program's tables, and what its objects remember.
#[derive(Debug)]
pub struct Halved {
    small: Exact<u64, SmallAction>,
    learning: Exact<u64, LearningAction>,
    large: Exact<u64, LargeAction>,
    counted: Counters,
    numbers: Registers<u32>,
    chance: Random,
    seen: Registers<u16>,
}

impl Halved {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            small: Exact::new(&[16], 8, false, SmallAction::NoAction),
            learning: Exact::new(&[16, 8], 4, true, LearningAction::Learn),
            large: Exact::new(&[32, 16], 9000, false, LargeAction::NoAction),
            counted: Counters::new(100, 0xffff_u64),
            numbers: Registers::new(16, 7_u32),
            chance: Random::new(seed),
            seen: Registers::new(4, 0_u16),
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

impl Execute for Halved {
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

    fn forward_all(
        &mut self,
        world: &mut World,
        port: u32,
        frames: &mut [Frame<'_>],
        fates: &mut [Fate],
    ) {
        if self.large.is_large() {
            in_halves(self, world, port, frames, fates);
        } else {
            one_by_one(self, world, port, frames, fates);
        }
    }

    fn table(&self, number: usize) -> &dyn Store {
        match number {
            0 => &self.small,
            1 => &self.learning,
            2 => &self.large,
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            0 => &mut self.small,
            1 => &mut self.learning,
            2 => &mut self.large,
            _ => panic!("there is no table {number}"),
        }
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match object {
            0 => self.counted.read(index),
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match object {
            0 => self.counted.set(index, value),
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
        self.counted.clear();
        self.numbers.clear();
        self.seen.clear();
    }
}

/// What the second half needs to know of a packet that has been through the first.
#[derive(Debug, Default)]
pub struct Kept {
    taken: Taken,
    port: Option<u32>,
    main_hdr_words: Words,
    main_hdr_other: Words,
    main_meta_note: u32,
    main_meta_kept: u32,
    main_meta_was_hit: bool,
    main_local: u32,
    main_drawn: u16,
    main_small_hit: bool,
    main_number: u32,
    sum_sum: u16,
}

impl Halved {
    /// A packet at the beginning of the second half.
    #[inline(always)]
    fn resume<'r, P: Pass>(
        &'r mut self,
        world: &'r mut World,
        packet: &'r [u8],
        kept: &Kept,
        head: &'r mut Vec<u8>,
        pass: P,
    ) -> Run<'r, P> {
        let mut run = self.run(world, packet, head, pass);
        run.input.resume(kept.taken);
        run.port = kept.port;
        run.v.main_hdr_words = kept.main_hdr_words;
        run.v.main_hdr_other = kept.main_hdr_other;
        run.v.main_meta_note = kept.main_meta_note;
        run.v.main_meta_kept = kept.main_meta_kept;
        run.v.main_meta_was_hit = kept.main_meta_was_hit;
        run.v.main_local = kept.main_local;
        run.v.main_drawn = kept.main_drawn;
        run.v.main_small_hit = kept.main_small_hit;
        run.v.main_number = kept.main_number;
        run.v.sum_sum = kept.sum_sum;
        run
    }
}

impl Halves for Halved {
    type Kept = Kept;
    #[inline(always)]
    fn begin(&mut self, world: &mut World, port: u32, packet: &[u8], kept: &mut Kept) {
        let mut head = Vec::new();
        let mut run = self.run(world, packet, &mut head, Work);
        run.begin(port);
        kept.taken = run.input.so_far();
        kept.port = run.port;
        kept.main_hdr_words = run.v.main_hdr_words;
        kept.main_hdr_other = run.v.main_hdr_other;
        kept.main_meta_note = run.v.main_meta_note;
        kept.main_meta_kept = run.v.main_meta_kept;
        kept.main_meta_was_hit = run.v.main_meta_was_hit;
        kept.main_local = run.v.main_local;
        kept.main_drawn = run.v.main_drawn;
        kept.main_small_hit = run.v.main_small_hit;
        kept.main_number = run.v.main_number;
        kept.sum_sum = run.v.sum_sum;
    }

    #[inline(always)]
    fn fetch(
        &mut self,
        world: &mut World,
        packet: &[u8],
        kept: &Kept,
        found: u32,
    ) -> bool {
        self.resume(world, packet, kept, &mut Vec::new(), Ahead::new(found)).finish()
    }

    #[inline(always)]
    fn finish(
        &mut self,
        world: &mut World,
        packet: &[u8],
        kept: &Kept,
        head: &mut Vec<u8>,
    ) -> Verdict {
        let mut run = self.resume(world, packet, kept, head, Work);
        run.finish();
        Verdict {
            port: run.port,
            taken: run.input.taken(),
        }
    }
}

/// A packet on its way.
struct Run<'r, P> {
    code: &'r mut Halved,
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
        self.v.pre_hdr_other = self.v.main_parser_hdr_other;
        self.v.pre_meta_note = self.v.main_parser_meta_note;
        self.v.pre_meta_kept = self.v.main_parser_meta_kept;
        self.v.pre_meta_kind = self.v.main_parser_meta_kind;
        self.v.pre_meta_was_hit = self.v.main_parser_meta_was_hit;
        let _ = self.pre();
        self.v.main_hdr_words = self.v.main_parser_hdr_words;
        self.v.main_hdr_other = self.v.main_parser_hdr_other;
        self.v.main_meta_note = self.v.pre_meta_note;
        self.v.main_meta_kept = self.v.pre_meta_kept;
        self.v.main_meta_kind = self.v.pre_meta_kind;
        self.v.main_meta_was_hit = self.v.pre_meta_was_hit;
        self.main_first();
    }

    /// The rest; on the way ahead, whether there may be more to fetch.
    #[inline(always)]
    fn finish(&mut self) -> bool {
        if let Err(Stop::Ahead { more }) = self.main() {
            return more;
        }
        if P::IS_AHEAD {
            return false;
        }
        self.v.deparser_hdr_words = self.v.main_hdr_words;
        self.v.deparser_hdr_other = self.v.main_hdr_other;
        self.v.deparser_meta_note = self.v.main_meta_note;
        self.v.deparser_meta_kept = self.v.main_meta_kept;
        self.v.deparser_meta_kind = self.v.main_meta_kind;
        self.v.deparser_meta_was_hit = self.v.main_meta_was_hit;
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
        self.v.main_parser_meta_kept = self.v.main_parser_hdr_words.c;
        let key_0 = self.v.main_parser_hdr_words.b as u8 & 3_u8;
        if key_0 == 1_u8 { self.parse_main_parser_more() } else { Ok(()) }
    }

    /// Its state `more`.
    #[inline(always)]
    fn parse_main_parser_more(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.main_parser_hdr_other = Words::read(self.input.extract()?);
        Ok(())
    }

    /// Applies `Main.small`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_small(&mut self) -> (bool, u32) {
        let key = self.v.main_hdr_words.a as u64;
        let (found, place) = self.code.small.find(self.tick, key);
        match found.action {
            SmallAction::Set { x } => {
                self.v.main_set_x = x;
                self.main_set()
            }
            SmallAction::Mark { x } => {
                self.v.main_mark_x = x;
                self.main_mark()
            }
            SmallAction::NoAction {} => self.no_action(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Main.learning`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_learning(&mut self) -> (bool, u32) {
        let key = (self.v.main_hdr_words.a as u64) << 8 | self.v.main_meta_kind as u64;
        let (found, place) = self.code.learning.find(self.tick, key);
        self.applied = Applied::Learning { key, place };
        match found.action {
            LearningAction::Known { x } => {
                self.v.main_known_x = x;
                self.main_known()
            }
            LearningAction::Learn {} => self.main_learn(),
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Main.large`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_large(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = (self.v.main_meta_note as u64) << 16 | self.v.main_hdr_words.b as u64;
        let (found, place) = match self.pass.find(&self.code.large, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        let flow = match found.action {
            LargeAction::Take { x } => {
                self.v.main_take_x = x;
                self.main_take();
                Ok(())
            }
            LargeAction::Leave {} => self.main_leave(),
            LargeAction::NoAction {} => {
                self.no_action();
                Ok(())
            }
        };
        (found.hit, found.action.number() as u32, flow)
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `Pre`.
    #[inline(always)]
    fn pre(&mut self) -> Result<(), Stop> {
        self.v.pre_meta_kind = self.v.pre_hdr_words.a as u8;
        if self.v.pre_meta_kind == 3_u8 {
            return Err(Stop::Exit);
        }
        self.v.pre_meta_note = 77_u32;
        Ok(())
    }

    /// `Main.adder`.
    #[inline(always)]
    fn main_adder(&mut self) -> Result<(), Stop> {
        let index = ((if (((self.v.main_adder_sum as u8 & 3_u8) as u8) << 6 | 0_u8 as u8)
            == 0_u8
        {
            0_u8
        } else {
            1_u8
        })) as u128;
        self.v.main_adder_result = self.pass.read(&self.code.seen, index);
        self.v.main_adder_calls = self.v.main_adder_result;
        if self.v.main_adder_more == 2_u32 {
            self.v.main_adder_calls = 9_u16;
            return Ok(());
        }
        self.v.main_adder_sum = self
            .v
            .main_adder_sum
            .wrapping_add(self.v.main_adder_more);
        let index = 0x0_u128;
        self.pass
            .write(
                &mut self.code.seen,
                index,
                self.v.main_adder_calls.wrapping_add(1_u16),
            );
        if (self.v.main_adder_sum as u8 & 7_u8) == 5_u8 {
            self.v.main_adder_sum = 0_u32;
            return Err(Stop::Exit);
        }
        Ok(())
    }

    /// `Main.set`.
    #[inline(always)]
    fn main_set(&mut self) {
        self.v.main_meta_note = self.v.main_set_x;
    }

    /// `Main.mark`.
    #[inline(always)]
    fn main_mark(&mut self) {
        self.v.main_hdr_words.b = self.v.main_hdr_words.b ^ self.v.main_mark_x;
        self.v.main_hdr_other.valid = false;
    }

    /// `Main.known`.
    #[inline(always)]
    fn main_known(&mut self) {
        self.v.main_local = self.v.main_local.wrapping_add(self.v.main_known_x);
        match &self.applied {
            Applied::Learning { place, .. } => {
                self.pass.restart(&mut self.code.learning, self.now, *place)
            }
            _ => {}
        }
    }

    /// `Main.learn`.
    #[inline(always)]
    fn main_learn(&mut self) {
        let timeout = self.world.timeout(0x1_u128);
        self.v.main_learn_result = match &mut self.applied {
            Applied::Learning { key, place } => {
                let added = self
                    .pass
                    .add(
                        &mut self.code.learning,
                        self.now,
                        *key,
                        LearningAction::Known {
                            x: self.v.main_meta_kept,
                        },
                        timeout,
                    );
                *place = added.or(*place);
                added.is_some()
            }
            _ => false,
        };
    }

    /// `Main.take`.
    #[inline(always)]
    fn main_take(&mut self) {
        self.v.main_hdr_words.c = self
            .v
            .main_hdr_words
            .c
            .wrapping_add(self.v.main_take_x);
    }

    /// `Main.leave`.
    #[inline(always)]
    fn main_leave(&mut self) -> Result<(), Stop> {
        self.v.main_meta_kept = 1_u32;
        return Err(Stop::Exit);
        Ok(())
    }

    /// The first half of `Main`, which waits for no large table.
    #[inline(always)]
    fn main_first(&mut self) {
        self.v.main_calls = 0_u16;
        self.v.main_local = 0_u32;
        self.v.main_drawn = 0_u16;
        self.port = Some(2_u32 as u32);
        self.pass
            .count(
                &mut self.code.counted,
                self.v.main_meta_kind as u128,
                self.v.main_hdr_words.c as u128,
            );
        let (hit, action) = self.apply_small();
        self.v.main_tmp = hit;
        self.v.main_tmp_2 = action as u32;
        self.v.main_small_hit = self.v.main_tmp;
        self.v.main_meta_was_hit = self.v.main_small_hit;
        let (hit, action) = self.apply_learning();
        self.v.main_tmp_3 = hit;
        self.v.main_tmp_4 = action as u32;
        if !self.v.main_tmp_3 {
            self.v.main_local = self.v.main_local ^ 85_u32;
        }
        self.v.sum_sum = 0;
        let part_0 = self.v.main_hdr_words.a;
        let part_1 = self.v.main_hdr_words.c;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [part_0, ((part_1 >> 16) as u16), (part_1 as u16)],
        );
        self.v.main_result = ((self.pass.next(&mut self.code.chance, 0x3, 0x3e8)
            & 0xffff)) as u16;
        self.v.main_drawn = self.v.main_result;
        let index = (self.v.main_hdr_words.a as u8) as u128;
        self.v.main_result_2 = self.pass.read(&self.code.numbers, index);
        self.v.main_number = self.v.main_result_2;
        let index = (self.v.main_hdr_words.a as u8) as u128;
        self.pass
            .write(
                &mut self.code.numbers,
                index,
                self.v.main_number.wrapping_add(1_u32),
            );
        if self.v.main_meta_kind == 2_u8 {
            self.port = None;
        }
    }

    /// The second half of `Main`.
    #[inline(always)]
    fn main(&mut self) -> Result<(), Stop> {
        let (hit, action, flow) = self.apply_large(false);
        self.v.main_tmp_5 = hit;
        self.v.main_tmp_6 = action as u32;
        flow?;
        match self.v.main_tmp_6 {
            0_u32 => {
                self.v.main_adder_sum = self.v.main_local;
                self.v.main_adder_more = self.v.main_meta_note;
                self.v.main_adder_calls = 0_u16;
                let flow = self.main_adder();
                self.v.main_local = self.v.main_adder_sum;
                self.v.main_calls = self.v.main_adder_calls;
                flow?;
                self.v.main_hdr_words.b = self.v.main_calls;
            }
            2_u32 => {
                if self.v.main_meta_was_hit {
                    self.port = Some((self.v.main_drawn as u32) as u32);
                }
            }
            _ => {}
        }
        if (self.v.main_hdr_words.a as u8 & 1_u8) == 1_u8 {
            self.v.main_local = self.v.main_number;
        }
        if !P::IS_AHEAD {
            self.world
                .tell(
                    3,
                    vec![self.v.main_hdr_words.a as u128, self.v.main_meta_note as u128],
                );
        }
        self.v.main_result_3 = (!self.v.sum_sum as u128) as u16;
        self.v.main_hdr_words.a = self.v.main_result_3;
        self.v.main_hdr_words.c = ((self.v.main_hdr_words.c ^ self.v.main_local)
            ^ self.v.main_number) ^ self.v.main_meta_kept;
        if self.v.main_small_hit {
            let (hit, action, flow) = self.apply_large(false);
            self.v.main_tmp_7 = hit;
            self.v.main_tmp_8 = action as u32;
            flow?;
        }
        self.v.main_hdr_words.b = self
            .v
            .main_hdr_words
            .b
            .wrapping_add(self.v.main_drawn);
        Ok(())
    }

    /// `Deparser`.
    #[inline(always)]
    fn deparser(&mut self) {
        if self.v.deparser_hdr_words.valid {
            self.head.extend_from_slice(&self.v.deparser_hdr_words.bytes());
        }
        if !(self.v.deparser_meta_kept == 1_u32) {
            if self.v.deparser_hdr_other.valid {
                self.head.extend_from_slice(&self.v.deparser_hdr_other.bytes());
            }
        }
    }
}
