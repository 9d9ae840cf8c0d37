#!/usr/bin/env bash
# Makes an OCI image of a built natgate, as one tar file: packaging/image.sh BINARY FILE
#
# An image is a few JSON files and a layer that refer to each other by checksums (OCI image format
# 1.0), so the script needs neither a container engine nor root. The layer holds the program, its
# shared libraries, documents without man pages, and a configuration that must be edited before
# natgate starts. The same files and SOURCE_DATE_EPOCH (default: the time of the last commit) give
# the same image.
set -euo pipefail

[ $# = 2 ] || { echo "image.sh: write packaging/image.sh BINARY FILE" >&2; exit 2; }
binary=$(realpath "$1")
out=$(realpath -m "$2")
mkdir -p "$(dirname "$out")"
cd "$(dirname "$0")/.."
. packaging/shared.sh
umask 022

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
version=$("$binary" --version | cut -d' ' -f2)
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
image=$work/image
mkdir -p "$image/blobs/sha256" "$root"/{etc,run/natgate,var/lib/natgate,var/log/natgate,tmp}
chmod 1777 "$root/tmp"

install -Dm755 "$binary" "$root/usr/bin/natgate"
strip --strip-unneeded "$root/usr/bin/natgate"
install -Dm644 packaging/natgate.toml "$root/etc/natgate/natgate.toml"
install_shared "$root"
echo "root:x:0:0:root:/:/usr/sbin/nologin" >"$root/etc/passwd"
echo "root:x:0:" >"$root/etc/group"
# Files that the dynamic linker loads, and the linker itself.
ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
	install -Dm755 "$library" "$root$library"
done

# Packs the contents of a folder; the same contents give the same bytes.
pack() {
	tar --create --directory "$1" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
		--mtime="@$epoch" --file "$2" .
}

# Adds a file to the blobs; prints its descriptor with the media type.
blob() {
	local sum size
	sum=$(sha256sum "$1" | cut -d' ' -f1)
	size=$(stat -c %s "$1")
	mv "$1" "$image/blobs/sha256/$sum"
	echo "{\"mediaType\":\"$2\",\"digest\":\"sha256:$sum\",\"size\":$size}"
}

pack "$root" "$work/layer"
unpacked=$(sha256sum "$work/layer" | cut -d' ' -f1)
gzip -9n "$work/layer"
layer=$(blob "$work/layer.gz" application/vnd.oci.image.layer.v1.tar+gzip)

cat >"$work/config" <<END
{"created":"$created","architecture":"$architecture","os":"linux","config":{
"Entrypoint":["/usr/bin/natgate"],"Cmd":["run","-c","/etc/natgate/natgate.toml"],
"Env":["PATH=/usr/bin"],"WorkingDir":"/","StopSignal":"SIGTERM","Volumes":{"/var/lib/natgate":{},"/var/log/natgate":{}},
"Labels":{"org.opencontainers.image.title":"natgate","org.opencontainers.image.version":"$version",
"org.opencontainers.image.licenses":"Apache-2.0 OR MIT"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$unpacked"]},
"history":[{"created":"$created","created_by":"packaging/image.sh"}]}
END
config=$(blob "$work/config" application/vnd.oci.image.config.v1+json)

kind=application/vnd.oci.image.manifest.v1+json
echo "{\"schemaVersion\":2,\"mediaType\":\"$kind\",\"config\":$config,\"layers\":[$layer]}" >"$work/manifest"
manifest=$(blob "$work/manifest" "$kind")
named="${manifest%\}},\"annotations\":{\"org.opencontainers.image.ref.name\":\"$version\"}}"
echo "{\"schemaVersion\":2,\"manifests\":[$named]}" >"$image/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$image/oci-layout"
pack "$image" "$out"
echo "$out"
