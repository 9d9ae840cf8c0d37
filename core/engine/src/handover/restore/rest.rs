//! Restoration of everything except mappings: held ports, pairs, blocks, sequences of
//! identifications, counters.

use super::{KINDS, Restoration};
use crate::endpoint::AddressPort;
use crate::engine::Engine;
use crate::handover::record::Reader;
use crate::host::Host;
use crate::packet::{Direction, Outcome};
use crate::protocols::has_ports;
use crate::{DropReason, Timestamp};

impl Engine {
    pub(super) fn restore_held(
        &mut self,
        restoration: &Restoration,
        from: &mut Reader<'_>,
    ) -> Option<()> {
        let (protocol, AddressPort { address, port }, release) =
            (from.u8()?, from.endpoint()?, from.u64()?);
        let index = self.external.index(address);
        let release = self.restored_tick(release);
        has_ports(protocol).then_some(())?;
        if let Some(index) = index.filter(|_| release > restoration.tick) {
            // The hold ends within an hour, whatever the record says.
            let latest = restoration.tick.saturating_add(3600 * 8);
            self.external.hold(protocol, index, port, release.min(latest));
        }
        Some(())
    }

    fn restored_host(
        &self,
        restoration: &Restoration,
        from: &mut Reader<'_>,
    ) -> Option<Option<Host>> {
        let (realm, address) = (from.u16()?, from.u32()?);
        let realm = restoration.realms.get(usize::from(realm)).copied().flatten();
        Some(realm.filter(|_| address != 0).map(|realm| Host::new(realm, address)))
    }

    pub(super) fn restore_pair(
        &mut self,
        restoration: &Restoration,
        from: &mut Reader<'_>,
    ) -> Option<()> {
        let host = self.restored_host(restoration, from)?;
        let index = self.external.index(from.u32()?);
        if let Some((host, index)) = host.zip(index)
            && self.external.is_of_pool(index)
        {
            self.subscribers.pair(host, self.external.pool_of(index), index);
        }
        Some(())
    }

    pub(super) fn restore_block(
        &mut self,
        restoration: &mut Restoration,
        from: &mut Reader<'_>,
    ) -> Option<()> {
        let host = self.restored_host(restoration, from)?;
        let index = self.external.index(from.u32()?);
        let ports = (from.u16()?, from.u16()?);
        if let Some((host, index)) = host.zip(index)
            && let Some(block) = self.external.restore_block(index, ports, host, restoration.tick)
        {
            restoration.blocks.insert(block);
        }
        Some(())
    }

    pub(super) fn restore_sequence(&mut self, from: &mut Reader<'_>) -> Option<()> {
        let address = from.u32()?;
        let key = from.take(4)?.try_into().ok()?;
        let position = from.u16()?;
        let mut used = [None; 8];
        for used in &mut used {
            *used = from.u64().map(|time| (time > 0).then_some(Timestamp(time)))?;
        }
        if let Some(index) = self.external.index(address) {
            self.identifications.set_sequence(index, (key, position, used));
        }
        Some(())
    }

    /// Adds to a counter. A counter that does not exist any more is ignored.
    pub(super) fn restore_counter(&mut self, from: &mut Reader<'_>) -> Option<()> {
        let value = from.u64()?;
        let mut names = [""; 3];
        for name in &mut names {
            let len = from.u8()?;
            *name = core::str::from_utf8(from.take(usize::from(len))?).ok()?;
        }
        let counters = &mut self.counters;
        let [what, first, second] = names;
        let way = Direction::ALL.into_iter().find(|direction| direction.name() == first);
        let end = Outcome::ALL.into_iter().find(|outcome| outcome.name() == second);
        let by_way = way.zip(end).map(|(way, end)| (way as usize, end as usize));
        let kind = KINDS.iter().position(|name| *name == first);
        let counter = match what {
            "packets" => by_way.map(|(way, end)| &mut counters.packets[way][end]),
            "bytes" => by_way.map(|(way, end)| &mut counters.bytes[way][end]),
            "drops" => {
                let reason = DropReason::ALL.iter().find(|reason| reason.name() == first);
                reason.map(|reason| &mut counters.drops[*reason as usize])
            }
            "made" => kind.map(|kind| &mut self.made[kind]),
            "gone" => kind.map(|kind| &mut self.gone[kind]),
            "portless" => Some(&mut counters.portless),
            "generated" => Some(&mut counters.generated),
            "errors_suppressed" => Some(&mut counters.errors_suppressed),
            "events_lost" => Some(&mut counters.events_lost),
            "clock_backwards" => Some(&mut counters.clock_backwards),
            _ => None,
        };
        if let Some(counter) = counter {
            *counter = counter.saturating_add(value);
        }
        Some(())
    }
}
