//! PPTP between Debian's programs: clients of pptp-linux, and pptpd, all with pppd.
//!
//! ```text
//! one ---+                          +--- pptpd
//!        +--- inside [nat] outside ---+
//! two ---+                          +--- caller
//! ```
//!
//! They run in one emulated machine with Debian's kernel, because the kernel of this machine need
//! not have PPP. Each client has a network namespace there, so that packets between a client and a
//! server leave the machine.

use super::proftpd::unpacked;
use super::*;
use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, LinuxGuest, LinuxMachine, Network, ROUTER, SUBSCRIBER2, Turn,
    config_with_pool, wait_for,
};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// PPP in the kernel: pppd has a terminal, and pptp and pptpd the other end of it.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_net", "macvlan", "ppp_async"];

/// A client outside, and the port of the server inside that it calls.
const CALLER: &str = "192.0.2.9";
const PPTP: u16 = 1723;

/// Functions of the guest's shell for the commands of the test. Clients call `SERVER`; it has the
/// address `PEER` in tunnels, and its programs start by `AT`. The shell's own ip and ping lack
/// options.
const FUNCTIONS: &str = r#"
ip() { /bin/ip "$@"; }
in_tunnel() { ip -n $1 -o -4 address show dev ppp0 | awk '{ print $4 }'; }
connect() {
    client=$1; mtu=$2; shift 2
    ip netns exec $client /usr/sbin/pppd linkname $client file /etc/ppp/client mtu $mtu mru $mtu \
        pty "pptp $SERVER --nolaunchpppd --nohostroute --localbind $(address_of $client)" \
        updetach "$@" </dev/null
}
disconnect() {
    process=$(head -n 1 /run/ppp-$1.pid) && kill $process
    while [ -d /proc/$process ]; do sleep 0.1; done
}
answers() {
    for try in 1 2 3; do "$@" -n -q -c 1 -W 5 -M dont >/dev/null && return; done
    echo "no answer: $*"; return 1
}
pings() {
    for size in 0 56 700 1372 1373 1472 1473 4000; do
        answers ip netns exec $1 /bin/ping -s $size $PEER &&
            answers $AT /bin/ping -s $size $(in_tunnel $1) || return
    done
}
serve() {
    printf 'option /etc/ppp/server\nconnections 8\nlisten %s\n' $1 >/etc/pptpd-$2
    printf 'localip 10.99.%s.1\nremoteip 10.99.%s.11-18\n' $2 $2 >>/etc/pptpd-$2
    $AT /usr/sbin/pptpd --conf /etc/pptpd-$2 --pidfile /run/pptpd-$2
}
fetches() {
    ip netns exec $1 /bin/busybox wget -q -O - http://$PEER/body | cmp - /srv/body &&
        $AT /bin/busybox wget -q -O - http://$(in_tunnel $1)/body | cmp - /srv/body
}
"#;

