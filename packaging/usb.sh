#!/usr/bin/env bash
# Makes the image of a USB stick from a built natgate-bare: packaging/usb.sh IMAGE FILE
#
# The disk boots by BIOS and by UEFI. It has one partition (FAT32), so any computer can edit its
# files. BIOS starts GRUB from the sectors before the partition, UEFI from the partition's file for
# removable disks; both execute grub/grub.cfg in the partition. The same files and SOURCE_DATE_EPOCH
# (default: the time of the last commit) give the same image. Needs GRUB for both firmwares, mtools
# and binutils; no root.
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

# The first sector of the partition, and its number of sectors, of 512 bytes each.
first=2048
count=129024

# write FILE OFFSET: writes the input into a file.
write() {
	dd of="$1" bs=512 seek="$2" oflag=seek_bytes conv=notrunc status=none
}

# Removes debug symbols, which are several times as large as the program, and the list of sections.
# GRUB refuses files whose list of sections has relocations, although the program does these itself;
# loading needs no list.
strip --strip-all -o "$work/natgate-bare" "$image"
head -c 8 /dev/zero | write "$work/natgate-bare" 40
head -c 4 /dev/zero | write "$work/natgate-bare" 60

# Makes GRUB with the needed modules: grub FORMAT FILE MODULE...
grub() {
	grub-mkimage --format="$1" --output="$2" --prefix='(,msdos1)/grub' \
		part_msdos fat normal test multiboot2 "${@:3}"
}
grub i386-pc "$work/core" biosdisk
grub x86_64-efi "$work/BOOTX64.EFI" efi_gop

# The only entry of the partition table: active, FAT32 by sector numbers. The three bytes of
# cylinder, head and sector have the value for unused.
number() {
	printf '%08x' "$1" | sed 's/\(..\)\(..\)\(..\)\(..\)/\\x\4\\x\3\\x\2\\x\1/'
}
[ "$(stat -c %s "$work/core")" -le $(((first - 1) * 512)) ]
truncate -s $(((first + count) * 512)) "$disk"
head -c 440 /usr/lib/grub/i386-pc/boot.img | write "$disk" 0
printf NATG | write "$disk" 440
printf "\x80\xfe\xff\xff\x0c\xfe\xff\xff$(number $first)$(number $count)" | write "$disk" 446
printf '\x55\xaa' | write "$disk" 510
# GRUB's first sector loads the rest of GRUB from the following sectors.
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
