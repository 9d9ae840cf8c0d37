#!/usr/bin/env bash
# Makes the image of a USB stick of a natgate-bare that has been built: packaging/usb.sh IMAGE FILE
#
# One disk for both firmwares, with one partition (FAT32), whose files anybody can edit. A BIOS starts GRUB from
# the sectors before the partition, UEFI from the file in it that is for removable disks; either way GRUB does
# what grub/grub.cfg in the partition says. The same files and SOURCE_DATE_EPOCH (default: the time of the last
# commit) give the same image. Needs GRUB for both firmwares, mtools and binutils; no root.
set -euo pipefail

[ $# = 2 ] || { echo "usb.sh: write packaging/usb.sh IMAGE FILE" >&2; exit 2; }
image=$(realpath "$1")
out=$(realpath -m "$2")
mkdir -p "$(dirname "$out")"
cd "$(dirname "$0")/.."
umask 022

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH=$epoch TZ=UTC
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
disk=$work/disk

# Sectors of 512 bytes: where the partition begins, and how many it has.
first=2048
count=129024

# write FILE OFFSET: writes the input into a file.
write() {
	dd of="$1" bs=512 seek="$2" oflag=seek_bytes conv=notrunc status=none
}

# What is left of symbols is for debuggers and several times as large. GRUB refuses files whose list of sections
# has relocations, though the program does those by itself; nobody needs that list to load it.
strip --strip-all -o "$work/natgate-bare" "$image"
head -c 8 /dev/zero | write "$work/natgate-bare" 40
head -c 4 /dev/zero | write "$work/natgate-bare" 60

# GRUB with all of it that is needed: grub FORMAT FILE MODULE...
grub() {
	grub-mkimage --format="$1" --output="$2" --prefix='(,msdos1)/grub' \
		part_msdos fat normal test multiboot2 "${@:3}"
}
grub i386-pc "$work/core" biosdisk
grub x86_64-efi "$work/BOOTX64.EFI" efi_gop

# The partition table's only entry: active, FAT32 by sector numbers. Three bytes of cylinder, head and sector say
# that those are of no use.
number() {
	printf '%08x' "$1" | sed 's/\(..\)\(..\)\(..\)\(..\)/\\x\4\\x\3\\x\2\\x\1/'
}
[ "$(stat -c %s "$work/core")" -le $(((first - 1) * 512)) ]
truncate -s $(((first + count) * 512)) "$disk"
head -c 440 /usr/lib/grub/i386-pc/boot.img | write "$disk" 0
printf NATG | write "$disk" 440
printf "\x80\xfe\xff\xff\x0c\xfe\xff\xff$(number $first)$(number $count)" | write "$disk" 446
printf '\x55\xaa' | write "$disk" 510
# GRUB's first sector looks for the rest in the sectors after it.
write "$disk" 512 <"$work/core"

partition=$disk@@$((first * 512))
mformat -i "$partition" -F -T $count -H $first -h 255 -s 63 -c 1 -N 4e415447 -v NATGATE ::
mmd -i "$partition" ::EFI ::EFI/BOOT ::grub ::natgate
install -m644 packaging/usb/natgate.toml packaging/usb/grub.cfg "$work"
touch --date="@$epoch" "$work"/*
mcopy -m -i "$partition" "$work/natgate.toml" ::
mcopy -m -i "$partition" "$work/grub.cfg" ::grub
mcopy -m -i "$partition" "$work/BOOTX64.EFI" ::EFI/BOOT
mcopy -m -i "$partition" "$work/natgate-bare" ::natgate
mv "$disk" "$out"
echo "$out"
