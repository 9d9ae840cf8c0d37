//! The duty of a worker's engine in a slice, and the blocks that the worker leaves with it.

use super::Slice;
use crate::fleet::board::Order;
use natgate_engine::{AddressRange, Duty, Engine};

/// Addresses whose blocks a worker leaves in one turn, and addresses that it looks at.
const ADDRESSES_A_TURN: usize = 16;
const LOOKS_A_TURN: usize = 1 << 14;

/// Ports of blocks in use after which the turn's share is done. An address is done as a whole.
const PORTS_A_TURN: usize = 1 << 16;

impl Slice {
    /// Makes the engine do its duty in the slice.
    pub(super) fn set_duty(&mut self, engine: &mut Engine, assigns: bool, order: &Order) {
        let keeps = !order.owns || self.is_moved;
        let duty = Duty { assigns, keeps, owns: order.owns && order.ends == 0 };
        if self.duty == Some(duty) && !self.is_renewed {
            return;
        }
        self.ranges.iter().for_each(|range| engine.set_duty(*range, duty));
        // At the start, blocks may come from a former process.
        let assigned = self.duty.is_none_or(|before| before.assigns);
        (self.duty, self.is_renewed) = (Some(duty), false);
        if assigned && !assigns && self.workers.count > 1 && engine.has_assigned_blocks() {
            self.leaving = Some(0);
        }
    }

