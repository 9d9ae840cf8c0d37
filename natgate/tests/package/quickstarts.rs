//! The quick starts and the README, carried out command by command.
//!
//! Each has a machine with a real systemd. The package is installed as in the text, the devices
//! have the text's names, and there are hosts on both sides. After the last command real traffic
//! passes.

use crate::document;
use crate::machine::Machine;
use crate::package;
use crate::walk::{Walk, unused};
use std::path::Path;

const PROGRAM: &str = crate::PROGRAM;
const ROOT: &str = crate::ROOT;

/// Documents whose commands a test runs.
const WALKED: &[&str] = &[
    "docs/quickstart-home.md",
    "docs/quickstart-isp.md",
    "docs/quickstart-cloud.md",
    "docs/quickstart-dslite.md",
    "README.md",
    "docs/service.md",
    "docs/upgrade.md",
];

/// A checkout at /root/natgate, and replacements of an editor and of the compiler. The editor
/// changes nothing, and `make` uses the existing program and package.
const PREPARE: &str = r#"
    checkout=$root/root/natgate
    mkdir -p $base/layer/checkout $base/layer/checkout-work $checkout
    mount -t overlay -o lowerdir=$source,upperdir=$base/layer/checkout,workdir=$base/layer/checkout-work \
        none $checkout
    mkdir -p $checkout/target/release $checkout/target/package $root/usr/local/bin $root/srv
    touch $checkout/target/release/natgate
    mount --bind $program $checkout/target/release/natgate
    touch $root/srv/natgate.deb
    mount --bind $package $root/srv/natgate.deb
    printf '#!/bin/sh\ntest -w "$1"\n' >$root/usr/local/bin/editor
    cat >$root/usr/local/bin/make <<'END'
#!/bin/sh
case "$*" in
build) ;;
deb) cp /srv/natgate.deb target/package/natgate_test.deb ;;
*) exit 2 ;;
esac
END
    chmod +x $root/usr/local/bin/editor $root/usr/local/bin/make
"#;

/// A server that returns a client's address and port, and a name for it.
const SERVER: &str = r#"
    cd /srv
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=example.org \
        -addext subjectAltName=DNS:example.org -keyout key.pem -out cert.pem 2>/dev/null
    cat cert.pem >>/etc/ssl/certs/ca-certificates.crt
    echo 198.18.0.80 example.org >>/etc/hosts
    cat >server.py <<'END'
