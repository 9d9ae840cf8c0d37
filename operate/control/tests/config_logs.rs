//! `[[log]]`: what is read, and every mistake that an operator could make there.

use natgate_control::config::parse;
use natgate_gateway::{LogTo, LogWhat, Transport};
use std::path::PathBuf;

const REST: &str = "[inside]\ndevice = \"eth1\"\n[outside]\ndevice = \"eth0\"\n\
                    [[pool]]\naddresses = [\"203.0.113.1\"]\n";

fn problems(log: &str) -> String {
    parse(&format!("{REST}[[log]]\n{log}\n"), "t").expect_err(log).join("\n")
}

#[test]
fn logs_are_read_with_their_defaults() {
    let text = format!(
        "{REST}[[log]]\nkind = \"file\"\npath = \"/var/log/nat.jsonl\"\n\
         [[log]]\nkind = \"syslog\"\ncollector = \"logs.example.net:6514\"\ntransport = \"tls\"\n\
         tls = {{ authorities = \"/etc/ca.pem\" }}\n\
         [[log]]\nkind = \"ipfix\"\ncollector = \"[2001:db8::1]:4739\"\nwhat = \"sessions\"\n\
         remotes = true\n\
         [[log]]\nkind = \"spool\"\nfolder = \"/var/lib/nat\"\nwhat = \"blocks\"\nqueue = 2048\n"
    );
    let settings = parse(&text, "t").unwrap();
    assert!(settings.engine.session_events, "a log asks for sessions");
    let [file, syslog, ipfix, spool] = &settings.logs[..] else { panic!("{:?}", settings.logs) };
    assert_eq!(file.to, LogTo::File(PathBuf::from("/var/log/nat.jsonl")));
    assert_eq!((file.what, file.remotes, file.queue), (LogWhat::Mappings, false, 65_536));
    let LogTo::Syslog(syslog) = &syslog.to else { panic!("{syslog:?}") };
    assert!(matches!(syslog.collector.transport, Transport::Tls(_)));
    assert_eq!((syslog.facility, syslog.enterprise, &syslog.app_name[..]), (16, 32_473, "natgate"));
    assert_eq!((ipfix.what, ipfix.remotes), (LogWhat::Sessions, true));
    let LogTo::Ipfix(ipfix) = &ipfix.to else { panic!("{ipfix:?}") };
    assert_eq!((ipfix.domain, &ipfix.collector.transport), (1, &Transport::Udp));
    assert_eq!((spool.what, spool.queue), (LogWhat::Blocks, 2048));
    let LogTo::Spool(spool) = &spool.to else { panic!("{spool:?}") };
    assert_eq!((spool.max_size, spool.max_age.as_secs()), (10 << 30, 180 * 86_400));
    assert!(!parse(REST, "t").unwrap().engine.session_events);
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    for (log, expected) in [
        ("", "log[0].kind: is missing; write kind = \"file\""),
        ("kind = \"fil\"", "did you mean \"file\"?"),
        ("kind = \"file\"", "log[0].path: is missing; write path ="),
        ("kind = \"file\"\npath = \"events\"", "is no absolute path of a file"),
        ("kind = \"file\"\npath = \"/a\"\nwhat = \"session\"", "did you mean \"sessions\"?"),
        ("kind = \"file\"\npath = \"/a\"\nremotes = true", "only sessions have remotes"),
        ("kind = \"file\"\npath = \"/a\"\nremotes = 1", "it must be true or false"),
        ("kind = \"file\"\npath = \"/a\"\nqueue = 5", "5 is out of bounds; it must be from 1024"),
        ("kind = \"file\"\npath = \"/a\"\nfolder = \"/b\"", "has no effect with kind = \"file\""),
        ("kind = \"file\"\npath = \"/a\"\nfoldr = \"/b\"", "did you mean `folder`?"),
        ("kind = \"syslog\"", "log[0].collector: is missing; write collector ="),
        ("kind = \"syslog\"\ncollector = \"192.0.2.1\"", "is no address with a port"),
        ("kind = \"syslog\"\ncollector = \"192.0.2.1:0\"", "is no address with a port"),
        ("kind = \"syslog\"\ncollector = \"192.0.2.1:99999\"", "is no address with a port"),
        ("kind = \"syslog\"\ncollector = \"a b:514\"", "is no address with a port"),
        ("kind = \"syslog\"\ncollector = \"[::g]:514\"", "is no address with a port"),
        ("kind = \"syslog\"\ncollector = \"a:1\"\ntransport = \"tsl\"", "did you mean \"tls\"?"),
        ("kind = \"syslog\"\ncollector = \"a:1\"\ntransport = \"tls\"", "authorities: is missing"),
        (
            "kind = \"syslog\"\ncollector = \"a:1\"\ntls = { authorities = \"/a\" }",
            "has no effect without transport = \"tls\"",
        ),
        (
            "kind = \"syslog\"\ncollector = \"a:1\"\ntransport = \"tls\"\n\
             tls = { authorities = \"/a\", key = \"/k\" }",
            "certificate: is missing",
        ),
        ("kind = \"syslog\"\ncollector = \"a:1\"\nfacility = \"local9\"", "did you mean \"local"),
        ("kind = \"syslog\"\ncollector = \"a:1\"\napp_name = \"a b\"", "does not fit"),
        ("kind = \"syslog\"\ncollector = \"a:1\"\nhost_name = \"\"", "does not fit"),
        (
            "kind = \"syslog\"\ncollector = \"a:1\"\ndomain = 1",
            "has no effect with kind = \"syslog\"",
        ),
        ("kind = \"ipfix\"\ncollector = \"a:1\"\ntemplate_interval = \"0s\"", "out of bounds"),
        ("kind = \"ipfix\"\ncollector = \"a:1\"\ntemplate_messages = 0", "out of bounds"),
        ("kind = \"spool\"", "log[0].folder: is missing; write folder ="),
        ("kind = \"spool\"\nfolder = \"/a\"\nmax_size = \"1kB\"", "must be from \"1MiB\""),
        ("kind = \"spool\"\nfolder = \"/a\"\nmax_size = 5", "a size in quotes"),
        ("kind = \"spool\"\nfolder = \"/a\"\nmax_age = \"1s\"", "is out of bounds"),
        (
            "kind = \"file\"\npath = \"/a\"\n[[log]]\nkind = \"file\"\npath = \"/a\"",
            "log[1].path: \"/a\" is the place of log[0].path",
        ),
    ] {
        let told = problems(log);
        assert!(told.contains(expected), "{log}\n{told}");
    }
    let many = "kind = \"file\"\npath = \"/a\"\n[[log]]\n".repeat(17);
    assert!(problems(many.trim_end_matches("[[log]]\n")).contains("log[16]: is one too many"));
}

#[test]
fn a_folder_may_end_with_slashes_and_a_file_may_not() {
    let spool = |folder: &str| format!("kind = \"spool\"\nfolder = \"{folder}\"");
    for folder in ["/var/lib/nat/", "/var/lib/nat//"] {
        let read = parse(&format!("{REST}[[log]]\n{}\n", spool(folder)), "t").expect(folder);
        let LogTo::Spool(spool) = &read.logs[0].to else { panic!("{:?}", read.logs) };
        assert_eq!(spool.folder.to_str(), Some("/var/lib/nat"));
    }
    for folder in ["nat/", "/", ""] {
        assert!(problems(&spool(folder)).contains("is no absolute path"), "{folder}");
    }
    let file = problems("kind = \"file\"\npath = \"/var/lib/nat/\"");
    assert!(file.contains("is no absolute path of a file"), "{file}");
}
