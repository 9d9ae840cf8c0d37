//! A pair whose nodes have several workers, of equal or other numbers.

use super::*;
use std::collections::BTreeMap;

/// Subscribers, by the last number of their addresses.
const HOSTS: std::ops::RangeInclusive<u8> = 1..=8;

/// Number of the subscribers.
const COUNT: usize = 8;

/// Time after which a datagram is sent again, where one may be lost.
const AGAIN: Duration = Duration::from_millis(200);

/// A socket of a subscriber. Its datagrams have numbers, so that no answer counts twice.
struct Flow {
    socket: UdpSocket,
    number: u32,
}

impl Flow {
    fn begin(network: &PairNetwork, host: u8, port: u16) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::new(10, 8, 0, host), port));
        let socket = network.node("sub").enter(bind).expect("a thread").expect("a socket");
        socket.set_read_timeout(Some(AGAIN)).expect("a time");
        Self { socket, number: 0 }
    }

    /// Waits for a datagram that begins with these bytes. Returns the rest, as text.
    fn receive(&self, begin: &[u8], limit: Duration) -> Option<String> {
        let mut buffer = [0; 100];
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let Ok(len) = self.socket.recv(&mut buffer) else { continue };
            if let Some(rest) = buffer[..len].strip_prefix(begin) {
                return Some(String::from_utf8_lossy(rest).into_owned());
            }
        }
        None
    }

    /// Sends one datagram. Returns the endpoint that the server sees.
    fn ask(&mut self, limit: Duration) -> Option<String> {
        self.number += 1;
        let number = self.number.to_be_bytes();
        self.socket.send_to(&number, PAIR_SERVER).expect("sent");
        self.receive(&number, limit)
    }

    /// The endpoint that the server sees. Datagrams that are lost are sent again: the first ones
    /// may wait for neighbours.
    fn ask_again(&mut self) -> String {
        wait_for("an answer", PATIENCE, || Ok(self.ask(AGAIN))).expect("an answer")
    }
}

/// Starts a server that answers a datagram with its bytes and its endpoint.
fn serve_numbers(network: &PairNetwork) {
    let socket = network.node("srv").enter(|| UdpSocket::bind(PAIR_SERVER)).expect("a thread");
    let socket = socket.expect("a socket");
    thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&[&buffer[..len], from.to_string().as_bytes()].concat(), from);
        }
    });
}

/// A flow of each subscriber.
fn begin_flows(network: &PairNetwork) -> Vec<Flow> {
    let address = |host| format!("address add 10.8.0.{host}/32 dev lo\n");
    network.node("sub").ip_batch(&HOSTS.map(address).collect::<String>()).expect("addresses");
    HOSTS.map(|host| Flow::begin(network, host, 6000)).collect()
}

/// Logs of the nodes, and that of node a after its second start.
const LOGS: [&str; 2] = ["a.events", "b.events"];
const LOG_OF_AGAIN: &str = "a.events.again";

