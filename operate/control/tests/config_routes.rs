//! A hundred thousand routes: the cost of reading them grows with their number and no faster.
//!
//! The cost is the bytes that the program asks for, since time depends on the machine.

use natgate_control::config::{parse, read_text};
use natgate_control::meaning::Meaning;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ASKED_FOR: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED_FOR.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HEAD: &str = r#"[inside]
device = "eth1"
address = "10.0.0.1/8"
[outside]
device = "eth0"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
"#;

fn prefix(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0b00_0000 + ((number as u32) << 10))
}

/// A file with so many routes, spread over so many realms if there are some.
fn text(routes: usize, realms: usize) -> String {
    let mut text = HEAD.to_owned();
    for realm in 0..realms {
        let vlan = realm + 1;
        write!(text, "[[realm]]\nname = \"r{realm}\"\nvlan = {vlan}\naddress = \"10.0.0.1/8\"\n")
            .expect("a string takes all");
    }
    for number in 0..routes {
        let (prefix, last) = (prefix(number), 2 + number % 250);
        let (via, realm) = match realms {
            0 => (format!("192.0.2.{last}"), String::new()),
            _ => (format!("10.0.0.{last}"), format!("realm = \"r{}\"\n", number % realms)),
        };
        let len = 22 + number % 3;
        write!(text, "[[route]]\nprefix = \"{prefix}/{len}\"\nvia = \"{via}\"\n{realm}")
            .expect("a string takes all");
    }
    text
}

/// The bytes that are asked for to read a file with so many routes.
fn cost(routes: usize, realms: usize) -> u64 {
    let text = text(routes, realms);
    let before = ASKED_FOR.load(Ordering::Relaxed);
    let settings = parse(&text, "t").expect("the file is right");
    let asked_for = ASKED_FOR.load(Ordering::Relaxed) - before;
    let of_realms: usize = settings.realms.iter().map(|realm| realm.routes.len()).sum();
    assert_eq!(settings.routes.len() + of_realms, routes);
    asked_for
}

/// One after the other, for what is counted is the whole program's.
#[test]
fn many_routes_cost_so_much_each_and_are_explained_in_short() {
    for realms in [0, 1000] {
        let base = cost(0, realms);
        let few = cost(10_000, realms) - base;
        let many = cost(100_000, realms) - base;
        assert!(many < 14 * few, "ten times the routes cost {many} instead of {few} bytes");
    }
    let read = read_text(&text(100_000, 0), "t").expect("the file is right");
    let meaning = Meaning::of(read).to_string();
    assert!(meaning.contains("  route: 11.0.0.0/22 via 192.0.2.2, outside\n"), "{meaning}");
    assert!(meaning.contains("  and 99,900 routes more\n"), "{meaning}");
}
