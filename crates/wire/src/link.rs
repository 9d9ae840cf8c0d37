//! Link headers: Ethernet with VLAN tags, Linux cooked.
