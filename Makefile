# Everything one does with natgate from a checkout. `make help` lists it.
#
# A fresh Debian machine with git and make suffices: what a target needs is looked for first, and
# only what is missing is installed, programs by apt-get and Rust by rustup. Installing, `demo` and
# `test` need root (they make network namespaces); building and linting do not.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH):/usr/sbin:/sbin
TOOLCHAIN := $(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Both programs with ports of DPDK.
DPDK := natgate/dpdk,natgate-lab/dpdk

# A machine without an operating system: what the engine is built for to prove that it needs none.
BARE := x86_64-unknown-none

# program:package, or file:package
BUILD_TOOLS := cc:gcc cc:libc6-dev curl:curl update-ca-certificates:ca-certificates
DEMO_TOOLS := ip:iproute2 ethtool:ethtool ping:iputils-ping traceroute:traceroute iperf3:iperf3 \
	curl:curl setpriv:util-linux timeout:coreutils getent:libc-bin unbound:unbound
COUNT_TOOLS := valgrind:valgrind
USB_TOOLS := strip:binutils grub-mkimage:grub-common /usr/lib/grub/i386-pc/boot.img:grub-pc-bin \
	/usr/lib/grub/x86_64-efi/kernel.img:grub-efi-amd64-bin mcopy:mtools
PACKAGE_TOOLS := dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev strip:binutils gzip:gzip xz:xz-utils ldd:libc-bin
TEST_TOOLS := setsid:util-linux $(DEMO_TOOLS) $(COUNT_TOOLS) $(PACKAGE_TOOLS) $(USB_TOOLS) systemd-analyze:systemd man:man-db lintian:lintian \
	skopeo:skopeo iptables-save:iptables tshark:tshark dumpcap:wireshark-common ps:procps nft:nftables \
	turnserver:coturn turnutils_natdiscovery:coturn stun:stun-client mtr:mtr-tiny \
	bird:bird2 /usr/lib/frr/bgpd:frr keepalived:keepalived jq:jq natpmpc:natpmpc vsftpd:vsftpd in.tftpd:tftpd-hpa lftp:lftp ncftpget:ncftp tnftp:tnftp rsyslogd:rsyslog nfcapd:nfdump chromium:chromium \
	/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core pkg-config:pkg-config /usr/include/dpdk/rte_eal.h:libdpdk-dev \
	promtool:prometheus snmpd:snmpd snmpwalk:snmp yanglint:libyang2-tools \
	openssl:openssl qemu-system-x86_64:qemu-system-x86 /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf \
	named:bind9 tayga:tayga python3:python3 /usr/share/doc/python3-venv:python3-venv \
	sipp:sip-tester baresip:baresip-core ngircd:ngircd irssi:irssi script:bsdutils dnsmasq:dnsmasq-base \
	ffmpeg:ffmpeg /usr/lib/python3/dist-packages/gi:python3-gi $(foreach package,gir1.2-gst-rtsp-server-1.0 \
	gstreamer1.0-plugins-base gstreamer1.0-plugins-good,/usr/share/doc/$(package):$(package))

# Programs of the tests whose packages conflict with others of them, or are for emulated machines: unpacked here,
# and not installed.
PROGRAMS := $(TARGET)/programs
UNPACKED := usr/sbin/proftpd:proftpd-core usr/sbin/pure-ftpd:pure-ftpd \
	usr/sbin/pppd:ppp usr/sbin/pptp:pptp-linux usr/sbin/pptpd:pptpd

# Services that come with a program of which only the program is wanted.
UNWANTED := prometheus snmpd unbound vsftpd tftpd-hpa frr keepalived named bind9 tayga ngircd

# $(call install,TOOLS): installs the packages of those programs that are not there; unwanted services are
# neither started nor left to start with the machine.
define install
missing=; \
for tool in $(1); do \
	command -v "$${tool%%:*}" >/dev/null || [ -e "$${tool%%:*}" ] || missing+=" $${tool##*:}"; \
done; \
if [ -n "$$missing" ]; then \
	if ! command -v apt-get >/dev/null; then \
		echo "make: programs are missing; install:$$missing" >&2; exit 1; \
	fi; \
	if [ "$$(id -u)" != 0 ]; then \
		echo "make: programs are missing; as root: apt-get install$$missing" >&2; exit 1; \
	fi; \
	apt-get update -qq; \
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
		trap "rm -f $$policy" EXIT; \
		printf '#!/bin/sh\ncase "$$1" in %s) exit 101;; esac\n' '$(subst $(eval ) ,|,$(UNWANTED))' >$$policy; \
		chmod +x $$policy; \
	fi; \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	for service in $(UNWANTED); do \
		case " $$missing " in *" $$service "*) \
			! command -v systemctl >/dev/null || systemctl disable --quiet "$$service" || true;; \
		esac; \
	done; \
