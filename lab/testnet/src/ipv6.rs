//! IPv6 in the network: a subscriber without IPv4, and a resolver with DNS64.
//!
//! ```text
//! sub6 ------ switch --- inside [nat] outside --- nat [router] --- server2 2001:db8:3::53
//!        2001:db8:1::1       2001:db8:2::2    2001:db8:2::1
//! ```
//!
//! The subscriber learns its address, its default router and its resolver from the gateway's router
//! advertisement. The resolver is unbound on server 2. It knows one name, [`NAME`], which has only
//! an IPv4 address, the one of server 1. Server 1 has no IPv6.

use std::io;
use std::net::Ipv6Addr;
use std::process::Child;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::gateway::{pool, tables};
use crate::network::{Network, SERVER1};
use crate::{wait_for, wait_for_listener};

/// The gateway's own address towards the subscribers.
pub const GATEWAY_INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
/// The gateway's own address towards the router.
pub const GATEWAY_OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
/// The router's address towards the gateway.
pub const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
/// The address of server 2, which is the resolver.
pub const RESOLVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 0x53);
/// The prefix of NAT64, of 96 bits.
pub const PREFIX64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
/// The name of server 1.
pub const NAME: &str = "www.demo.example";

/// The router's address towards server 2.
const NEAR_SERVER2: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);

/// Longest time to form an address: two searches for duplicates, a second each, a lost
/// solicitation, four seconds, and the gateway's pause between advertisements, three seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// Configuration of a subscriber that has formed an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autoconfiguration {
    /// Address, from the advertised prefix.
    pub address: Ipv6Addr,
    /// Default router's link-local address.
    pub router: Ipv6Addr,
    /// Servers of names (RFC 8106).
    pub dns: Vec<Ipv6Addr>,
    /// Prefix of NAT64 (RFC 8781), if it has 96 bits.
    pub prefix64: Option<Ipv6Addr>,
}

/// Options of a router advertisement that the kernel leaves to programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    dns: Vec<Ipv6Addr>,
    prefix64: Option<Ipv6Addr>,
}

/// A running unbound; killed when dropped.
#[derive(Debug)]
pub struct Resolver {
    child: Child,
}

/// Returns true if this kernel has IPv6.
pub fn kernel_has_ipv6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// Configuration for the network with IPv6, NAT64 and router advertisements.
pub fn config_with_ipv6() -> String {
    tables(
        &format!("address6 = \"{GATEWAY_INSIDE6}/64\"\n"),
        &format!("address6 = \"{GATEWAY_OUTSIDE6}/64\"\ngateway6 = \"{ROUTER6}\"\n"),
        &pool(),
        &format!(
            "[nat64]\nprefixes = [\"{PREFIX64}/96\"]\n[ipv6.advertise]\ndns = [\"{RESOLVER}\"]\n"
        ),
    )
}