import http.server, socket, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        address = self.client_address[0].removeprefix("::ffff:")
        self.wfile.write(b"%s:%d\n" % (address.encode(), self.client_address[1]))
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 256
server = Server(("::", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
END
"#;

/// Creates a machine with the package and the server's files, and runs a script for its network.
fn machine(network: &str) -> Machine {
    let places =
        [("source", Path::new(ROOT)), ("program", Path::new(PROGRAM)), ("package", package())];
    let machine = Machine::start(PREPARE, &places);
    machine.asks(SERVER);
    machine.asks(network);
    machine
}

/// Installs natgate by the home router's quick start.
fn install(machine: &Machine) {
    Walk::new(machine, "docs/quickstart-home.md").up_to("apt install");
}

fn serve(machine: &Machine, host: &str) {
    let python = "/usr/bin/python3 server.py >/dev/null 2>&1";
    machine.asks(&format!("cd /srv; setsid -f ip netns exec {host} {python}"));
    let listens = "ss -Hltn 'sport = :443' | grep -q .";
    machine.waits_for(&format!("ip netns exec {host} sh -c \"{listens}\""));
}

/// Output of a script on a host of the machine, repeated until it succeeds.
fn on(machine: &Machine, host: &str, script: &str) -> String {
    machine.waits_for(&format!("ip netns exec {host} {script}"))
}

const HOME: &str = "
    iptables -t nat -A POSTROUTING -s 192.168.1.0/24 -o wan0 -j MASQUERADE
    ip netns add host; ip netns add world
    ip link add lan0 type veth peer name eth0 netns host
    ip link add wan0 type veth peer name eth0 netns world
    ip addr add 192.168.1.1/24 dev lan0; ip link set lan0 up
    ip addr add 198.51.100.77/24 dev wan0; ip link set wan0 up
    ip -n host link set lo up
    ip -n host addr add 192.168.1.100/24 dev eth0
    ip -n host addr add 192.168.1.80/24 dev eth0; ip -n host link set eth0 up
    ip -n world link set lo up; ip -n world addr add 198.18.0.80/32 dev lo
    ip -n world addr add 198.51.100.1/24 dev eth0; ip -n world link set eth0 up";

#[test]
fn the_home_router_works_as_its_quick_start_says() {
    let machine = machine(HOME);
    serve(&machine, "world");
    serve(&machine, "host");
    let mut walk = Walk::new(&machine, "docs/quickstart-home.md");
    walk.rest();
    assert!(walk.said("ip -brief link").contains("lan0@"));
    let seen = walk.said("curl https://example.org");
    assert!(seen.contains("198.51.100.77:"), "{seen}");
    let status = walk.said("systemctl status natgate");
    assert!(status.contains("active (running)"), "{status}");
    let shown = walk.said("natgate show mappings");
    assert!(shown.contains("192.168.1.80:443"), "{shown}");
    // The kernel keeps its addresses, and answers there.
    on(&machine, "host", "ping -c 1 -W 2 192.168.1.2");
    on(&machine, "host", "curl -sS -m 5 https://example.org");
    // The forwarded port, from outside and from inside.
    let forwarded = "curl -sS -k -m 5 https://198.51.100.77";
    assert!(on(&machine, "world", forwarded).starts_with("198.51.100.1:"));
    let hairpin = format!("{forwarded} --interface 192.168.1.100");
    assert!(on(&machine, "host", &hairpin).starts_with("198.51.100.77:"));
    machine.asks("test -s /tmp/host.pcapng");
    quiet(&machine);
}

const ISP: &str = "
    ip netns add host; ip netns add access; ip netns add border
    ip link add inside0 numrxqueues 2 numtxqueues 2 type veth peer name eth0 netns access
    ip link add outside0 numrxqueues 2 numtxqueues 2 type veth peer name eth0 netns border
    for node in access border; do
        ip netns exec $node ethtool -K eth0 tx off tso off gso off txvlan off >/dev/null
        ip netns exec $node ethtool -L eth0 rx 1 tx 1
        ip netns exec $node sysctl -qw net.ipv4.ip_forward=1
    done
    ip -n access addr add 100.64.0.2/16 dev eth0; ip -n access link set eth0 up
    ip -n access link add eth1 type veth peer name eth0 netns host
    ip -n access addr add 100.70.0.1/24 dev eth1; ip -n access link set eth1 up
    ip -n access route add default via 100.64.0.1
    ip -n host addr add 100.70.0.5/24 dev eth0; ip -n host link set eth0 up
    ip netns exec host ethtool -K eth0 tx off tso off gso off >/dev/null
    ip -n host route add default via 100.70.0.1
    ip -n border link set lo up; ip -n border addr add 198.18.0.80/32 dev lo
    ip -n border addr add 192.0.2.254/24 dev eth0; ip -n border link set eth0 up
    cat >/srv/border.conf <<'END'
router id 192.0.2.254;
protocol device { scan time 1; }
protocol kernel { scan time 1; ipv4 { import none; export where source = RTS_BGP; }; }
protocol bgp customer {
    local 192.0.2.254 as 65000; neighbor 192.0.2.3 as 65001;
    connect delay time 1; connect retry time 1; error wait time 1, 2;
    ipv4 { import all; export none; };
}
END
    setsid -f ip netns exec border bird -f -c /srv/border.conf -s /srv/border.ctl >/dev/null 2>&1";

#[test]
fn the_provider_s_gateway_works_as_its_quick_start_says() {
    let machine = machine(ISP);
    serve(&machine, "border");
    install(&machine);
    let mut walk = Walk::new(&machine, "docs/quickstart-isp.md");
    walk.up_to("birdc show route");
    assert!(walk.said("natgate show workers").lines().count() > 2);
    // The route to the pool comes to the border router by BGP, and leads to natgate.
    let route = machine.waits_for("ip -n border route show proto bird | grep .");
    assert!(route.starts_with("203.0.113.0/24 via 192.0.2.1 "), "{route}");
    let seen = on(&machine, "host", "curl -sS -m 5 https://example.org");
    assert!(seen.starts_with("203.0.113."), "{seen}");
    let now = machine.asks("sleep 1; date -u +%Y-%m-%dT%H:%M:%SZ");
    // The log is at most about a second late.
    let ask = format!("natgate who {seen} --at {now} | grep -q 100.70.0.5");
    machine.waits_for(&ask);
    walk.variables = format!("endpoint={seen} now={now}; ");
    walk.up_to("natgate reload\n");
    let answer = walk.said("natgate who");
    assert!(answer.starts_with("100.70.0.5 "), "{answer}");
    assert_eq!(machine.asks("ls /var/log/natgate"), "spool");
    quiet(&machine);
    walk.rest();
    machine.waits_for("test -z \"$(ip -n border route show proto bird)\"");
    assert_eq!(machine.asks("ip route show proto 78"), "");
    // A purge leaves only the log.
    machine.asks("test -s /var/lib/natgate/ports");
    let purged = machine.asks("DEBIAN_FRONTEND=noninteractive apt-get purge -y natgate 2>&1");
    assert!(purged.contains("natgate: /var/log/natgate stays, with its files"), "{purged}");
    machine.asks("test -n \"$(ls /var/log/natgate/spool)\"");
    machine.asks("test ! -e /var/lib/natgate; test ! -e /etc/natgate; test ! -e /usr/bin/natgate");
}

const CLOUD: &str = "
    ip netns add host; ip netns add partner; ip netns add cloud; ip netns add world
    ip link add eth1 type veth peer name eth0 netns cloud
    ip link add eth0 type veth peer name eth0 netns world
    ip addr add 10.20.0.5/24 dev eth1; ip link set eth1 up
    ip addr add 192.0.2.5/24 dev eth0; ip link set eth0 up
    ip netns exec cloud sysctl -qw net.ipv4.ip_forward=1
    ip -n cloud addr add 10.20.0.1/24 dev eth0; ip -n cloud link set eth0 up
    ip -n cloud route add default via 10.20.0.5
    for node in host:40 partner:30; do
        name=${node%:*}; net=10.${node#*:}.0
        ip -n cloud link add $name type veth peer name eth0 netns $name
        ip -n cloud addr add $net.1/24 dev $name; ip -n cloud link set $name up
        ip -n $name addr add $net.9/24 dev eth0; ip -n $name link set eth0 up
        ip -n $name route add default via $net.1
    done
    ip -n world link set lo up; ip -n world addr add 198.18.0.80/32 dev lo
    ip -n world addr add 192.0.2.1/24 dev eth0; ip -n world link set eth0 up
    ip -n world route add 203.0.113.0/24 via 192.0.2.5";

#[test]
fn the_cloud_s_way_out_works_as_its_quick_start_says() {
    let machine = machine(CLOUD);
    serve(&machine, "world");
    install(&machine);
    let mut walk = Walk::new(&machine, "docs/quickstart-cloud.md");
    walk.rest();
    let in_pool = |seen: &str| (10..14).any(|end| seen.contains(&format!("203.0.113.{end}:")));
    let seen = walk.said("curl https://example.org");
    assert!(in_pool(seen), "{seen}");
    let partner = on(&machine, "partner", "curl -sS -m 5 https://example.org");
    assert!(partner.starts_with("203.0.113.20:"), "{partner}");
    // A hundred simultaneous connections to one API.
    let script = "for i in $(seq 100); do curl -sS -m 50 https://example.org 2>&1 & done; wait";
    let all = on(&machine, "host", &format!("sh -c '{script}'"));
    assert_eq!(all.lines().filter(|line| in_pool(line)).count(), 100, "{all}");
    let counters = machine.asks("natgate show counters");
    assert!(!counters.contains("port_quota") && !counters.contains("pool_exhausted"), "{counters}");
    quiet(&machine);
    Walk::new(&machine, "docs/service.md").rest();
    upgrade(&machine);
    assert!(in_pool(&on(&machine, "host", "curl -sS -m 5 https://example.org")));
}

/// Upgrades a service as in the text, to a package with a higher version.
fn upgrade(machine: &Machine) {
    machine.asks(
        "dpkg-deb -R /srv/natgate.deb /srv/new
        sed -i 's/^Version: .*/&+new/' /srv/new/DEBIAN/control
        dpkg-deb -Zgzip -z1 -b /srv/new /root/natgate/natgate_NEW.deb",
    );
    let before = machine.asks("systemctl show natgate --value --property MainPID");
    Walk::new(machine, "docs/upgrade.md").rest();
    machine.waits_for("journalctl -u natgate | grep 'took over .* mappings; packets waited for'");
    let moved = format!("test $(systemctl show natgate --value --property MainPID) != {before}");
    machine.waits_for(&moved);
    assert!(machine.asks("dpkg-query -Wf '${Version}' natgate").ends_with("+new"));
}

/// The kernel of the home is the customer's end of a tunnel. It takes ports of lw4o6 for its own.
const DSLITE: &str = "
    ip netns add home; ip netns add access; ip netns add border
    ip link add inside0 type veth peer name eth0 netns access
    ip link add outside0 type veth peer name eth0 netns border
    ip -n access link add eth1 type veth peer name eth0 netns home
    for node in access border home; do
        ip netns exec $node ethtool -K eth0 tx off tso off gso off txvlan off >/dev/null
    done
    ip netns exec access sysctl -qw net.ipv6.conf.all.forwarding=1
    ip -n access addr add 2001:db8:1::5/64 dev eth0 nodad; ip -n access link set eth0 up
    ip -n access addr add 2001:db8:2::1/64 dev eth1 nodad; ip -n access link set eth1 up
    ip -n access route add 2001:db8:ffff::1/128 via 2001:db8:1::1
    for prefix in 2001:db8:b4::/48 2001:db8:8000::/40; do
        ip -n access route add $prefix via 2001:db8:2::5
    done
    ip -n home link set lo up; ip -n home addr add 192.168.1.2/32 dev lo
    ip -n home addr add 2001:db8:2::5/64 dev eth0 nodad; ip -n home link set eth0 up
    ip -n home route add ::/0 via 2001:db8:2::1
    ip -n border link set lo up; ip -n border addr add 198.18.0.80/32 dev lo
    ip -n border addr add 192.0.2.254/24 dev eth0; ip -n border link set eth0 up
    ip -n border route add 203.0.113.0/24 via 192.0.2.1";

/// Makes the home the customer with this end of the tunnel and these addresses and ports.
fn becomes_customer(machine: &Machine, [b4, address, ports]: [&str; 3]) {
    machine.asks(&format!(
        "ip -n home addr replace {address}/32 dev lo
        ip -n home sr tunsrc set {b4}
        ip -n home route replace default src {address} encap seg6 mode encap.red \
            segs 2001:db8:ffff::1 dev eth0
        ip -n home route replace {b4}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0
        ip netns exec home sysctl -qw net.ipv4.tcp_tw_reuse=1 \
            net.ipv4.ip_local_port_range='{ports}'"
    ));
}

#[test]
fn customers_of_tunnels_have_ipv4_as_the_quick_start_says() {
    let machine = machine(DSLITE);
    serve(&machine, "border");
    install(&machine);
    becomes_customer(&machine, ["2001:db8:b4::1", "192.168.1.2", "32768 60999"]);
    let mut walk = Walk::new(&machine, "docs/quickstart-dslite.md");
    walk.up_to("systemctl status natgate");
    on(&machine, "home", "curl -sS -m 5 https://example.org");
    walk.up_to("curl https://example.org");
    let seen = endpoint(walk.said("curl https://example.org"));
    assert!(seen.starts_with("203.0.113."), "{seen}");
    walk.up_to("natgate trace");
    let shown = walk.said("natgate show mappings");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].contains(" b4 ") && lines[1].contains(" 2001:db8:b4::1 "), "{shown}");
    let traced = walk.said("natgate trace");
    assert!(traced.contains("of subscriber 2001:db8:b4::1"), "{traced}");
    let now = machine.asks("sleep 1; date -u +%Y-%m-%dT%H:%M:%SZ");
    machine.waits_for(&format!("natgate who {seen} --at {now} | grep -q 2001:db8:b4::1"));
    walk.variables = format!("endpoint={seen} now={now}; ");
    walk.up_to("natgate who");
    for command in ["natgate who 203.0.113.40:2300", "natgate who 203.0.113.40:2300 --at"] {
        let answer = walk.said(command);
        assert!(answer.starts_with("2001:db8:b4::1 "), "{command}: {answer}");
    }
    quiet(&machine);

    becomes_customer(&machine, ["2001:db8:b4::1", "203.0.113.7", "4608 4863"]);
    walk.up_to("natgate show bindings");
    assert!(walk.said("natgate show bindings").contains("4608-4863"));
    on(&machine, "home", "curl -sS -m 5 https://example.org");
    walk.up_to("curl https://example.org");
    let (address, port) = ends_of(walk.said("curl https://example.org"));
    assert!(address == "203.0.113.7" && (4608..=4863).contains(&port), "{address}:{port}");

    let by_rule = "2001:db8:8009:1200:0:cb00:7109:12";
    becomes_customer(&machine, [by_rule, "203.0.113.9", "1096 1099"]);
    walk.rest();
    let traced = walk.said("natgate trace");
    assert!(traced.contains(by_rule), "{traced}");
    let seen = on(&machine, "home", "curl -sS -m 5 https://example.org");
    let (address, port) = ends_of(&seen);
    assert!(address == "203.0.113.9" && (1096..=1099).contains(&port), "{seen}");
    quiet(&machine);
}

/// The endpoint that the server has seen; curl says its progress beside it.
fn endpoint(seen: &str) -> String {
    let found = seen.lines().find(|line| line.starts_with("203.0.113."));
    found.unwrap_or_else(|| panic!("{seen}")).trim().to_owned()
}

fn ends_of(seen: &str) -> (String, u16) {
    let endpoint = endpoint(seen);
    let (address, port) = endpoint.split_once(':').expect("an endpoint");
    (address.to_owned(), port.parse().expect("a port"))
}

const PLAIN: &str = "
    iptables -t nat -A POSTROUTING -s 10.0.0.0/8 -o eth0 -j MASQUERADE
    ip netns add host; ip netns add world
    ip link add eth1 type veth peer name eth0 netns host
    ip link add eth0 type veth peer name eth0 netns world
    ip link set eth1 up; ip link set eth0 up
    ip -n host addr add 10.0.0.5/8 dev eth0; ip -n host link set eth0 up
    ip -n host route add default via 10.0.0.1
    ip -n world link set lo up; ip -n world addr add 198.18.0.80/32 dev lo
    ip -n world addr add 192.0.2.254/24 dev eth0; ip -n world link set eth0 up
    ip -n world route add 203.0.113.0/28 via 192.0.2.1";

/// The README's network with IPv6: the host of the inside learns its address and its router.
const WITH_IPV6: &str = "
    sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1; sysctl -qw net.ipv6.conf.eth1.disable_ipv6=1
    ip -n world addr add 11.0.0.80/32 dev lo
    ip -n world addr add 2001:db8:0:2::fe/64 dev eth0 nodad
    ip -n world route add 2001:db8:0:1::/64 via 2001:db8:0:2::1";

#[test]
fn the_readme_s_commands_work() {
    let machine = machine(PLAIN);
    serve(&machine, "world");
    install(&machine);
    let mut walk = Walk::new(&machine, "README.md");
    walk.up_to("target/release/natgate replay");
    machine.asks("cd /root/natgate; test -s out.pcapng; test -s stats.json");
    assert!(walk.said("target/release/natgate replay").contains("mapping_created"));
    walk.up_to("natgate run -c gateway.toml");
    machine.asks("curl -sS -m 5 http://127.0.0.1:9465/ | grep -qi '<html'");
    let seen = on(&machine, "host", "curl -sS -m 5 https://example.org");
    assert!(seen.starts_with("203.0.113."), "{seen}");
    walk.variables = format!("endpoint={seen}; ");
    walk.up_to("natgate clear mappings");
    assert!(walk.said("natgate who").starts_with("10.0.0.5"), "{}", walk.said("natgate who"));
    assert!(walk.said("natgate show mappings").contains("10.0.0.5:"));
    machine.asks("test -s /root/natgate/flow.pcapng");
    walk.up_to("--take-over");
    on(&machine, "host", "curl -sS -m 5 https://example.org");
    // The old process still has to finish its own work when the new one forwards packets.
    machine.waits_for("test $(pgrep --count --exact natgate) = 1");
    machine.asks("pkill --exact natgate");
    machine.waits_for("! pgrep --exact natgate");
    machine.asks(WITH_IPV6);
    walk.up_to("natgate run -c gateway6.toml");
    on(&machine, "host", "curl -sS -m 5 -g -k https://[64:ff9b::11.0.0.80]");
    on(&machine, "host", "curl -sS -m 5 -g -k https://[2001:db8:0:2::fe]");
    walk.rest();
}

/// Asserts that a running gateway with the text's configuration has no warnings.
#[track_caller]
fn quiet(machine: &Machine) {
    let ask = "journalctl --no-pager --output cat --unit natgate --priority warning";
    let warnings = machine.asks(ask);
    assert!(warnings.lines().all(|line| line.starts_with("--")), "{warnings}");
}

#[test]
fn every_exception_is_needed() {
    assert_eq!(unused(WALKED), [""; 0]);
}

/// Commands in running text are also in a block, so that a test runs them.
#[test]
fn commands_in_the_text_of_a_quick_start_are_in_its_blocks() {
    // Options and files in the text.
    const NAMED: &[&str] = &[
        "make image",
        "nft list ruleset",
        "natgate check",
        "natgate reload",
        "natgate run",
        "natgate show counters",
    ];
    let programs = [
        "natgate ",
        "systemctl ",
        "apt ",
        "ip ",
        "bird",
        "make ",
        "nft ",
        "sysctl ",
        "journalctl ",
    ];
    for name in &WALKED[..4] {
        let blocks = document::blocks(name);
        let in_a_block = |span: &String| blocks.iter().any(|block| block.text.contains(span));
        for span in document::spans(name) {
            let is_command = programs.iter().any(|program| span.starts_with(program));
            let known = NAMED.contains(&span.as_str()) || in_a_block(&span);
            assert!(!is_command || known, "{name}: `{span}` is in no block");
        }
    }
}