fi
endef

# Unpacks the packages of those programs that are not there or do not start, and installs the libraries that they
# depend on.
define unpack
missing=; \
for program in $(UNPACKED); do \
	file="$(PROGRAMS)/$${program%%:*}"; \
	{ [ -x "$$file" ] && ! ldd "$$file" | grep 'not found' >/dev/null; } || missing+=" $${program##*:}"; \
done; \
if [ -n "$$missing" ]; then \
	if ! command -v apt-get >/dev/null; then \
		echo "make: programs are missing; unpack in $(PROGRAMS):$$missing" >&2; exit 1; \
	fi; \
	folder=$$(mktemp -d); \
	trap 'rm -rf "$$folder"' EXIT; \
	apt-get update -qq; \
	(cd "$$folder" && apt-get download -qq -o APT::Sandbox::User=root $$missing); \
	mkdir -p "$(PROGRAMS)"; \
	for package in "$$folder"/*.deb; do \
		dpkg-deb -f "$$package" Depends | tr '|,' '\n\n' >>"$$folder/depends"; \
		dpkg-deb -x "$$package" "$(PROGRAMS)"; \
	done; \
	chmod -R ug-s "$(PROGRAMS)"; \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		$$(sed -n 's/^ *\(lib[^ :(]*\).*/\1/p' "$$folder/depends" | sort -u); \
fi
endef

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 \2/p' $(MAKEFILE_LIST) | \
		awk '{ printf "  make %-14s", $$2; $$1 = $$2 = ""; print }'

.PHONY: demo
demo: root demo-tools ## Build, and show the translator at work between network namespaces
	@$(MAKE) --no-print-directory build
	@"$(TARGET)/release/natgate" demo

.PHONY: demo-pair
demo-pair: root demo-tools ## Build, and show a pair of gateways, of which one is killed and comes back
	@$(MAKE) --no-print-directory build
	@"$(TARGET)/release/natgate" demo --pair

.PHONY: build
build: toolchain ## Build the release programs, target/release/natgate and natgate-lab
	@cargo build --release --locked -p natgate -p natgate-lab

# Debian's name of the package's maintainer may be given as MAINTAINER="Name <address>".
.PHONY: deb
deb: build package-tools ## Build Debian packages, target/package/natgate_*.deb and natgate-lab_*.deb
	@packaging/deb.sh "$(TARGET)/release/natgate" "$(TARGET)/package" "$(TARGET)/release/natgate-lab"

.PHONY: image
image: build package-tools ## Build an OCI image without a container engine, target/package/natgate-image.tar
	@packaging/image.sh "$(TARGET)/release/natgate" "$(TARGET)/package/natgate-image.tar"

.PHONY: pages
pages: build ## Write man pages and shell completions to target/pages
	@mkdir -p "$(TARGET)/pages/man1" "$(TARGET)/pages/completions"
	@"$(TARGET)/release/natgate" man "$(TARGET)/pages/man1"
	@"$(TARGET)/release/natgate-lab" man "$(TARGET)/pages/man1"
	@for shell in bash zsh fish; do \
		"$(TARGET)/release/natgate" completions $$shell >"$(TARGET)/pages/completions/natgate.$$shell"; \
	done