/// Numbers of workers of `a` and `b`, and the allocation of the pool.
type Kind = ([usize; 2], &'static str);

/// Starts a node with its number of workers. The nodes tell each other. Each start has an own log.
fn start_one(network: &PairNetwork, node: &str, ([a, b], allocation): Kind, log: &str) -> PairNode {
    let own = if node == "a" { a } else { b };
    let log = network.file(log);
    let more = format!("[workers]\ncount = {own}\n[[log]]\nkind = \"file\"\npath = {log:?}\n");
    let config = network
        .config(node, &more)
        .replace("[[pool]]\n", &format!("[[pool]]\nallocation = {allocation:?}\n"))
        // Many threads share few cores.
        .replace("[fleet]\n", "[fleet]\nhang = \"10s\"\n");
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

/// Subscribers of blocks of ports, by the block.
type Blocks = BTreeMap<String, Value>;

/// Reads the events of blocks in a log. A block has one subscriber at a time. Workers tell what
/// happens at one time in any order.
fn blocks_in(network: &PairNetwork, log: &str) -> Blocks {
    let text = fs::read_to_string(network.file(log)).expect("a log");
    let events = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
    let is_of_block = |event: &Value| !event["ports"].is_null();
    let mut left: Vec<Value> = events.filter(is_of_block).collect();
    let time = |event: &Value| event["time"].as_f64().expect("a time");
    left.sort_by(|one, other| time(one).total_cmp(&time(other)));
    let mut blocks = Blocks::new();
    while let Some(first) = left.first().cloned() {
        let is_next = |event: &Value| {
            let owner = blocks.get(&block_of(event));
            let fits = match event["event"].as_str() {
                Some("block_assigned") => owner.is_none(),
                _ => owner == Some(&event["subscriber"]),
            };
            fits && event["time"] == first["time"]
        };
        let next = left.iter().position(is_next);
        let next = next.unwrap_or_else(|| panic!("{first} does not follow {blocks:?}: {text}"));
        let event = left.remove(next);
        match event["event"].as_str() {
            Some("block_assigned") => blocks.insert(block_of(&event), event["subscriber"].clone()),
            _ => blocks.remove(&block_of(&event)),
        };
    }
    blocks
}

fn block_of(event: &Value) -> String {
    format!("{} {}", event["external"], event["ports"])
}

/// Waits until every worker of a node has some of the mappings, and together they have all.
fn wait_for_mappings(network: &PairNetwork, node: &str, (workers, all): (usize, usize)) {
    let socket = network.file(&format!("{node}.sock"));
    let mut shown = String::new();
    let is_so = || {
        let words = ["show", "workers", "--json", "--socket"];
        let output = Command::new(PROGRAM).args(words).arg(&socket).output()?;
        shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let state: Value = serde_json::from_str(&shown)?;
        let counts = state["workers"].as_array().expect("workers").iter();
        let counts: Vec<u64> = counts.filter_map(|one| one["mappings"].as_u64()).collect();
        let has_all = counts.iter().sum::<u64>() == all as u64;
        Ok((has_all && counts.len() == workers && !counts.contains(&0)).then_some(()))
    };
    let seen = wait_for("the mappings", PATIENCE, is_so);
    assert!(seen.is_ok(), "{node}: {seen:?}: {shown}");
}

/// Each flow sends one datagram, which is answered from the flow's endpoint.
fn exchange_without_loss(flows: &mut [Flow], externals: &[String]) {
    for (flow, external) in flows.iter_mut().zip(externals) {
        let seen = flow.ask(PATIENCE);
        assert_eq!(seen.as_ref(), Some(external), "no datagram is lost");
    }
}

fn are_continued_and_moved_back(kind: Kind) {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let (workers, allocation) = kind;
    let [a, b] =
        [("a", LOGS[0]), ("b", LOGS[1])].map(|(node, log)| start_one(&network, node, kind, log));
    for node in [&a, &b] {
        wait_until(node, "the pair is whole", is_whole);
    }
    serve_numbers(&network);
    wait_until(&a, "a assigns ports", has_first_slice);
    let mut flows = begin_flows(&network);
    let externals: Vec<String> = flows.iter_mut().map(Flow::ask_again).collect();
    assert!(externals.iter().all(|external| is_of(external, "a")), "{externals:?}");
    // Flows of UDP are copied after two seconds.
    wait_for_mappings(&network, "a", (workers[0], COUNT));
    wait_for_mappings(&network, "b", (workers[1], COUNT));

    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    let continued: Vec<String> = flows.iter_mut().map(Flow::ask_again).collect();
    assert_eq!(continued, externals, "each flow keeps its endpoint");
    wait_until(&b, "b takes the slice", has_first_slice);
    let told = format!("node b owns slice 0 in epoch 2; it continues {COUNT} mappings");
    let is_told = || Ok(b.log().contains(&told).then_some(()));
    assert!(wait_for("the new owner", PATIENCE, is_told).is_ok(), "{}", b.log());
    // Another host reaches each of them, whichever worker gives out the port.
    let outside = udp_socket(network.node("srv")).expect("a socket");
    for (flow, external) in flows.iter().zip(&externals) {
        outside.send_to(b"from outside", external).expect("sent");
        assert!(flow.receive(b"from outside", PATIENCE).is_some(), "{external}");
    }
    let has_blocks = matches!(allocation, "block" | "address");
    if has_blocks {
        have_further_ports(&network, &externals, allocation);
    }

    let a = start_one(&network, "a", kind, LOG_OF_AGAIN);
    wait_until(&a, "a has the copy", is_whole);
    let all = if has_blocks { 2 * COUNT } else { COUNT };
    wait_for_mappings(&network, "a", (workers[0], all));
    exchange_without_loss(&mut flows, &externals);
    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_for("the slice is back", PATIENCE, || {
        exchange_without_loss(&mut flows, &externals);
        Ok(has_first_slice(&a.status()?).then_some(()))
    })
    .expect("the slice is back");
    network.prefer("a").expect("routes");
    (0..10).for_each(|_| exchange_without_loss(&mut flows, &externals));
    assert!(is_of(&Flow::begin(&network, 1, 6002).ask_again(), "a"));
    wait_until(&b, "the pair is whole again", is_whole);
    if has_blocks {
        have_logs_of_blocks(&network, allocation);
    }
    for node in [a, b] {
        node.stop().expect("it ends");
    }
}

/// Each subscriber gets a further port of its block, or of its address.
fn have_further_ports(network: &PairNetwork, externals: &[String], allocation: &str) {
    let is_whole = allocation == "address";
    let block = |external: &str| {
        let external: SocketAddrV4 = external.parse().expect("an endpoint");
        assert!(!is_whole || matches!(external.port(), 6000 | 6001), "ports stay: {external}");
        (*external.ip(), if is_whole { 0 } else { (external.port() - 1024) / 512 })
    };
    for (host, external) in HOSTS.zip(externals) {
        let further = Flow::begin(network, host, 6001).ask_again();
        assert_eq!(block(&further), block(external), "{further} {external}");
    }
}

/// Both nodes have told of the blocks of all subscribers. When the mappings end, the partner has
/// no block any more.
fn have_logs_of_blocks(network: &PairNetwork, allocation: &str) {
    let [of_a, of_b] = [LOG_OF_AGAIN, LOGS[1]];
    wait_for("the logs of blocks", PATIENCE, || {
        let blocks = blocks_in(network, of_a);
        let are_all = blocks.len() == COUNT && blocks == blocks_in(network, of_b);
        Ok(are_all.then_some(()))
    })
    .unwrap_or_else(|_| panic!("{:?} {:?}", blocks_in(network, of_a), blocks_in(network, of_b)));
    let words = ["clear", "mappings", "--subscriber", "10.8.0.0/24", "--socket"];
    let output = Command::new(PROGRAM).args(words).arg(network.file("a.sock")).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    wait_for("the ends of the blocks", PATIENCE, || {
        Ok(blocks_in(network, of_b).is_empty().then_some(()))
    })
    .unwrap_or_else(|_| panic!("{:?}", blocks_in(network, of_b)));
    assert_eq!(blocks_in(network, LOGS[0]).len(), COUNT, "the process was killed");
    if allocation == "block" {
        assert_eq!(blocks_in(network, of_a).len(), COUNT, "an owner's block stays for a minute");
    }
}

#[test]
fn flows_of_two_workers_go_on_after_a_kill_and_come_back_without_loss() {
    are_continued_and_moved_back(([2, 2], "random"));
}

#[test]
fn two_workers_and_three_continue_each_others_flows() {
    are_continued_and_moved_back(([2, 3], "random"));
}

#[test]
fn blocks_of_ports_go_on_with_equal_numbers_of_workers() {
    are_continued_and_moved_back(([2, 2], "block"));
}

#[test]
fn blocks_of_ports_go_to_the_workers_of_their_subscribers() {
    are_continued_and_moved_back(([2, 3], "block"));
}

#[test]
fn whole_addresses_go_on_with_equal_numbers_of_workers() {
    are_continued_and_moved_back(([2, 2], "address"));
}

#[test]
fn whole_addresses_go_to_the_workers_of_their_hosts() {
    are_continued_and_moved_back(([2, 3], "address"));
}
