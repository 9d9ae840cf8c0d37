//! Routers that lead packets of one flow to both nodes: each direction by another one, and by
//! routes of equal cost. The node that is not the owner passes packets on.

use super::*;

/// Packets that a node has passed on.
fn passed(node: &PairNode, way: &str) -> u64 {
    node.status().expect("a state")["tunnel"]["passed"][way].as_u64().expect("a number")
}

/// Sends bytes and waits for all of them.
fn transfers(mut stream: &TcpStream, bytes: &[u8]) -> bool {
    let mut back = vec![0; bytes.len()];
    stream.write_all(bytes).is_ok() && stream.read_exact(&mut back).is_ok() && back == bytes
}

#[test]
fn flows_go_on_whichever_node_each_direction_comes_to() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = pair(&network, "");
    let (udp, external, tcp) = flows(&network, &a);
    for (outbound, inbound) in [("b", "a"), ("a", "b"), ("b", "b"), ("a", "a")] {
        network.lead(PairSide::Access, outbound).expect("routes");
        network.lead(PairSide::Border, inbound).expect("routes");
        for _ in 0..20 {
            assert!(is_alive(&tcp), "out by {outbound}, in by {inbound}");
            assert_eq!(seen(&udp), external, "out by {outbound}, in by {inbound}");
        }
        assert!(transfers(&tcp, &[7; 4000]), "segments of full length");
    }
    for way in ["outbound", "inbound"] {
        assert!(passed(&b, way) >= 80, "{way}: {}", passed(&b, way));
        assert_eq!(passed(&a, way), 0, "{way}");
    }
    let state = a.status().expect("a state");
    assert_eq!(state["tunnel"]["refused"]["foreign"], 0, "{state}");

    // Both routers choose a node for each connection.
    PairSide::BOTH.into_iter().try_for_each(|side| network.balance(side)).expect("routes");
    let before = passed(&b, "outbound");
    let connections: Vec<TcpStream> = (0..32)
        .map(|_| connect(network.node("sub"), 0, PAIR_SERVER).expect("a connection"))
        .collect();
    for connection in &connections {
        assert!(is_of(&endpoint_of(connection), "a"), "the subscriber has one address");
        assert!(transfers(connection, b"both nodes"));
    }
    assert!(passed(&b, "outbound") > before, "some came to b");
    assert_eq!(seen(&udp), external);

    // Without the owner the copies translate.
    a.kill().expect("killed");
    network.lead(PairSide::Access, "b").expect("routes");
    network.lead(PairSide::Border, "b").expect("routes");
    assert!(is_alive(&tcp), "the connection continues");
    assert_eq!(seen(&udp), external);
    wait_until(&b, "b takes the slice", has_first_slice);
}