/// Script of the guest: addresses and programs of all hosts.
fn script(load: &str) -> String {
    let client = |name: &str, address: &str, device: &str, gateway: Ipv4Addr| {
        format!(
            "ip netns add {name}
ip link add link {device} name eth netns {name} type macvlan mode bridge
ip -n {name} address add {address}/24 dev eth
ip -n {name} link set lo up
ip -n {name} link set eth up
ip -n {name} route add default via {gateway}
ip netns exec {name} /bin/busybox httpd -h /srv
"
        )
    };
    let [one, two] = [SUBSCRIBER1, SUBSCRIBER2].map(|address| address.to_string());
    let clients = [
        client("one", &one, "eth0", GATEWAY_INSIDE),
        client("two", &two, "eth0", GATEWAY_INSIDE),
        client("caller", CALLER, "eth1", GATEWAY_OUTSIDE),
    ];
    let clients = clients.concat();
    format!(
        "export PATH=/bin:/usr/sbin
busybox mkdir -p /dev /etc/ppp /run/netns /srv /tmp /var/log
busybox ln -s busybox /bin/sh
busybox ln -s /run /var/run
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/pts
busybox mount -t devpts devpts /dev/pts
address_of() {{ case $1 in one) echo {one};; two) echo {two};; *) echo {CALLER};; esac; }}
{FUNCTIONS}{load}busybox syslogd -O /dev/console
dd if=/dev/urandom of=/srv/body bs=1000 count=100 2>/dev/null
ip link set lo up
ip address add {ROUTER}/24 dev eth1
ip address add {SERVER1}/32 dev lo
ip link set eth0 up
ip link set eth1 up
ip route add 203.0.113.0/24 via {GATEWAY_OUTSIDE}
{clients}busybox httpd -h /srv
printf 'noauth\\nnodefaultroute\\nnoccp\\nnovj\\nnoipv6\\n' | tee /etc/ppp/client >/etc/ppp/server
printf 'noipdefault\\nchild-timeout 1\\n' >>/etc/ppp/client
echo >/etc/ppp/options
SERVER={SERVER1} PEER=10.99.0.1 AT=
serve {SERVER1} 0
"
    )
}

fn start_guest(network: &Network) -> LinuxMachine {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debian");
    let guest = LinuxGuest::unpack(&packages, &network.file("guest"), "amd64");
    let guest = guest.expect("`make guests` fetches Debian's packages");
    let load = guest.add_modules(&MODULES).unwrap();
    ["ip", "ping"].into_iter().for_each(|tool| guest.add_tool(tool).unwrap());
    for program in ["pppd", "pptp", "pptpd", "pptpctrl"] {
        guest.add_program(&unpacked(program), &format!("usr/sbin/{program}")).unwrap();
    }
    guest.start(network, "guest", &script(&load)).unwrap()
}

/// The gateway between both sides, with one external address.
fn start_gateway(network: &Network, more: &str) -> Gateway {
    let config = config_with_pool(&format!("addresses = [\"{}\"]", POOL[0]), more);
    let gateway = Gateway::start_in(network, "nat", Path::new(PROGRAM), &config);
    gateway.unwrap_or_else(|error| panic!("{error}"))
}

/// What `natgate show expectations` lists.
fn expectations(socket: &Path) -> Vec<Value> {
    let mut program = Command::new(PROGRAM);
    let output = program.args(["show", "expectations", "--json", "--socket"]).arg(socket).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown["expectations"].as_array().unwrap().clone()
}

/// Internal and external endpoints of calls in a log of events, the first call first.
fn calls(events: &Path) -> Vec<[String; 2]> {
    let text = fs::read_to_string(events).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let begun = lines.filter(|line| line["event"] == "alg_expectation");
    let end = |call: &Value, end: &str| call["mapping"][end].as_str().unwrap().to_owned();
    begun.map(|call| ["internal", "external"].map(|side| end(&call, side))).collect()
}

/// The guest executes this command, which must succeed.
type Run<'r> = &'r mut dyn FnMut(&str);

