#!/bin/sh
# NAT64 for the customers, and SIIT for the servers.
set -e
POOL=203.0.113.0/30
modprobe jool
sudo jool instance remove customers
sudo jool instance add "customers" --netfilter --pool6 64:ff9b::/96
jool -i customers pool4 add --tcp 203.0.113.1 40001-65535
jool -i customers pool4 add --udp 203.0.113.1 40001-65535
jool -i customers pool4 add --icmp 203.0.113.1 0-65535
jool -i customers pool4 add --mark 7 --tcp 203.0.113.8/30 \
    1024-65535 --max-iterations auto
jool -i customers pool4 add --udp $POOL 1024-65535
jool -i customers bib add --tcp 2001:db8::9#80 203.0.113.1#8080
jool -i customers global update udp-timeout 5:00; jool -i customers global update lowest-ipv6-mtu 1400
jool -i customers global update drop-icmpv6-info on
jool -i customers pool4 display --csv # only shows
/usr/bin/jool_siit instance add servers --iptables --pool6=2001:db8:46::/96
jool_siit -i servers eamt add 198.51.100.0/28 2001:db8:4::/124
jool_siit -i servers eamt add 2001:db8:5::7 198.51.100.77
jool_siit -i servers eamt add 198.51.100.77 2001:db8:5::8
jool_siit -i servers eamt add 198.51.0.0/16 2001:db8:6::/120
jool_siit -i servers eamt remove 198.51.100.200 2001:db8:5::9
jool_siit -i servers denylist4 add 198.51.100.3
jool_siit -i servers global update rfc6791v4-prefix 192.0.2.8/31
jool_siit file handle /etc/jool/more.json
