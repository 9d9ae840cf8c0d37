//! Subscribers with the most mappings. The search reads all subscribers, so clients with the same
//! question within a second share one answer, and only one search at a time reads the workers'
//! tables, however many pages are open.

use super::lists;
use super::query::{MOST_TOP, TableQuery};
use super::{Answer, Interface, stopping};
use crate::socket::{ClientGroup, Response, blocking};
use natgate_engine::{Filter, SubscriberInfo};
use natgate_gateway::{CommandError, List};
use serde_json::Value;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Subscribers per request to a worker.
const PART: usize = 4096;

/// Time for which an answer is shared.
const FRESH: Duration = Duration::from_secs(1);

/// The latest answer for each client group. A client that waits for another's answer occupies no
/// thread.
#[derive(Debug, Default)]
pub(super) struct Latest([Mutex<Option<CachedTop>>; ClientGroup::COUNT]);

/// The answer for one filter, with the largest number of subscribers.
#[derive(Clone, Debug)]
struct CachedTop {
    filter: Filter,
    at: Instant,
    best: Arc<[SubscriberInfo]>,
    /// True if there are further subscribers.
    more: bool,
}

impl CachedTop {
    fn answers(&self, filter: &Filter, now: Instant) -> bool {
        self.filter == *filter && now.saturating_duration_since(self.at) < FRESH
    }
}

/// The subscribers with the most mappings, in descending order.
pub(super) async fn subscribers(
    interface: Arc<Interface>,
    group: ClientGroup,
    asked: TableQuery,
    top: usize,
) -> Answer {
    let filter = interface.filter_of_all(&asked).await?;
    let mut latest = interface.top.0[group as usize].lock().await;
    let found = match &*latest {
        Some(found) if found.answers(&filter, Instant::now()) => found.clone(),
        _ => {
            let of = Arc::clone(&interface);
            let found = blocking(move || find(&of, filter)).await??;
            latest.insert(found).clone()
        }
    };
    drop(latest);
    let entries = move || -> Result<(Vec<Value>, bool), CommandError> {
        let (names, shown) = (interface.names(), found.best.iter().take(top));
        let hosts = interface.host_names(shown.clone().map(|info| (info.realm, info.address)))?;
        let entry = |info: &SubscriberInfo| {
            lists::subscriber(info, hosts.of(info.realm, info.address), &names)
        };
        Ok((shown.map(entry).collect(), found.more || found.best.len() > top))
    };
    let (entries, more) = blocking(entries).await?.map_err(stopping)?;
    lists::whole("subscribers", entries, more)
}

fn find(interface: &Interface, filter: Filter) -> Result<CachedTop, Response> {
    let mut list: List<SubscriberInfo> = interface.commander().list(filter, PART);
    let (mut best, mut more) = (Vec::new(), false);
    while let Some((part, _)) = list.next_part().map_err(stopping)? {
        best.extend_from_slice(part);
        more |= keep(&mut best, MOST_TOP);
    }
    Ok(CachedTop { filter, at: Instant::now(), best: best.into(), more })
}

/// Keeps the first `top` in order; returns true if there were more.
fn keep(best: &mut Vec<SubscriberInfo>, top: usize) -> bool {
    let count =
        |info: &SubscriberInfo| info.mappings.iter().map(|&part| u64::from(part)).sum::<u64>();
    best.sort_by_key(|info| (Reverse(count(info)), info.realm, info.address));
    let more = best.len() > top;
    best.truncate(top);
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_most_stay_and_equals_keep_their_order() {
        let one = |host: u8, mappings: [u32; 3]| SubscriberInfo {
            realm: 0,
            address: Ipv4Addr::new(10, 0, 0, host),
            mappings,
            sessions: 0,
            is_unanswered: false,
            external: None,
        };
        let mut best =
            vec![one(9, [1, 1, 1]), one(2, [0, 7, 0]), one(3, [3, 0, 0]), one(4, [0; 3])];
        assert!(keep(&mut best, 3));
        best.push(one(5, [u32::MAX, 1, 1]));
        assert!(keep(&mut best, 3));
        let hosts: Vec<u8> = best.iter().map(|info| info.address.octets()[3]).collect();
        assert_eq!(hosts, [5, 2, 3]);
        assert!(!keep(&mut best, 3));
    }

    #[test]
    fn an_answer_serves_the_same_question_for_a_moment() {
        let (filter, at) = (Filter::default(), Instant::now());
        let found = CachedTop { filter, at, best: Arc::new([]), more: false };
        assert!(found.answers(&filter, at));
        assert!(found.answers(&filter, at + FRESH / 2));
        assert!(!found.answers(&filter, at + FRESH));
        let other = Filter { realm: Some(1), ..filter };
        assert!(!found.answers(&other, at));
    }
}