/// Two subscribers with one external address have tunnels with one server.
fn two_subscribers_have_tunnels(network: &Network, run: Run<'_>, workers: usize) {
    let events = network.file(&format!("events{workers}.jsonl"));
    let socket = network.file("control.sock");
    let more = format!(
        "{STRICT}[alg]\npptp = true\n[workers]\ncount = {workers}\n\
         [[log]]\nkind = \"file\"\npath = {events:?}\n[control]\nsocket = {socket:?}\n"
    );
    let gateway = start_gateway(network, &more);
    // Both ends of PPP wait for each other, so the call stays an expectation until it ends.
    run("echo silent >>/etc/ppp/server; connect one 1400 silent & true");
    let wait_for_calls = |count| {
        let are_there = || Ok((expectations(&socket).len() == count).then_some(()));
        wait_for("the list of calls", 6 * PATIENCE, are_there).unwrap();
    };
    wait_for_calls(1);
    let shown = expectations(&socket).remove(0);
    assert_eq!((&shown["kind"], &shown["protocol"]), (&"pptp".into(), &"gre".into()));
    run("disconnect one && sed -i /silent/d /etc/ppp/server");
    wait_for_calls(0);
    // Packets of the second tunnel are longer than the link outside: they leave in fragments.
    run("connect one 1400 && connect two 1500");
    for client in ["one", "two"] {
        run(&format!("pings {client} && fetches {client}"));
    }
    assert_eq!(alg_counters(&gateway)["pptp"], 3, "{workers} workers");
    assert_eq!(expectations(&socket), [Value::Null; 0], "both tunnels are in use");
    // The end of a call leaves the other one alone, and its client may call again.
    run("disconnect one && pings two && fetches two");
    run("connect one 1500 && pings one && fetches one && pings two");
    assert_eq!(alg_counters(&gateway)["pptp"], 4, "{workers} workers");
    run("disconnect one && disconnect two");
    let drops = gateway.status().unwrap()["counters"]["drops"].clone();
    assert_eq!(drops["ambiguous"], 0, "{drops}");
    assert!(gateway.stop().unwrap().success());

    let calls = calls(&events);
    let [first, [one, seen_one], [two, seen_two], _] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&shown["internal"], &shown["external"]), (&json!(first[0]), &json!(first[1])));
    for (end, address) in [(one, SUBSCRIBER1), (two, SUBSCRIBER2)] {
        assert!(end.starts_with(&format!("{address}:")), "{calls:?}");
    }
    for end in [seen_one, seen_two] {
        assert!(end.starts_with(&format!("{}:", POOL[0])), "{calls:?}");
    }
    assert_ne!(seen_one, seen_two, "the server tells the calls apart");
}

/// Without the gateway, packets of a tunnel have no more than an address, which the first
/// subscriber keeps.
fn the_first_subscriber_has_the_tunnel(network: &Network, run: Run<'_>) {
    let gateway = start_gateway(network, STRICT);
    run("connect one 1400 && pings one");
    run("! connect two 1400 lcp-restart 1 lcp-max-configure 5");
    run("pings one && fetches one && disconnect one");
    let status = gateway.status().unwrap();
    let drops = &status["counters"]["drops"];
    assert!(drops["ambiguous"].as_u64() >= Some(1), "packets of the second tunnel: {drops}");
    assert!(gateway.stop().unwrap().success());
}

/// A client outside has a tunnel with a server inside, which a static mapping makes known.
fn a_server_inside_has_a_tunnel(network: &Network, run: Run<'_>) {
    let external = POOL[0];
    let fixed = format!(
        "[[static]]\nprotocol = \"tcp\"\ninternal = \"{SUBSCRIBER1}:{PPTP}\"\n\
         external = \"{external}:{PPTP}\"\n"
    );
    let gateway = start_gateway(network, &format!("{STRICT}{fixed}[alg]\npptp = true\n"));
    run(&format!("SERVER={external} PEER=10.99.1.1 AT='ip netns exec one'"));
    run(&format!("serve {SUBSCRIBER1} 1"));
    run("connect caller 1500 && pings caller && fetches caller && disconnect caller");
    assert_eq!(alg_counters(&gateway)["pptp"], 1);
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn pptp_linux_and_pptpd_have_tunnels() {
    let turn = Turn::take(TAG);
    let mut network = Network::empty(&turn.name()).unwrap();
    ["guest", "nat"].into_iter().for_each(|node| network.add(node).unwrap());
    for side in ["inside", "outside"] {
        network.cable(["guest", side, "nat", side]).unwrap();
    }
    let mut guest = start_guest(&network);
    let mut run = |command: &str| guest.run(command).unwrap_or_else(|error| panic!("{error}"));
    for workers in [1, 2] {
        two_subscribers_have_tunnels(&network, &mut run, workers);
    }
    the_first_subscriber_has_the_tunnel(&network, &mut run);
    a_server_inside_has_a_tunnel(&network, &mut run);
}