# The compiler's files for incremental builds take as much room as the programs; CARGO_INCREMENTAL=1 keeps them.
# Test programs run side by side. Some tests are of a program without DPDK.
test: export CARGO_INCREMENTAL ?= 0
.PHONY: test
test: root test-tools guests lint engine-alone ## Run every check and every test
	@cargo run --quiet --locked -p natgate-testrun -- --workspace --features $(DPDK) --no-fail-fast
	@# The whole workspace has the features of the build before, so that little is built anew.
	@cargo test --locked --no-fail-fast --workspace --test check --test p4

.PHONY: lint
lint: toolchain ## Check formatting and lints
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	@cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	@# The model's core without its chapters.
	@cargo clippy -p natgate-model --no-default-features --all-targets --locked -- -D warnings
	@# As on a machine without libdpdk: what stands in for the back end then.
	@PKG_CONFIG=false cargo clippy -p natgate-dpdk --locked -- -D warnings

# After a change in the engine: some two minutes.
.PHONY: quick
quick: toolchain ## Check the engine after a change: format, lints, its tests, the model, the vectors
	@cargo fmt --all --check
	@cargo clippy --locked -p natgate-wire -p natgate-engine -p natgate-ipv6 -p natgate-model -p natgate-compare --all-targets -- -D warnings
	@cargo clippy --locked -p natgate-model --no-default-features --all-targets -- -D warnings
	@cargo test --quiet --locked -p natgate-engine -p natgate-model -p natgate-compare -- --skip tiny_world
	@cargo test --quiet --locked -p natgate --test vectors

.PHONY: engine-alone
engine-alone: toolchain ## Build the engine for a machine without an operating system, to see that it needs none
	@rustup target list --toolchain $(TOOLCHAIN) --installed | grep -qx $(BARE) || \
		rustup target add --toolchain $(TOOLCHAIN) $(BARE)
	@cargo build --locked -p natgate-engine -p natgate-ipv6 --target $(BARE)

.PHONY: bare
bare: toolchain ## Build the image that boots without an operating system, target/release/natgate-bare, and a USB stick with it, natgate-bare.img
	@cargo build --release --locked -p natgate-bare
	@$(call install,$(USB_TOOLS))
	@packaging/usb.sh "$(TARGET)/release/natgate-bare" "$(TARGET)/release/natgate-bare.img"

.PHONY: bare-demo
bare-demo: root demo-tools bare build ## Show the image at work, in an emulator between network namespaces
	@$(call install,qemu-system-x86_64:qemu-system-x86)
	@"$(TARGET)/release/natgate" demo --image "$(TARGET)/release/natgate-bare"

.PHONY: requirements
requirements: toolchain ## Trace RFC requirements to code and tests; write docs/conformance.md
	@cargo run --quiet --locked -p natgate-requirements

.PHONY: figures
figures: toolchain ## Write README's figures from docs/results, and the list of results
	@cargo run --quiet --locked -p natgate-figures

# The suite's exit code 1 says that some MUST is not met: the reports say which.
CONFORM = "$(TARGET)/release/natgate" conform
.PHONY: conform
conform: build ## Try natgate against the RFCs in simulated time; write docs/conform and its table
	@$(CONFORM) -c docs/conform/natgate.toml --subject natgate --json docs/conform/natgate.json \
		--html docs/conform/natgate.html || [ $$? = 1 ]
	@sed -i '/^<!-- table -->$$/q' docs/conform.md
	@{ echo; $(CONFORM) --compare docs/conform/natgate.json docs/conform/linux-masquerade.json; } \
		>>docs/conform.md