    /// Leaves blocks of some addresses that this worker does not give out any more.
    pub(super) fn leave_some(&mut self, engine: &mut Engine) {
        let Some(mut next) = self.leaving else { return };
        let (mut left, mut read) = (ADDRESSES_A_TURN, 0);
        let addresses = self.ranges.iter().flat_map(|range| range.each()).skip(next);
        for address in addresses.take(LOOKS_A_TURN) {
            if engine.has_assigned_blocks_of(address) {
                if left == 0 || read >= PORTS_A_TURN {
                    break;
                }
                let Some(of_address) = engine.leave_blocks(address) else { break };
                (left, read) = (left - 1, read + of_address);
            }
            next += 1;
        }
        let all: usize = self.ranges.iter().map(AddressRange::count).sum();
        self.leaving = (next < all).then_some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::inbound::Inbound;
    use crate::fleet::shared_ports::SharedPorts;
    use crate::fleet::slice::{Workers, YOUNG};
    use crate::fleet::tests::packet;
    use natgate_engine::{
        Allocation, BlockConfig, Change, Config, Cursor, Filter, Packet, PoolConfig, Side,
        Timestamp, Verdict,
    };
    use natgate_ipv6::CopiedHosts;
    use natgate_pair::Stream;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const STREAM: Stream = Stream { epoch: 1, from: 1, to: 1 };

    /// Addresses with one block of ports each.
    const ADDRESSES: AddressRange =
        AddressRange { first: Ipv4Addr::new(203, 0, 113, 1), last: Ipv4Addr::new(203, 0, 113, 40) };

    fn config(allocation: Allocation) -> Config {
        let (addresses, allocation) = (vec![ADDRESSES], Some(allocation));
        let ports = (2048, 2111);
        let pools = vec![PoolConfig { addresses, ports, allocation, ..PoolConfig::default() }];
        Config { pools, ..Config::default() }
    }

    fn blocks() -> Allocation {
        let release_after = Duration::from_secs(60);
        Allocation::Block(BlockConfig { size: 64, max_per_subscriber: 1, release_after })
    }

    /// The engine of one worker of two, which has all ports.
    fn worker_of_two(config: &Config) -> Engine {
        let mut engine = Engine::new(config, [7; 32], Timestamp(0)).expect("it is right");
        engine.divide((0, 2), |_, _| true);
        ADDRESSES.each().for_each(|address| engine.own(address, 0..1024));
        engine.join_pair();
        engine
    }

    /// Sends a datagram of a host. Returns true if it has a mapping.
    fn begin(engine: &mut Engine, now: Timestamp, host: u32) -> bool {
        let mut bytes = packet(None, (0x6440_0000 + host, 4000), (0xc633_6407, 80));
        let mut packets = [Packet::new(&mut bytes, 0)];
        let mut verdicts = [Verdict::Held];
        engine.process(now, Side::Inside, &mut packets, &mut verdicts);
        matches!(verdicts[0], Verdict::Forward(_))
    }

    fn obey(slice: &mut Slice, engine: &mut Engine, order: &Order) {
        slice.obey((engine, &mut SharedPorts::default()), order, Timestamp(0));
    }

    /// The order of the partner's workers.
    fn receives() -> Order {
        Order { turn: 2, source: Some(STREAM), of_partner: 1, ..Order::default() }
    }

    /// The one worker of the node that owns a slice.
    struct Owner {
        engine: Engine,
        slice: Slice,
        now: Timestamp,
    }

    impl Owner {
        fn new(config: &Config, range: AddressRange) -> Self {
            let mut engine = Engine::new(config, [7; 32], Timestamp(0)).expect("it is right");
            engine.join_pair();
            let mut slice = Slice::new(0, Workers { this: 0, count: 1 }, vec![range]);
            let destination = Some(STREAM);
            let order = Order { turn: 1, destination, of_partner: 2, ..Order::default() };
            obey(&mut slice, &mut engine, &Order { owns: true, assigns: true, ..order });
            slice.outbound.as_mut().expect("it owns").note_ready();
            Self { engine, slice, now: Timestamp(0) }
        }

        /// A host begins a flow. Returns the messages that tell the partner.
        fn begin(&mut self, host: u32) -> Vec<Vec<u8>> {
            assert!(begin(&mut self.engine, self.now, host));
            self.now = self.now.plus(YOUNG + YOUNG);
            let sender = &mut self.slice.outbound.as_mut().expect("there is one").sender;
            for key in 0..self.engine.copy_extent() {
                sender.change(key, self.now.0);
            }
            let (mut messages, ports) = (Vec::new(), SharedPorts::default());
            for _ in 0..2 {
                let hosts = CopiedHosts::new(None, self.now);
                let state = (&self.engine, &hosts, &ports);
                self.slice.send(state, (self.now, 1100, 4), None, |message| {
                    messages.push(message.to_vec());
                    true
                });
            }
            messages
        }
    }

    /// A worker of the partner takes messages. Returns true if it confirms packets.
    fn take(slice: &mut Slice, engine: &mut Engine, messages: &[Vec<u8>], now: Timestamp) -> bool {
        for bytes in messages {
            let message = natgate_pair::read(bytes).expect("a message");
            let mut hosts = CopiedHosts::new(None, now);
            slice.receive((engine, &mut hosts, &mut SharedPorts::default()), message, now);
        }
        slice.inbound.iter_mut().filter_map(Inbound::confirm).count() > 0
    }

    #[test]
    fn a_start_and_a_reload_at_a_partner_with_several_workers_drop_no_record() {
        let range = AddressRange {
            first: Ipv4Addr::new(203, 0, 0, 0),
            last: Ipv4Addr::new(203, 0, 255, 255),
        };
        for allocation in [Allocation::Random, blocks()] {
            let config = config(allocation);
            let mut owner = Owner::new(&config, range);
            let mut engine = worker_of_two(&config);
            let mut slice = Slice::new(0, Workers { this: 0, count: 2 }, vec![range]);
            for host in 1..4 {
                obey(&mut slice, &mut engine, &receives());
                let messages = owner.begin(host);
                if host == 1 {
                    // The owner's first state is behind its first packets.
                    take(&mut slice, &mut engine, &messages, owner.now);
                }
                assert!(take(&mut slice, &mut engine, &messages, owner.now));
                assert_eq!(engine.mappings().count(), host as usize);
                slice.renew(&engine, &CopiedHosts::new(None, owner.now));
            }
        }
    }

    /// A copy may be of the next subscriber of a block.
    #[test]
    fn a_worker_takes_no_record_before_it_has_left_its_blocks() {
        let config = config(blocks());
        let messages = Owner::new(&config, ADDRESSES).begin(200);
        let mut engine = worker_of_two(&config);
        let mut slice = Slice::new(0, Workers { this: 0, count: 2 }, vec![ADDRESSES]);
        let owns = Order { turn: 1, owns: true, assigns: true, ..Order::default() };
        obey(&mut slice, &mut engine, &owns);
        let now = Timestamp(0);
        let begun = (1..=40).filter(|host| begin(&mut engine, now, *host)).count();
        assert_eq!(begun, ADDRESSES.count(), "each address has a block");
        let mut cursor = Cursor::default();
        while !engine.clear_mappings(&mut cursor, 1000, &Filter::default()).1 {}
        while engine.poll_event().is_some() {}
        for (turn, left) in [ADDRESSES_A_TURN, 2 * ADDRESSES_A_TURN, 40].into_iter().enumerate() {
            obey(&mut slice, &mut engine, &receives());
            let blocks = ADDRESSES.each().filter(|address| engine.has_assigned_blocks_of(*address));
            assert_eq!(blocks.count(), 40 - left);
            take(&mut slice, &mut engine, &messages, now);
            let confirms = take(&mut slice, &mut engine, &messages, now);
            assert_eq!(confirms, turn == 2, "turn {turn}");
            // A reload does not begin anew.
            slice.renew(&engine, &CopiedHosts::new(None, now));
        }
        assert_eq!(engine.mappings().count(), 1);
        let events = std::iter::from_fn(|| engine.poll_event());
        let released = events.filter(|event| matches!(event.change, Change::BlockReleased(_)));
        assert_eq!(released.count(), 40);
    }

    /// Each port of a block in use may have a mapping.
    #[test]
    fn the_ports_of_large_blocks_are_read_in_steps() {
        let mut config = config(blocks());
        let release_after = Duration::from_secs(60);
        let block = BlockConfig { size: 32_768, max_per_subscriber: 1, release_after };
        config.pools[0].ports = (1024, 33_791);
        config.pools[0].allocation = Some(Allocation::Block(block));
        let mut engine = worker_of_two(&config);
        let mut slice = Slice::new(0, Workers { this: 0, count: 2 }, vec![ADDRESSES]);
        let owns = Order { turn: 1, owns: true, assigns: true, ..Order::default() };
        obey(&mut slice, &mut engine, &owns);
        let begun = (1..=40).filter(|host| begin(&mut engine, Timestamp(0), *host)).count();
        assert_eq!(begun, ADDRESSES.count());
        obey(&mut slice, &mut engine, &receives());
        let mut turns = 1;
        while slice.leaving.is_some() {
            obey(&mut slice, &mut engine, &receives());
            turns += 1;
        }
        assert_eq!(turns, 20, "two addresses in a turn");
        assert!(engine.has_assigned_blocks(), "mappings keep their blocks");
    }

    /// Whether a whole address is in use is known without a look at its ports.
    #[test]
    fn whole_addresses_are_left_without_a_look_at_their_ports() {
        let mut config = config(Allocation::Address);
        config.pools[0].ports = Allocation::ALL_PORTS;
        let mut engine = worker_of_two(&config);
        let mut slice = Slice::new(0, Workers { this: 0, count: 2 }, vec![ADDRESSES]);
        let owns = Order { turn: 1, owns: true, assigns: true, ..Order::default() };
        obey(&mut slice, &mut engine, &owns);
        let begun = (1..=40).filter(|host| begin(&mut engine, Timestamp(0), *host)).count();
        assert_eq!(begun, ADDRESSES.count());
        let mut turns = 0;
        while turns == 0 || slice.leaving.is_some() {
            obey(&mut slice, &mut engine, &receives());
            turns += 1;
        }
        assert_eq!(turns, ADDRESSES.count().div_ceil(ADDRESSES_A_TURN));
        assert!(engine.has_assigned_blocks(), "mappings keep their addresses");
    }
}
