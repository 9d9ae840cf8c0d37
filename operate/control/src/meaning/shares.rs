//! The meaning of an allocation: subscribers that can be served, ports that remain unused.

use super::{ports_of_an_address, text};
use natgate_engine::{Allocation, Blocking, Config, Limits, Plan, PoolConfig, Pooling};
use serde::Serialize;
use std::fmt::{self, Formatter};
use std::net::Ipv4Addr;

/// Allocation of a pool's ports, with derived numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Shares {
    /// Any free port.
    Random,
    /// The internal port, if it is free.
    Preserve,
    /// Blocks of ports.
    Block {
        /// Ports per block.
        size: u16,
        /// Blocks per address.
        blocks_per_address: u64,
        /// Blocks of the pool.
        blocks: u64,
        /// Most blocks of a subscriber.
        max_per_subscriber: u64,
        /// Time for which an empty block stays assigned, milliseconds.
        release_after_ms: u64,
        /// Subscribers that can each have their largest number of blocks.
        subscribers_at_max: u64,
        /// Ports, over all addresses, that belong to no block.
        ports_unused: u64,
    },
    /// A whole address for each host.
    Address {
        /// Hosts that can have an address at a time.
        hosts: u64,
        /// Time for which an address stays with its host after the last mapping, milliseconds.
        release_after_ms: u64,
    },
    /// Ports computed from the subscriber's address.
    Deterministic {
        /// Subscribers with ports.
        subscribers: u32,
        /// Ports of each subscriber.
        ports_per_subscriber: u32,
        /// Subscribers per address: the compression ratio.
        subscribers_per_address: u32,
        /// Addresses with subscribers.
        addresses_used: u32,
        /// Dynamic ports of each address, first and last.
        dynamic_ports: Option<(u16, u16)>,
        /// Ports, over all addresses, without a subscriber.
        ports_unused: u64,
    },
}

impl Shares {
    /// Derives the meaning of a pool's allocation.
    pub(super) fn new(config: &Config, pool: &PoolConfig) -> Self {
        let addresses = pool.count() as u64;
        match config.allocation_of(pool) {
            Allocation::Random => Self::Random,
            Allocation::Preserve => Self::Preserve,
            Allocation::Block(block) => {
                let blocking = Blocking::new(pool.ports, block.size);
                let each = u64::from(blocking.count());
                let blocks = each * addresses;
                let max = u64::from(block.max_per_subscriber);
                let subscribers_at_max = match config.pooling {
                    Pooling::Paired => addresses * (each / max.min(each.max(1))),
                    Pooling::SoftPaired | Pooling::Arbitrary => blocks / max.min(blocks.max(1)),
                };
                Self::Block {
                    size: block.size,
                    blocks_per_address: each,
                    blocks,
                    max_per_subscriber: max,
                    release_after_ms: block.release_after.as_millis() as u64,
                    subscribers_at_max,
                    ports_unused: u64::from(blocking.ports_unused()) * addresses,
                }
            }
            Allocation::Address => Self::Address {
                hosts: addresses,
                release_after_ms: config.timeouts.hold_down.as_millis() as u64,
            },
            Allocation::Deterministic(plan) => match Plan::new(plan, pool) {
                Ok(plan) => Self::Deterministic {
                    subscribers: plan.subscribers(),
                    ports_per_subscriber: plan.ports_per_subscriber(),
                    subscribers_per_address: plan.subscribers_per_address(),
                    addresses_used: plan.addresses_used(),
                    dynamic_ports: plan.dynamic(),
                    ports_unused: plan.ports_unused(),
                },
                Err(_) => unreachable!("a pool without a plan is a problem of the configuration"),
            },
        }
    }

    /// Ports, over all addresses, that no subscriber gets.
    pub(super) fn ports_unused(&self) -> u64 {
        match self {
            Self::Random | Self::Preserve | Self::Address { .. } => 0,
            Self::Block { ports_unused, .. } | Self::Deterministic { ports_unused, .. } => {
                *ports_unused
            }
        }
    }

