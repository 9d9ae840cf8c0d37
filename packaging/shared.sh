# Files that the package and the image have in common; sourced by deb.sh and image.sh, in the checkout.

# install_shared ROOT: documents, examples, and files for Prometheus and Grafana, below ROOT. Links between documents
# lead to the files as they are installed.
install_shared() {
	local doc=$1/usr/share/doc/natgate kind file
	mkdir -p "$doc/examples"
	install -m644 packaging/examples/*.toml "$doc/examples"
	for file in README.md SPECIFICATION.md docs/*.md; do
		sed -e 's#](\.\./packaging/examples/#](examples/#g' -e 's#](\.\./contrib/#](/usr/share/natgate/#g' \
			-e 's#](docs/#](#g' -e 's#](\.\./SPECIFICATION.md#](SPECIFICATION.md#g' "$file" >"$doc/${file##*/}"
	done
	for kind in grafana/natgate.json prometheus/natgate.rules.yml; do
		install -Dm644 "contrib/$kind" "$1/usr/share/natgate/$kind"
	done
}