impl Network {
    /// Adds IPv6 to a network of [`Network::build`]: the subscriber, still without an address, and
    /// addresses and routes of the router and of server 2.
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`.
    pub fn add_ipv6(&mut self) -> io::Result<()> {
        self.add("sub6")?;
        self.cable(["sub6", "eth0", "switch", "sub6"])?;
        self.node("switch").ip_batch("link set sub6 master bridge\n")?;
        for node in ["router", "server2"] {
            self.node(node).set("ipv6/conf/all/disable_ipv6", "0")?;
            // Otherwise fast requests of traceroute get no answer.
            self.node(node).set("ipv6/icmp/ratelimit", "0")?;
        }
        let router = self.node("router");
        router.set("ipv6/conf/all/forwarding", "1")?;
        router.ip_batch(&format!(
            "address add {ROUTER6}/64 dev nat nodad\n\
             address add {NEAR_SERVER2}/64 dev server2 nodad\n\
             route add {GATEWAY_INSIDE6}/64 via {GATEWAY_OUTSIDE6}\n"
        ))?;
        self.node("server2").ip_batch(&format!(
            "address add {RESOLVER}/64 dev eth0 nodad\n\
             route add default via {NEAR_SERVER2}\n"
        ))
    }

    /// Switches IPv6 on in the subscriber, waits until it has an address by the gateway's
    /// advertisement, and makes the advertised servers of names those of its programs.
    ///
    /// # Errors
    /// The missing advertisement, address or router.
    pub fn autoconfigure(&self) -> io::Result<Autoconfiguration> {
        let node = self.node("sub6");
        // The socket sees the advertisement that the kernel asks for.
        let socket =
            node.enter(|| Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)))??;
        node.ip_batch("link set lo up\n")?;
        let keys = [("accept_ra", "1"), ("autoconf", "1"), ("use_tempaddr", "0")];
        for (key, value) in keys.into_iter().chain([("disable_ipv6", "0")]) {
            node.set(&format!("ipv6/conf/eth0/{key}"), value)?;
        }
        let Options { dns, prefix64 } = receive_advertisement(&socket)?;
        let word_after = |word: &str, arguments: &[&str]| {
            let output = node.run(5, "ip", arguments)?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut words = text.split_whitespace().skip_while(|one| *one != word);
            Ok(words.nth(1).and_then(|found| found.split('/').next()?.parse().ok()))
        };
        let global = ["-6", "address", "show", "dev", "eth0", "scope", "global", "-tentative"];
        let address = wait_for("an address of the advertised prefix", PATIENCE, || {
            word_after("inet6", &global)
        })?;
        let routes = ["-6", "route", "show", "default", "proto", "ra"];
        let router = wait_for("a default router", PATIENCE, || word_after("via", &routes))?;
        let servers: String = dns.iter().map(|server| format!("nameserver {server}\n")).collect();
        node.write_etc("resolv.conf", &servers)?;
        // A caching service of the machine would ask the machine's own servers.
        node.write_etc("nsswitch.conf", "hosts: files dns\n")?;
        Ok(Autoconfiguration { address, router, dns, prefix64 })
    }
}

impl Resolver {
    /// Starts the resolver in a network with IPv6; it listens when this returns.
    ///
    /// # Errors
    /// The resolver's own messages if it does not listen.
    pub fn start(network: &Network) -> io::Result<Self> {
        let node = network.node("server2");
        // A process list tells by the name whose file this is. Debian's AppArmor profile lets
        // unbound read only files below /etc/unbound.
        let file = format!("/etc/unbound/{}.conf", node.name());
        node.write_etc(&format!("unbound/{}.conf", node.name()), &resolver_config())?;
        node.write_etc("unbound/demo.zone", &zone())?;
        let log = network.file("unbound.log");
        let arguments = ["-d", "-p", "-c", &file];
        let resolver = Self { child: node.start("unbound".as_ref(), &arguments, &log)? };
        match wait_for_listener(node, 53, Duration::from_secs(10)) {
            Ok(()) => Ok(resolver),
            Err(error) => {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                Err(io::Error::other(format!("unbound: {error}: {said}")))
            }
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        // Both calls fail only if the resolver has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Unbound's configuration: DNS64 before an iterator that knows the zone. Data for clients
/// (`local-data`, or a zone for downstream) would bypass DNS64.
fn resolver_config() -> String {
    format!(
        "server:\n\
         \x20 module-config: \"dns64 iterator\"\n\
         \x20 dns64-prefix: {PREFIX64}/96\n\
         \x20 interface: {RESOLVER}\n\
         \x20 access-control: ::/0 allow\n\
         \x20 username: \"\"\n\
         \x20 chroot: \"\"\n\
         \x20 pidfile: \"\"\n\
         \x20 use-syslog: no\n\
         auth-zone:\n\
         \x20 name: demo.example\n\
         \x20 zonefile: /etc/unbound/demo.zone\n\
         \x20 for-downstream: no\n\
         \x20 for-upstream: yes\n\
         remote-control:\n\
         \x20 control-enable: no\n"
    )
}

fn zone() -> String {
    format!(
        "demo.example. 60 IN SOA ns.demo.example. root.demo.example. 1 3600 600 86400 60\n\
         demo.example. 60 IN NS ns.demo.example.\n\
         ns.demo.example. 60 IN AAAA {RESOLVER}\n\
         {NAME}. 60 IN A {SERVER1}\n"
    )
}

/// Waits for a router advertisement.
fn receive_advertisement(socket: &Socket) -> io::Result<Options> {
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; 1500];
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        socket.set_read_timeout(Some(left))?;
        let Ok(len) = io::Read::read(&mut &*socket, &mut buffer) else { break };
        if let Some(options) = parse_advertisement(&buffer[..len]) {
            return Ok(options);
        }
    }
    let message = format!("no router advertisement within {PATIENCE:?}");
    Err(io::Error::new(io::ErrorKind::TimedOut, message))
}

/// Options of an ICMPv6 message, if it is a router advertisement (RFC 4861 section 4.2).
fn parse_advertisement(message: &[u8]) -> Option<Options> {
    const ROUTER_ADVERTISEMENT: u8 = 134;
    const HEADER: usize = 16;
    const RDNSS: u8 = 25;
    const PREF64: u8 = 38;
    if *message.first()? != ROUTER_ADVERTISEMENT {
        return None;
    }
    let mut options = Options::default();
    let mut rest = message.get(HEADER..)?;
    while let [kind, units, ..] = *rest {
        let (option, next) = rest.split_at_checked(usize::from(units).max(1) * 8)?;
        match kind {
            RDNSS => options.dns.extend(
                option[8..].as_chunks::<16>().0.iter().map(|octets| Ipv6Addr::from(*octets)),
            ),
            // The last three bits of the lifetime are the length: 0 for 96 bits.
            PREF64 if units == 2 && option[3] & 7 == 0 => {
                let mut octets = [0; 16];
                octets[..12].copy_from_slice(&option[4..]);
                options.prefix64 = Some(octets.into());
            }
            _ => {}
        }
        rest = next;
    }
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_an_advertisement_are_read() {
        let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        message.extend([25, 3, 0, 0, 0, 0, 7, 8]);
        message.extend(RESOLVER.octets());
        message.extend([38, 2, 7, 8, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]);
        let expected = Options { dns: vec![RESOLVER], prefix64: Some(PREFIX64) };
        assert_eq!(parse_advertisement(&message), Some(expected));
        assert_eq!(parse_advertisement(&message[..16]), Some(Options::default()));
        assert_eq!(parse_advertisement(&message[..message.len() - 1]), None);
        message[0] = 133;
        assert_eq!(parse_advertisement(&message), None);
    }
}
