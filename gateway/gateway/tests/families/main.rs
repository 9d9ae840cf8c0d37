//! Both families in a replay: packets made by hand, and what leaves for them.

#![allow(missing_docs)]

mod algs;
mod algs_in_tunnels;
mod calls_in_tunnels;
mod customer;
mod dns_in_tunnels;
mod nat64;
mod opens;
mod prefixes;
mod routing;
mod stateless;
mod strict;
mod team;
mod telephones;
mod world;
