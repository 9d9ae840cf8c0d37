//! `natgate run` on ports of DPDK: between two ports of a tester in this process, which compares
//! every byte, and between kernels in network namespaces.
//!
//! Needs libdpdk, root and the programs that `make test` installs, and fails without them. The
//! tester is a DPDK process, too, so both communicate through shared memory as in service. One test
//! runs at a time, because the programs spin and share two cores with the gateway.

use natgate_dpdk::{DpdkDevice, start};
use natgate_io::Device;
use natgate_tester::{Load, Mix, Place, Report, Tester, Way};
use natgate_testnet::{
    PREFIX64, SERVER1, TestNetwork, Turn, config, config_with_ipv6, traffic as sockets, wait_for,
};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const MTU: u16 = 1500;
const TAG: &str = "ngdpdk";

/// A gateway between two ports, which is killed when dropped, and the folder of its files.
struct DpdkGateway {
    gateway: Child,
    folder: PathBuf,
    _turn: Turn,
}

impl DpdkGateway {
    /// Starts a gateway on these ports. In the ports' names `{folder}` stands for the folder's
    /// path.
    fn start(name: &str, inside: &str, outside: &str) -> Self {
        let turn = Turn::take(TAG);
        let folder = std::env::temp_dir().join(format!("natgate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("natgate.toml");
        let text = configuration(inside, outside).replace("{folder}", folder.to_str().unwrap());
        fs::write(&file, text).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg("-c").arg(&file).stdout(Stdio::null()).stderr(log);
        command.arg("--status-file").arg(folder.join("status.json"));
        Self { gateway: command.spawn().unwrap(), folder, _turn: turn }
    }

    /// Opens the tester's port. The first attempts may come too early.
    fn open(&mut self, device: &str) -> DpdkDevice {
        let device = device.replace("{folder}", self.folder.to_str().unwrap());
        let eal = start(None, MTU).unwrap();
        for _ in 0..100 {
            if let Ok(mut queues) = eal.open(&device, MTU, 1) {
                return queues.pop().unwrap();
            }
            assert!(self.gateway.try_wait().unwrap().is_none(), "{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{device} cannot be opened: {}", self.log());
    }

    /// Counters and log of the gateway, for failure messages.
    fn state(&self) -> String {
        let ask = Command::new("kill").arg("-USR1").arg(self.gateway.id().to_string()).status();
        std::thread::sleep(Duration::from_millis(500));
        let status = fs::read_to_string(self.folder.join("status.json")).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let [counters, devices, router] = ["counters", "devices", "router"].map(|key| &status[key]);
        format!("{ask:?}\n{counters}\n{devices}\n{router}\n{}", self.log())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Sends packets of the tester through the gateway. All must arrive correctly.
    fn passes(&mut self, inside: &str, outside: &str, load: &Load) {
        let (mut inside, mut outside) = (self.open(inside), self.open(outside));
        let devices: [&mut dyn Device; 2] = [&mut inside, &mut outside];
        let mut tester = Tester::new(place(), devices).unwrap();
        let met = tester.meet().and_then(|()| tester.establish(FLOWS));
        let report = met.and_then(|()| tester.run(load)).unwrap_or_else(|error| {
            panic!("{error}: {}", self.log());
        });
        let Report { sent, received, wrong, .. } = report;
        assert!(sent > 1000, "{sent}");
        assert_eq!((received, wrong), (sent, 0), "{}", self.state());
    }
}

impl Drop for DpdkGateway {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn configuration(inside: &str, outside: &str) -> String {
    format!(
        "[inside]\n\
         device = \"{inside}\"\n\
         backend = \"dpdk\"\n\
         address = \"10.0.0.1/24\"\n\
         [outside]\n\
         device = \"{outside}\"\n\
         backend = \"dpdk\"\n\
         address = \"192.0.2.1/24\"\n\
         gateway = \"192.0.2.254\"\n\
         [[route]]\n\
         prefix = \"100.64.0.0/10\"\n\
         via = \"10.0.0.2\"\n\
         side = \"inside\"\n\
         [[pool]]\n\
         addresses = [\"203.0.113.0/30\"]\n\
         [control]\n\
         socket = \"{{folder}}/control.sock\"\n"
    )
}

const FLOWS: u32 = 1000;

fn place() -> Place {
    Place {
        gateway: [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1)],
        own: [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 254)],
        subscribers: Ipv4Addr::new(100, 64, 0, 0),
        remote: Ipv4Addr::new(198, 51, 100, 1),
        remotes: 1,
        flows: FLOWS,
    }
}

/// Half the speed of a slow machine, so that no packet is lost.
fn load(frame: u16) -> Load {
    Load {
        frames: Mix::of(frame).unwrap(),
        way: Way::Both,
        rate: Some(20_000.0),
        duration: Duration::from_millis(500),
        check: true,
    }
}

const MEMIF_SERVER: [&str; 2] = [
    "net_memif0,role=server,id=0,socket-abstract=no,socket={folder}/in.sock",
    "net_memif1,role=server,id=0,socket-abstract=no,socket={folder}/out.sock",
];
const MEMIF_CLIENT: [&str; 2] = [
    "net_memif0,role=client,id=0,socket-abstract=no,socket={folder}/in.sock",
    "net_memif1,role=client,id=0,socket-abstract=no,socket={folder}/out.sock",
];

#[test]
fn packets_of_another_process_come_through_shared_memory() {
    let mut gateway = DpdkGateway::start("memif", MEMIF_SERVER[0], MEMIF_SERVER[1]);
    for frame in [64, 65, 576, 1518] {
        gateway.passes(MEMIF_CLIENT[0], MEMIF_CLIENT[1], &load(frame));
    }
    // The other process ended and came back each time; links are checked once a second.
    wait_for("the link's end", Duration::from_secs(5), || {
        Ok(gateway.log().contains("net_memif0 is down").then_some(()))
    })
    .unwrap();
    gateway.passes(MEMIF_CLIENT[0], MEMIF_CLIENT[1], &load(64));
}

#[test]
fn a_virtual_machines_card_is_joined_by_vhost_user() {
    let vhost = ["net_vhost0,iface={folder}/in.sock", "net_vhost1,iface={folder}/out.sock"];
    let virtio =
        ["net_virtio_user0,path={folder}/in.sock", "net_virtio_user1,path={folder}/out.sock"];
    let mut gateway = DpdkGateway::start("vhost", vhost[0], vhost[1]);
    for frame in [64, 1518] {
        gateway.passes(virtio[0], virtio[1], &load(frame));
    }
}

/// A configuration of kernel devices, with DPDK's packet sockets on these devices.
fn with_packet_sockets(configuration: &str) -> String {
    configuration
        .replace("af-packet", "dpdk")
        .replace("\"inside\"", "\"net_af_packet0,iface=inside\"")
        .replace("\"outside\"", "\"net_af_packet1,iface=outside\"")
}

/// The subscriber learns its address by a router advertisement, and the hosts find each other by
/// groups.
#[test]
fn a_subscriber_with_ipv6_alone_reaches_ipv4_through_dpdk() {
    let mut network = TestNetwork::with_servers(TAG, 1_000_000);
    network.add_ipv6().unwrap();
    let gateway = network.start(PROGRAM, &with_packet_sockets(&config_with_ipv6()));
    let host = network.autoconfigure().unwrap().address;
    let server = Ipv6Addr::from_bits(PREFIX64.to_bits() | u128::from(SERVER1.to_bits()));
    network.node("sub6").run(20, "ping", &["-n", "-c", "2", &server.to_string()]).unwrap();
    let url = format!("http://[{server}]/");
    let arguments = ["--silent", "--show-error", "--fail", "--globoff", &url];
    let output = network.node("sub6").run(20, "curl", &arguments).unwrap();
    assert!(output.stdout == network.body(), "{} bytes: {}", output.stdout.len(), gateway.log());
    let status = gateway.status().unwrap();
    let mappings = status["mappings"].as_array().unwrap();
    let is_of_host = |mapping: &&serde_json::Value| mapping.to_string().contains(&host.to_string());
    assert_eq!(mappings.iter().filter(is_of_host).count(), 2, "{status}");
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn kernels_meet_through_packet_sockets_of_dpdk() {
    let network = TestNetwork::with_servers(TAG, 1_000_000);
    let gateway = network.start(PROGRAM, &with_packet_sockets(&config("")));
    let url = format!("http://{SERVER1}/");
    let arguments = ["--silent", "--show-error", "--fail", &url];
    let output = network.node("sub1").run(20, "curl", &arguments).unwrap();
    assert!(
        output.stdout == network.body(),
        "{} bytes came that differ: {}",
        output.stdout.len(),
        gateway.log()
    );
    let socket = network.udp_socket("sub2");
    let external = sockets::ask_udp(&socket, SERVER1).unwrap();
    let status = gateway.status().unwrap();
    let mappings = status["mappings"].as_array().unwrap();
    assert!(mappings.iter().any(|mapping| mapping["external"] == external.to_string()), "{status}");
    // The body needs at least this number of frames. The number of acknowledgements depends on the
    // subscriber.
    let frames = network.body().len() as u64 / 1500;
    assert!(status["devices"]["inside"]["transmitted"].as_u64() > Some(frames), "{status}");
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn refusals_are_one_sentence_with_the_remedy() {
    let (ring, null) = ("net_ring0", "net_null1");
    for (inside, more, code, said) in [
        ("net_af_packet0,iface=no-such", "", 1, "DPDK cannot make the device \"net_af_packet0"),
        ("0000:7f:00.0", "", 1, "DPDK has no port \"0000:7f:00.0\"; write a virtual device"),
        (ring, "[dpdk]\neal = [\"--no-such-option\"]\n", 1, "DPDK does not start with dpdk.eal"),
        (ring, "[dpdk]\neal = [\"--no-huge\", \"-m\", \"8\"]\n", 1, "DPDK has no memory for "),
    ] {
        let _turn = Turn::take(TAG);
        let file = std::env::temp_dir().join(format!("natgate-refused-{}", std::process::id()));
        let text = configuration(inside, null).replace("{folder}", "/nowhere") + more;
        fs::write(&file, text).unwrap();
        let output = Command::new(PROGRAM).arg("run").arg("-c").arg(&file).output().unwrap();
        fs::remove_file(&file).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{inside}: {error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with("natgate: ") && last.contains(said), "{inside}: {error}");
    }
}