    /// Subscribers that can have their largest share at a time, if the allocation limits that.
    pub(super) fn served(&self, limits: &Limits, pooling: Pooling, addresses: u64) -> Option<u64> {
        match self {
            Self::Random | Self::Preserve => None,
            Self::Address { hosts, .. } => Some(*hosts),
            Self::Deterministic { subscribers, .. } => Some(u64::from(*subscribers)),
            Self::Block { size, blocks_per_address, blocks, max_per_subscriber, .. } => {
                let quota = limits.tcp_ports.max(limits.udp_ports).max(limits.icmp_ports).max(1);
                // A block has ports of all protocols.
                let needed = u64::from(quota).div_ceil(u64::from(*size)).min(*max_per_subscriber);
                Some(match pooling {
                    Pooling::Paired => addresses * (blocks_per_address / needed),
                    Pooling::SoftPaired | Pooling::Arbitrary => blocks / needed,
                })
            }
        }
    }

    /// Writes the lines about a pool.
    pub(super) fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let grouped = text::grouped;
        match self {
            Self::Random | Self::Preserve => Ok(()),
            Self::Address { hosts, release_after_ms } => {
                let all = grouped(*hosts);
                writeln!(f, "    whole addresses, ports unchanged: serves {all} hosts at a time")?;
                let after = std::time::Duration::from_millis(*release_after_ms);
                let after = crate::config::show_duration(after);
                writeln!(f, "    an address is free {after} after the last mapping of its host")
            }
            Self::Block {
                size,
                blocks_per_address,
                blocks,
                max_per_subscriber: max,
                release_after_ms,
                subscribers_at_max,
                ports_unused,
            } => {
                let (each, all) = (grouped(*blocks_per_address), grouped(*blocks));
                writeln!(
                    f,
                    "    {all} blocks of {size} ports, {each} an address, 1 to {max} a subscriber"
                )?;
                let at_max = grouped(*subscribers_at_max);
                writeln!(f, "    serves {all} subscribers with 1 block, {at_max} with {max}")?;
                let after = std::time::Duration::from_millis(*release_after_ms);
                let after = crate::config::show_duration(after);
                writeln!(f, "    an empty block is released after {after}")?;
                writeln!(f, "    {} ports fill no block and are never used", grouped(*ports_unused))
            }
            Self::Deterministic {
                subscribers,
                ports_per_subscriber,
                subscribers_per_address: each,
                addresses_used,
                dynamic_ports,
                ports_unused,
            } => {
                let subscribers = grouped((*subscribers).into());
                let ports = grouped((*ports_per_subscriber).into());
                writeln!(
                    f,
                    "    {subscribers} subscribers with {ports} ports each, computed (RFC 7422)"
                )?;
                let (each, used) = (grouped((*each).into()), grouped((*addresses_used).into()));
                writeln!(
                    f,
                    "    {each} subscribers an address ({each}:1) on {used} of its addresses"
                )?;
                match dynamic_ports {
                    Some((first, last)) => {
                        let count = grouped(u64::from(last - first) + 1);
                        writeln!(
                            f,
                            "    {count} dynamic ports an address, {first}-{last}, for more"
                        )?;
                    }
                    None => {
                        writeln!(f, "    no dynamic ports: who has used up its own gets no more")?
                    }
                }
                writeln!(f, "    {} ports are nobody's and are never used", grouped(*ports_unused))
            }
        }
    }
}

/// True if a subscriber may get a port of the address.
pub(super) fn can_be_given(
    config: &Config,
    pool: &PoolConfig,
    address: Ipv4Addr,
    port: u16,
) -> bool {
    match config.allocation_of(pool) {
        Allocation::Random | Allocation::Preserve | Allocation::Address => true,
        Allocation::Block(block) => Blocking::new(pool.ports, block.size).contains(port),
        Allocation::Deterministic(plan) => Plan::new(plan, pool).is_ok_and(|plan| {
            plan.reverse(address, port).is_some()
                || plan.dynamic().is_some_and(|(first, last)| (first..=last).contains(&port))
        }),
    }
}

/// Number of an address's ports that subscribers may get.
pub(super) fn ports_given(config: &Config, pool: &PoolConfig, address: Ipv4Addr) -> u64 {
    let all = ports_of_an_address(pool);
    match config.allocation_of(pool) {
        Allocation::Random | Allocation::Preserve | Allocation::Address => all,
        Allocation::Block(block) => {
            all - u64::from(Blocking::new(pool.ports, block.size).ports_unused())
        }
        Allocation::Deterministic(plan) => {
            let Ok(plan) = Plan::new(plan, pool) else { return all };
            let is_dynamic =
                |port| plan.dynamic().is_some_and(|(first, last)| (first..=last).contains(&port));
            let given = (pool.ports.0..=pool.ports.1)
                .filter(|&port| is_dynamic(port) || plan.reverse(address, port).is_some());
            given.count() as u64
        }
    }
}
