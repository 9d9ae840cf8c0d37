//! Digests: the program's messages, as lists for the primary controller.
//!
//! A digest is sent if a controller asks for it, by an entry with the largest number of messages in
//! a list, the longest wait of the first message for others, and the longest wait of a list for its
//! acknowledgement. Until then the same message is not sent again.

use crate::proto::{
    DELETE, Data, DigestConfig, DigestEntry, DigestList, INSERT, MODIFY, P4Data, P4Members,
};
use crate::value::bytes;
use natgate_p4::{DataInfo, Info};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tonic::Status;

/// Most messages in a list.
const MOST_LISTED: usize = 256;

/// Most unacknowledged lists of a digest; beyond that, the oldest counts as acknowledged.
const MOST_UNACKNOWLEDGED: usize = 64;

/// Fields of a message.
type Values = Vec<u128>;

/// Digests that controllers have requested, and their messages on the way.
#[derive(Default)]
pub(crate) struct Digests {
    of: BTreeMap<u32, Digest>,
    /// Number of the latest list.
    latest: u64,
}

struct Digest {
    config: DigestConfig,
    waiting: Vec<Values>,
    /// Time of the first waiting message.
    since: Instant,
    unacknowledged: VecDeque<(u64, Instant, Vec<Values>)>,
}

/// Digest of the program with this number.
fn known(info: &Info, id: u32) -> Result<&DataInfo, Status> {
    let found = info.digests.iter().find(|digest| digest.preamble.id == id);
    found.ok_or_else(|| Status::not_found(format!("the program has no digest {id:#010x}")))
}

impl Digests {
    /// Begins, changes or ends the sending of a digest.
    pub(crate) fn write(
        &mut self,
        info: &Info,
        kind: i32,
        entry: &DigestEntry,
    ) -> Result<(), Status> {
        let id = known(info, entry.digest_id)?.preamble.id;
        let config = checked(entry.config.unwrap_or_default())?;
        match (kind, self.of.get_mut(&id)) {
            (INSERT, None) => {
                let (waiting, unacknowledged) = (Vec::new(), VecDeque::new());
                let digest = Digest { config, waiting, since: Instant::now(), unacknowledged };
                self.of.insert(id, digest);
            }
            (MODIFY, Some(digest)) => digest.config = config,
            (DELETE, Some(_)) => drop(self.of.remove(&id)),
            (INSERT, Some(_)) => {
                return Err(Status::already_exists("the digest has an entry already; modify it"));
            }
            (MODIFY | DELETE, None) => {
                return Err(Status::not_found("the digest has no entry; insert one"));
            }
            _ => return Err(Status::invalid_argument("an update is INSERT, MODIFY or DELETE")),
        }
        Ok(())
    }

    /// Entries of one digest, or of all (0).
    pub(crate) fn read(&self, info: &Info, id: u32) -> Result<Vec<DigestEntry>, Status> {
        if id != 0 {
            known(info, id)?;
        }
        let asked = self.of.iter().filter(|(one, _)| id == 0 || **one == id);
        let entry = |(id, digest): (&u32, &Digest)| DigestEntry {
            digest_id: *id,
            config: Some(digest.config),
        };
        Ok(asked.map(entry).collect())
    }

    /// Adds a message, if its digest was requested.
    pub(crate) fn take(&mut self, info: &Info, name: &str, values: Values, now: Instant) {
        let found = info.digests.iter().find(|digest| digest.preamble.name == name);
        let Some(digest) = found.and_then(|found| self.of.get_mut(&found.preamble.id)) else {
            return;
        };
        if digest.has_told(&values, now) {
            return;
        }
        if digest.waiting.is_empty() {
            digest.since = now;
        }
        digest.waiting.push(values);
    }

    /// Lists that are due; `stamp` is nanoseconds since 1970.
    pub(crate) fn due(&mut self, info: &Info, now: Instant, stamp: i64) -> Vec<DigestList> {
        let mut lists = Vec::new();
        for (id, digest) in &mut self.of {
            let Ok(info) = known(info, *id) else { continue };
            for messages in digest.ripe(now) {
                self.latest += 1;
                let data = messages.iter().map(|values| data(info, values)).collect();
                let (digest_id, list_id) = (*id, self.latest);
                lists.push(DigestList { digest_id, list_id, data, timestamp: stamp });
                digest.sent(list_id, now, messages);
            }
        }
        lists
    }

    /// Acknowledges a list.
    pub(crate) fn acknowledge(&mut self, id: u32, list: u64) {
        if let Some(digest) = self.of.get_mut(&id) {
            digest.unacknowledged.retain(|(one, ..)| *one != list);
        }
    }
}

impl Digest {
    fn patience(&self) -> Duration {
        Duration::from_nanos(self.config.ack_timeout_ns as u64)
    }

    /// True if the same message waits, or was sent and is not timed out.
    fn has_told(&mut self, values: &Values, now: Instant) -> bool {
        let patience = self.patience();
        self.unacknowledged.retain(|(_, at, _)| now.duration_since(*at) < patience);
        let mut sent = self.unacknowledged.iter().flat_map(|(.., messages)| messages);
        !patience.is_zero() && (self.waiting.contains(values) || sent.any(|one| one == values))
    }

    /// Full lists, and those that have waited long enough.
    fn ripe(&mut self, now: Instant) -> Vec<Vec<Values>> {
        let most = match self.config.max_list_size {
            0 => MOST_LISTED,
            most => (most as usize).min(MOST_LISTED),
        };
        let has_waited = now.duration_since(self.since).as_nanos() as i128
            >= i128::from(self.config.max_timeout_ns);
        let whole = self.waiting.len() / most * most;
        let ripe = if has_waited { self.waiting.len() } else { whole };
        let messages: Vec<Values> = self.waiting.drain(..ripe).collect();
        if ripe > 0 {
            self.since = now;
        }
        messages.chunks(most).map(<[Values]>::to_vec).collect()
    }

