# Common files of the package and the image; deb.sh and image.sh source this file in the checkout.

# Rewrites the links of a document for its installed path. A link to a file that is not installed
# becomes plain text.
installed_links='
	s#^\[[\w-]+\]: docs/results/.*\n##mg and s#\[([^]\[]+)\]\[[\w-]+\]#$1#g;
	s#\]\(docs/#](#g; s#\]\(docs\)#](.)#g;
	s#\]\(\.\./\.\./((?:ARCHITECTURE|CONTRIBUTING|GLOSSARY|SPECIFICATION)\.md)#](../$1#g;
	s#\]\(\.\./((?:ARCHITECTURE|CONTRIBUTING|GLOSSARY|SPECIFICATION)\.md)#](${up}$1#g;
	s#\]\((?:\.\./)+packaging/examples/#](${up}examples/#g;
	s#\]\(packaging/examples/#](examples/#g;
	s#\]\((?:\.\./)*contrib/#](/usr/share/natgate/#g;
	s#\[([^]]*)\]\((?!https?://|\#|/usr/share/natgate/|(?:\.\./|design/|examples/)?[\w.-]+\.(?:md|toml)(?:\#|\))|\.\))[^)]*\)#$1#g;
'

# install_shared ROOT: documents, examples, and files for Prometheus and Grafana, below ROOT.
install_shared() {
	local doc=$1/usr/share/doc/natgate kind file
	mkdir -p "$doc/examples" "$doc/design"
	install -m644 packaging/examples/*.toml "$doc/examples"
	for file in README.md ARCHITECTURE.md CONTRIBUTING.md GLOSSARY.md SPECIFICATION.md docs/*.md; do
		perl -0pe "my \$up = '';$installed_links" "$file" >"$doc/${file##*/}"
	done
	for file in docs/design/*.md; do
		perl -0pe "my \$up = '../';$installed_links" "$file" >"$doc/design/${file##*/}"
	done
	for kind in grafana/natgate.json prometheus/natgate.rules.yml; do
		install -Dm644 "contrib/$kind" "$1/usr/share/natgate/$kind"
	done
}