.PHONY: conform-linux
conform-linux: root build ## Try the Linux kernel's masquerading likewise, for five minutes
	@$(call install,ip:iproute2 ethtool:ethtool setpriv:util-linux timeout:coreutils nft:nftables)
	@$(CONFORM) --lab linux --patience 10m --json docs/conform/linux-masquerade.json \
		--html docs/conform/linux-masquerade.html || [ $$? = 1 ]

# The prices are computed from what the engine's benchmark has written.
.PHONY: bench
bench: root demo-tools count-tools guests build bare ## Run every benchmark in full, for hours; write docs/results
	@$(call install,nft:nftables)
	@"$(TARGET)/release/natgate" bench engine --threads 2
	@"$(TARGET)/release/natgate" bench ipv6
	@"$(TARGET)/release/natgate" bench structures
	@"$(TARGET)/release/natgate" bench sharing
	@"$(TARGET)/release/natgate" bench rules
	@"$(TARGET)/release/natgate" bench rfc9693
	@"$(TARGET)/release/natgate" bench rfc9693 --nat64 --sessions 1M,10M
	@"$(TARGET)/release/natgate" bench day
	@"$(TARGET)/release/natgate" bench prices --engine docs/results/engine/engine.json
	@"$(TARGET)/release/natgate" bench instructions --out docs/results
	@"$(TARGET)/release/natgate" bench payloads
	@"$(TARGET)/release/natgate" bench io
	@"$(TARGET)/release/natgate" bench router
	@"$(TARGET)/release/natgate" bench pair
	@$(call install,qemu-system-x86_64:qemu-system-x86 strip:binutils)
	@"$(TARGET)/release/natgate" bench timings --image "$(TARGET)/release/natgate-bare" --packages "$(TARGET)/debian"
	@"$(TARGET)/release/natgate" bench p4 --drivers all

.PHONY: bench-quick
bench-quick: count-tools build ## Count instructions of the hot paths; compare with those committed
	@"$(TARGET)/release/natgate" bench instructions --compare docs/results/instructions.json

# How long mixed traffic goes through the gateway, and garbage to each of the image's kinds of card, seconds.
SOAK_SECONDS ?= 7200
GARBAGE_SECONDS ?= 60
# How many telephones register; a tenth of them has calls at once.
SIP_PHONES ?= 10000
# How many states of a pair of gateways the model checker visits.
PAIR_STATES ?= 100000000
# How many histories of two engines with a replication link are simulated.
PAIR_HISTORIES ?= 1000000
# How many histories of two whole gateways are simulated, of each kind.
FLEET_HISTORIES ?= 5000
# How many changed messages of control connections go through the application-level gateways.
PAYLOAD_INPUTS ?= 100000000

.PHONY: soak
soak: root demo-tools build ## Check what always holds over a table as big as memory permits, against the model, and for two hours of mixed traffic; ten thousand telephones; garbage to the image's cards
	@"$(TARGET)/release/natgate" bench soak
	@NATGATE_MAPPINGS=1000000 PROPTEST_CASES=1 cargo test --quiet --locked --release -p natgate-compare \
		--test random large
	@PROPTEST_CASES=20000 cargo test --quiet --locked --release -p natgate-compare --test families
	@NATGATE_PAIR_STATES=$(PAIR_STATES) cargo test --quiet --locked --release -p natgate-pair \
		--test checked many_states -- --ignored --nocapture
	@NATGATE_PAIR_HISTORIES=$(PAIR_HISTORIES) cargo test --quiet --locked --release -p natgate-pair \
		--test engines -- --nocapture
	@NATGATE_FLEET_HISTORIES=$(FLEET_HISTORIES) cargo test --quiet --locked --release -p natgate-gateway \
		--lib histor -- --nocapture
	@NATGATE_INPUTS=$(PAYLOAD_INPUTS) cargo test --quiet --locked --release -p natgate-payload \
		--test mutated -- --nocapture
	@NATGATE_SOAK_SECONDS=$(SOAK_SECONDS) cargo test --quiet --locked --release -p natgate --test live \
		soak -- --nocapture
	@$(call install,sipp:sip-tester)
	@NATGATE_SIP_PHONES=$(SIP_PHONES) cargo test --quiet --locked --release -p natgate --test alg \
		many_telephones -- --nocapture
	@$(call install,qemu-system-x86_64:qemu-system-x86)
	@NATGATE_GARBAGE_SECONDS=$(GARBAGE_SECONDS) cargo test --quiet --locked -p natgate-bare --test boot \
		garbage -- --nocapture

