#!/usr/bin/env bash
# Makes a Debian package of a natgate that has been built: packaging/deb.sh BINARY DIRECTORY
#
# Man pages and completions are the program's own. The same files and SOURCE_DATE_EPOCH (default: the time of
# the last commit) give the same package, byte for byte. MAINTAINER and DEB_COMPRESSION (default: xz) may be set.
# Needs dpkg-dev and gzip; no root.
set -euo pipefail

[ $# = 2 ] || { echo "deb.sh: write packaging/deb.sh BINARY DIRECTORY" >&2; exit 2; }
binary=$(realpath "$1")
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

install -Dm755 "$binary" "$root/usr/bin/natgate"
# What is left of symbols is for debuggers and several times as large.
strip --strip-unneeded "$root/usr/bin/natgate"
install -Dm644 packaging/systemd/natgate.service "$root/usr/lib/systemd/system/natgate.service"
install -Dm644 packaging/systemd/natgate.sysusers "$root/usr/lib/sysusers.d/natgate.conf"
install -Dm644 packaging/natgate.toml "$root/etc/natgate/natgate.toml"

mkdir -p "$root/usr/share/man/man1"
"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
completions() {
	mkdir -p "$(dirname "$root/$2")"
	"$binary" completions "$1" >"$root/$2"
}
completions bash usr/share/bash-completion/completions/natgate
completions zsh usr/share/zsh/vendor-completions/_natgate
completions fish usr/share/fish/vendor_completions.d/natgate.fish

install_shared "$root"
gzip -9n <CHANGELOG.md >"$doc/CHANGELOG.md.gz"
maintainer=${MAINTAINER:-natgate developers <natgate@localhost>}
gzip -9n >"$doc/changelog.gz" <<END
natgate ($version) stable; urgency=medium

  * See CHANGELOG.md.gz.

 -- $maintainer  $(LC_ALL=C date -u -d "@$epoch" -R)
END
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

mkdir -p "$root/DEBIAN" "$work/debian"
: >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/natgate" 2>/dev/null |
	sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<END
Package: natgate
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: net
Priority: optional
Installed-Size: $(du -sk "$root" --exclude=DEBIAN | cut -f1)
Depends: $depends
Suggests: iproute2, ethtool
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
(cd "$root" && find usr etc -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -exec touch --no-dereference --date="@$epoch" {} +

package=$out/natgate_${version}_$architecture.deb
dpkg-deb --root-owner-group "-Z${DEB_COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "$package"
