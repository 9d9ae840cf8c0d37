//! ARP for IPv4 over Ethernet (RFC 826).
