//! Export and import of port states between engines: held ports with the tick of their release, and
//! blocks that subscribers have.
//!
//! Held ports are lists by tick. A pass over them exports the lists to come. The next pass exports
//! only lists that may have changed since the last pass began. So the cost of a pass depends on the
//! changes.

use super::{EMPTY, ExternalPorts, HELD, LAST, Mode, PORTS};
use crate::BlockId;
use crate::blocks::OwnedBlock;
use crate::calendar::{LANES, NONE, lane};
use crate::endpoint::External;
use crate::host::Host;
use crate::protocols::{PROTOCOLS, protocol_index};

/// A held port: its protocol, the index of its address, the port, and the tick of its release.
pub(crate) type HeldPort = (u8, u32, u16, u32);

/// Progress of a pass over the held ports.
#[derive(Debug, Default)]
pub(crate) struct HoldsCursor {
    /// Latest completed tick when the pass began.
    now: u32,
    /// By protocol: the hold-down when the pass began; the first tick of the next pass if this pass
    /// is broken off; the first tick of the next pass if this pass is completed; the first tick of
    /// this pass.
    hold: [Option<u32>; PROTOCOLS.len()],
    next_from: [u32; PROTOCOLS.len()],
    after_this: [u32; PROTOCOLS.len()],
    from: [u32; PROTOCOLS.len()],
    /// Position: the place of the protocol, the tick, the list of the tick, and the next entry of
    /// that list if the list was begun.
    protocol: usize,
    tick: u32,
    lane: usize,
    entry: Option<u32>,
}

impl ExternalPorts {
    /// Begins a pass. Everything that is due until tick `now` must have been done.
    pub(crate) fn begin_holds(&self, cursor: &mut HoldsCursor, now: u32) {
        for (place, ports) in self.ports.iter().enumerate() {
            let is_known = cursor.hold[place] == Some(ports.hold);
            let from = if is_known { cursor.next_from[place] } else { 0 };
            cursor.from[place] = from.max(now + 1);
            cursor.hold[place] = Some(ports.hold);
            cursor.next_from[place] = from;
            cursor.after_this[place] = now + ports.hold;
        }
        cursor.now = now;
        (cursor.protocol, cursor.tick, cursor.lane, cursor.entry) = (0, cursor.from[0], 0, None);
    }

    /// The next step of a pass; `None`: the pass is over.
    pub(crate) fn next_held(&self, cursor: &mut HoldsCursor) -> Option<Option<HeldPort>> {
        let place = cursor.protocol;
        let Some(ports) = self.ports.get(place) else {
            cursor.next_from = cursor.after_this;
            return None;
        };
        let Some(entry) = cursor.entry else {
            let next = ports.holds.next(cursor.tick);
            // A tick beyond the reach of the ring wraps to a tick that was looked at.
            match next.filter(|tick| tick - cursor.now <= ports.holds.span()) {
                Some(tick) => {
                    let heads = ports.holds.heads(tick);
                    let begun = if tick == cursor.tick { cursor.lane } else { 0 };
                    let lane = (begun..LANES).find(|&lane| heads[lane] != NONE);
                    (cursor.tick, cursor.lane) = lane.map_or((tick + 1, 0), |lane| (tick, lane));
                    cursor.entry = lane.map(|lane| heads[lane]);
                }
                None => {
                    cursor.protocol += 1;
                    cursor.lane = 0;
                    cursor.tick = cursor.from.get(cursor.protocol).copied().unwrap_or_default();
                }
            }
            return Some(None);
        };
        let (owner, mut tick) = (ports.owner[entry as usize], cursor.tick);
        let mut is_held = owner & HELD != 0;
        let lingering = self.lingering(place, entry);
        let next = match (lingering, is_held) {
            (Some(lingering), _) => Some(lingering.next),
            (None, true) => Some(owner & !HELD),
            // A static mapping has taken the port since.
            (None, false) => self.evicted.get(&(place, entry)).copied(),
        };
        if next.is_none() || lingering.is_some() {
            // The port was released early, because too many ports were held, or it lingers in this
            // list. The next pass starts here again.
            cursor.after_this[place] = cursor.after_this[place].min(tick);
        }
        if let Some(lingering) = lingering {
            is_held &= lingering.until.is_some();
            tick = lingering.until.unwrap_or(tick);
        }
        cursor.entry = next.filter(|&next| next != LAST);
        if cursor.entry.is_none() {
            cursor.lane += 1;
        }
        let (index, port) = (entry / PORTS as u32, entry as u16);
        Some(is_held.then_some((PROTOCOLS[place], index, port, tick)))
    }

