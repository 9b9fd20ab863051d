#!/bin/sh
# Generates Go from every .proto file below api/ and core/.
#
#   tools/generate.sh          write the generated files beside their .proto files
#   tools/generate.sh check    generate elsewhere and fail unless the result is what is checked in
#
# Both ways generate into a new folder first: a .proto file that does not compile
# changes nothing, and a generated file whose .proto file is gone is noticed.
set -eu
cd "$(dirname "$0")/.."
mode=${1:-write}
PATH=$PWD/bin:$PATH
export PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

generated() { # lists what a generator wrote below folder $1
	(cd "$1" && find api core -type f \( -name '*.pb.go' -o -name '*.connect.go' \) 2>/dev/null | LC_ALL=C sort)
}

mkdir "$work/api" "$work/core"
for root in api core; do
	if [ -n "$(find "$root" -name '*.proto' 2>/dev/null | head -n 1)" ]; then
		buf generate "$root" --template buf.gen.yaml --output "$work/$root"
	fi
done
generated "$work" >"$work/new"
generated . >"$work/old"

status=0
while read -r file; do
	cmp -s "$work/$file" "$file" && continue
	if [ "$mode" = check ]; then
		echo "out of date: $file" >&2
		status=1
		continue
	fi
	mkdir -p "$(dirname "$file")"
	cp "$work/$file" "$file"
	echo "wrote $file"
done <"$work/new"

LC_ALL=C comm -13 "$work/new" "$work/old" >"$work/stray"
while read -r file; do
	if [ "$mode" = check ]; then
		echo "has no .proto file any more: $file" >&2
		status=1
		continue
	fi
	rm "$file"
	echo "removed $file"
done <"$work/stray"

[ "$status" = 0 ] || echo "run 'make generate' and commit the result" >&2
exit "$status"