# Without a sanitizer: what is fuzzed is safe Rust but for its prefetches, and twenty times as fast.
.PHONY: fuzz
fuzz: toolchain ## Run every fuzz target for a minute, on nightly Rust
	@$(call install,c++:g++)
	@rustup toolchain list | grep -q '^nightly-' || \
		rustup toolchain install nightly --profile minimal
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	@for target in $$(cargo +nightly fuzz list); do \
		cargo +nightly fuzz run --sanitizer none --no-trace-compares "$$target" -- \
			-max_total_time=60 -max_len=1600 -len_control=0; \
	done

.PHONY: vectors-bless
vectors-bless: toolchain ## Accept what the program now does as what the vectors expect
	@NATGATE_BLESS=1 cargo test --locked -p natgate --test vectors

.PHONY: clean
clean: ## Remove what was built
	@cargo clean

.PHONY: root
root:
	@if [ "$$(id -u)" != 0 ]; then \
		echo "make: network namespaces need root: run it as root, such as by sudo" >&2; exit 1; \
	fi

.PHONY: demo-tools
demo-tools:
	@$(call install,$(DEMO_TOOLS))

.PHONY: test-tools
test-tools:
	@$(call install,$(TEST_TOOLS))
	@$(unpack)

.PHONY: package-tools
package-tools:
	@$(call install,$(PACKAGE_TOOLS))

.PHONY: count-tools
count-tools:
	@$(call install,$(COUNT_TOOLS))

# Packages of Linux guests in emulators: a kernel's package has the release in its name.
GUESTS := linux-image-cloud-amd64 linux-image-amd64 busybox-static

.PHONY: guests
guests: root ## Fetch the packages of the tests' Linux guests that are not in target/debian; they are not installed
	@folder="$(TARGET)/debian"; \
	missing=; \
	for package in $(GUESTS); do \
		file="$$(sed 's/^linux-image-/&[0-9]*[0-9]-/' <<<"$$package")_*.deb"; \
		compgen -G "$$folder/$$file" >/dev/null || missing+=" $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
		if ! command -v apt-get >/dev/null; then \
			echo "make: packages are missing; put in $$folder:$$missing" >&2; exit 1; \
		fi; \
		apt-get update -qq; \
		names=; \
		for package in $$missing; do \
			case $$package in \
			linux-image-*) \
				names+=" $$(apt-cache depends --important $$package | sed -n 's/^ *Depends: \(linux-image-\)/\1/p')";; \
			*) names+=" $$package";; \
			esac; \
		done; \
		mkdir -p "$$folder"; \
		fetched=$$(mktemp -d "$$folder/fetched.XXXXXX"); \
		trap 'rm -rf "$$fetched"' EXIT; \
		(cd "$$fetched" && apt-get download -qq -o APT::Sandbox::User=root $$names); \
		mv "$$fetched"/*.deb "$$folder"; \
	fi

.PHONY: toolchain
toolchain:
	@$(call install,$(BUILD_TOOLS))
	@command -v rustup >/dev/null || \
		curl --proto '=https' --tlsv1.2 -sSf https://static.rust-lang.org/rustup/rustup-init.sh | \
		sh -s -- -y --no-modify-path --profile minimal --default-toolchain none
	@rustup toolchain list | grep -q '^$(TOOLCHAIN)-' || \
		rustup toolchain install $(TOOLCHAIN) --profile minimal -c rustfmt -c clippy