    /// Releases the ports that are due until tick `tick`. `after` is the latest completed tick.
    pub(crate) fn release_until(&mut self, after: u32, tick: u32) {
        while let Some(next) = self.next_release(after).filter(|&next| next <= tick)
            && let Some(port) = self.due(next, 0)
        {
            self.release(port, next, next);
        }
    }

    /// Takes a port out of hold-down before its time, if it is held. The port then has no mapping
    /// and is not free. `after` is the latest completed tick.
    pub(crate) fn unhold(&mut self, protocol: u8, index: u32, port: u16, after: u32) {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        let ports = &mut self.ports[place];
        if ports.owner[entry] & HELD == 0 {
            return;
        }
        if self.leave_rest(place, entry).is_some() {
            self.held += 1;
        } else if self.is_of_pair {
            self.linger(place, entry);
        } else {
            self.unlink(place, entry, after);
        }
        self.free_held(place, entry, after + 1);
    }

    /// Takes a held port out of the list of its tick.
    fn unlink(&mut self, place: usize, entry: usize, after: u32) {
        let ports = &mut self.ports[place];
        let follower = ports.owner[entry] & !HELD;
        let mut tick = after;
        // A tick beyond the reach of the ring wraps to a tick that was looked at.
        let span = ports.holds.span();
        while let Some(next) = ports.holds.next(tick + 1).filter(|next| next - after <= span) {
            tick = next;
            let lane = lane(entry as u32);
            let mut at = ports.holds.heads(tick)[lane];
            if at == NONE {
                continue;
            }
            if at == entry as u32 {
                let head = if follower == LAST { NONE } else { follower };
                ports.holds.advance(tick, lane, head);
                break;
            }
            let mut link = ports.owner[at as usize];
            while link & HELD != 0 && link & !HELD != LAST && link & !HELD != entry as u32 {
                at = link & !HELD;
                link = ports.owner[at as usize];
            }
            if link == HELD | entry as u32 {
                ports.owner[at as usize] = HELD | follower;
                break;
            }
        }
    }

    /// Gives a port without a mapping to the mapping that has it in another engine. `after` is the
    /// latest completed tick.
    pub(crate) fn restore_port(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        slot: u32,
        after: u32,
    ) {
        self.unhold(protocol, index, port, after);
        if !self.ports[protocol_index(protocol)].is_free(index, port) {
            // The address gives out no ports any more. Its block counts the port as in use
            // nevertheless.
            self.blocks.held(self.pool_of(index), index, port);
        }
        self.take(protocol, index, port, slot);
    }

    /// Takes the port from a mapping that was removed in another engine, without hold-down.
    pub(crate) fn drop_port(&mut self, protocol: u8, index: u32, port: u16, now: u32) {
        let place = protocol_index(protocol);
        self.ports[place].owner[Self::entry(index, port)] = EMPTY;
        self.put_back(place, index, port, now + 1);
    }

    /// The address with this index, if the index exists.
    pub(crate) fn address_at(&self, index: u32) -> Option<u32> {
        self.addresses.get(index as usize).copied()
    }

    /// True if an address is in a pool.
    pub(crate) fn is_of_pool(&self, index: u32) -> bool {
        self.pool_of(index) < self.pools.len()
    }

    /// The owner, the index of the address, and the ports of the block at a place. Inner `None`:
    /// the block has no owner. Outer `None`: there is no such block.
    pub(crate) fn owned_block(&self, at: u32) -> Option<Option<OwnedBlock>> {
        self.blocks.owned_at(at)
    }

    /// Gives the block of a copied port to the subscriber of the port's mapping, who has it in the
    /// other engine. The block of a static mapping stays. Returns the block as its former owner had
    /// it, and as the new one has it, if it changes.
    pub(crate) fn copy_block(
        &mut self,
        External { index, port }: External,
        host: Host,
        tick: u32,
    ) -> [Option<BlockId>; 2] {
        let pool = self.pool_of(index);
        let block = self.blocks.find(pool, index, port);
        let Some(block) = block.filter(|block| !self.blocks.tenure(*block).is_pinned) else {
            return [None; 2];
        };
        let before = self.blocks.owner_of(block);
        if before == Some(self.blocks.subscriber(host)) {
            return [None; 2];
        }
        let released = before.map(|_| self.take_block(block));
        self.blocks.assign(block, host);
        self.blocks.note_since(block, tick);
        [released, Some(self.block(block))]
    }

    /// Gives a block of an address to the subscriber that has it in another engine, from a tick on.
    /// `None`: there is no such block, or the block has another owner.
    pub(crate) fn restore_block(
        &mut self,
        index: u32,
        ports: (u16, u16),
        subscriber: Host,
        tick: u32,
    ) -> Option<u32> {
        let pool = self.pool_of(index);
        if self.pools.get(pool)?.mode != Mode::Block {
            return None;
        }
        self.blocks.restore((pool, index), ports, subscriber, tick)
    }
}