    fn sent(&mut self, list: u64, now: Instant, messages: Vec<Values>) {
        if self.config.ack_timeout_ns > 0 {
            self.unacknowledged.push_back((list, now, messages));
            if self.unacknowledged.len() > MOST_UNACKNOWLEDGED {
                self.unacknowledged.pop_front();
            }
        }
    }
}

fn checked(config: DigestConfig) -> Result<DigestConfig, Status> {
    let is_right = config.max_timeout_ns >= 0 && config.max_list_size >= 0;
    match is_right && config.ack_timeout_ns >= 0 {
        true => Ok(config),
        false => Err(Status::invalid_argument("times and sizes of a digest are not negative")),
    }
}

/// A message in the form that P4Info describes.
fn data(info: &DataInfo, values: &[u128]) -> P4Data {
    let bits = |value: &u128| P4Data { of: Some(Data::Bits(bytes(*value))) };
    let members: Vec<P4Data> = values.iter().map(bits).collect();
    match (&info.struct_name, &values) {
        (Some(_), _) => P4Data { of: Some(Data::Struct(P4Members { members })) },
        (None, [one]) => bits(one),
        (None, _) => P4Data { of: Some(Data::Tuple(P4Members { members })) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_p4::Preamble;

    const ID: u32 = 0x1700_0001;
    const NONE: [usize; 0] = [];

    fn info() -> Info {
        let preamble = Preamble { id: ID, name: "Main.news".into(), alias: "news".into() };
        let members = vec![("a".to_owned(), 16, false)];
        let news = DataInfo { preamble, size: 0, struct_name: None, members };
        Info { digests: vec![news], ..Info::default() }
    }

    fn entry(max_list_size: i32, max_timeout_ns: i64, ack_timeout_ns: i64) -> DigestEntry {
        let config = DigestConfig { max_timeout_ns, max_list_size, ack_timeout_ns };
        DigestEntry { digest_id: ID, config: Some(config) }
    }

    /// Numbers of messages in the lists that are due.
    fn due(digests: &mut Digests, now: Instant) -> Vec<usize> {
        digests.due(&info(), now, 0).iter().map(|list| list.data.len()).collect()
    }

    #[test]
    fn lists_are_full_or_have_waited() {
        let (mut digests, info, start) = (Digests::default(), info(), Instant::now());
        digests.take(&info, "Main.news", vec![1], start);
        digests.write(&info, INSERT, &entry(2, 1000, 0)).expect("it is the first");
        assert_eq!(due(&mut digests, start), NONE, "nobody had asked");
        for value in 0..5 {
            digests.take(&info, "Main.news", vec![value], start);
        }
        assert_eq!(due(&mut digests, start), [2, 2]);
        assert_eq!(due(&mut digests, start), NONE);
        assert_eq!(due(&mut digests, start + Duration::from_nanos(1000)), [1]);
        digests.write(&info, MODIFY, &entry(0, 0, 0)).expect("it is there");
        (0..3).for_each(|_| digests.take(&info, "Main.news", vec![7], start));
        assert_eq!(due(&mut digests, start + Duration::from_nanos(1000)), [3], "the same thrice");
    }

    #[test]
    fn the_same_is_told_again_when_it_was_acknowledged_or_not_in_time() {
        let (mut digests, info, start) = (Digests::default(), info(), Instant::now());
        digests.write(&info, INSERT, &entry(0, 0, 1000)).expect("it is the first");
        let tell = |digests: &mut Digests, value, after| {
            let now = start + Duration::from_nanos(after);
            digests.take(&info, "Main.news", vec![value], now);
            due(digests, now)
        };
        assert_eq!(tell(&mut digests, 1, 0), [1]);
        assert_eq!(tell(&mut digests, 1, 1), NONE);
        assert_eq!(tell(&mut digests, 2, 2), [1]);
        digests.acknowledge(ID, 1);
        digests.acknowledge(ID, 99);
        assert_eq!(tell(&mut digests, 1, 3), [1]);
        assert_eq!(tell(&mut digests, 2, 4), NONE);
        assert_eq!(tell(&mut digests, 2, 1002), [1]);
    }

    #[test]
    fn entries_are_written_once_and_read() {
        let (mut digests, info) = (Digests::default(), info());
        let mut code = |kind, entry: &DigestEntry| {
            digests.write(&info, kind, entry).map_err(|status| status.code())
        };
        use tonic::Code;
        assert_eq!(code(MODIFY, &entry(1, 0, 0)), Err(Code::NotFound));
        assert_eq!(code(INSERT, &entry(-1, 0, 0)), Err(Code::InvalidArgument));
        let other = DigestEntry { digest_id: 5, config: None };
        assert_eq!(code(INSERT, &other), Err(Code::NotFound));
        assert_eq!(code(INSERT, &entry(1, 0, 0)), Ok(()));
        assert_eq!(code(INSERT, &entry(1, 0, 0)), Err(Code::AlreadyExists));
        assert_eq!(digests.read(&info, 0).expect("all"), [entry(1, 0, 0)]);
        assert_eq!(digests.read(&info, ID).expect("one"), [entry(1, 0, 0)]);
        assert!(digests.read(&info, 5).is_err());
        digests.write(&info, DELETE, &DigestEntry { digest_id: ID, config: None }).expect("it is");
        assert!(digests.read(&info, 0).expect("all").is_empty());
    }
}
