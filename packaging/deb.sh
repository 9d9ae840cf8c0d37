#!/usr/bin/env bash
# Makes a Debian package of a built natgate: packaging/deb.sh BINARY DIRECTORY [LABORATORY]
#
# With the binary of natgate-lab it makes a second package, natgate-lab. It prints the path of each
# package. The programs generate their man pages and completions. The same files and
# SOURCE_DATE_EPOCH (default: the time of the last commit) give the same package, byte for byte.
# MAINTAINER and DEB_COMPRESSION (default: xz) may be set. Needs dpkg-dev and gzip; no root.
set -euo pipefail

[ $# = 2 ] || [ $# = 3 ] || { echo "deb.sh: write packaging/deb.sh BINARY DIRECTORY [LABORATORY]" >&2; exit 2; }
binary=$(realpath "$1")
laboratory=${3:+$(realpath "$3")}
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
. packaging/shared.sh
umask 022

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH=$epoch
version=$("$binary" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/natgate

# install_program BINARY NAME: a program, its man pages and its completions, below $root. The
# program is stripped of debug symbols, which are several times as large as the rest.
install_program() {
	install -Dm755 "$1" "$root/usr/bin/$2"
	strip --strip-unneeded "$root/usr/bin/$2"
	mkdir -p "$root/usr/share/man/man1"
	"$1" man "$root/usr/share/man/man1"
	gzip -9n "$root"/usr/share/man/man1/*.1
	completions "$1" bash "usr/share/bash-completion/completions/$2"
	completions "$1" zsh "usr/share/zsh/vendor-completions/_$2"
	completions "$1" fish "usr/share/fish/vendor_completions.d/$2.fish"
}

# completions BINARY SHELL FILE
completions() {
	mkdir -p "$(dirname "$root/$3")"
	"$1" completions "$2" >"$root/$3"
}

# libraries NAME: the packages of the libraries that a program is linked to.
libraries() {
	mkdir -p "$work/debian"
	: >"$work/debian/control"
	(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/$1" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# install_copyright: the licences, in Debian's format.
install_copyright() {
	mkdir -p "$doc"
	{
		echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
		echo "Upstream-Name: natgate"
		echo
		echo "Files: *"
		echo "Copyright: the authors of natgate"
		echo "License: Apache-2.0 or Expat"
		echo " On Debian systems the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0."
		echo " ."
		sed 's/^$/./; s/^/ /' LICENSE-MIT
	} >"$doc/copyright"
}

# changelog NAME: the changelog of a package in Debian's format.
changelog() {
	gzip -9n >"$doc/changelog.gz" <<END
$1 ($version) stable; urgency=medium

  * See CHANGELOG.md.gz in /usr/share/doc/natgate.

 -- $maintainer  $(LC_ALL=C date -u -d "@$epoch" -R)
END
}

# fields NAME: the common fields of the packages' control files.
fields() {
	cat <<END
Package: $1
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: net
Priority: optional
Installed-Size: $(du -sk "$root" --exclude=DEBIAN | cut -f1)
END
}

# pack NAME: makes the package from all files below $root.
pack() {
	(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
		>"$root/DEBIAN/md5sums"
	find "$root" -exec touch --no-dereference --date="@$epoch" {} +
	local package=$out/$1_${version}_$architecture.deb
	dpkg-deb --root-owner-group "-Z${DEB_COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
	echo "$package"
}

maintainer=${MAINTAINER:-natgate developers <natgate@localhost>}
install_program "$binary" natgate
install -Dm644 packaging/systemd/natgate.service "$root/usr/lib/systemd/system/natgate.service"
install -Dm644 packaging/systemd/natgate.sysusers "$root/usr/lib/sysusers.d/natgate.conf"
install -Dm644 packaging/natgate.toml "$root/etc/natgate/natgate.toml"

install_shared "$root"
gzip -9n <CHANGELOG.md >"$doc/CHANGELOG.md.gz"
install_copyright
changelog natgate

mkdir -p "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
$(fields natgate)
Depends: $(libraries natgate)
Suggests: iproute2, ethtool, natgate-lab
Description: carrier-grade network address translator
 natgate stands between subscribers with private addresses and the Internet,
 and gives them external addresses and ports (NAPT44) as RFC 4787, RFC 5382,
 RFC 5508 and RFC 6888 ask for: pools, blocks of ports, quotas, logs, static
 mappings, rules.
 .
 The service is not started before its configuration has been edited.
END
echo /etc/natgate/natgate.toml >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
	install -m755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
pack natgate

[ -n "$laboratory" ] || exit 0
root=$work/laboratory
doc=$root/usr/share/doc/natgate-lab
mkdir -p "$root/DEBIAN"
install_program "$laboratory" natgate-lab
install_copyright
changelog natgate-lab
cat >"$root/DEBIAN/control" <<END
$(fields natgate-lab)
Depends: natgate (= $version), $(libraries natgate-lab)
Suggests: iproute2, ethtool, iputils-ping, traceroute, iperf3, curl, unbound, nftables, valgrind
Description: laboratory of the carrier-grade network address translator natgate
 Benchmarks (natgate bench), conformance tests of any NAT against the RFCs
 (natgate conform) and a demonstration between network namespaces
 (natgate demo).
END
pack natgate-lab
