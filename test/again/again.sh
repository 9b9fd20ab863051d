#!/bin/sh
# go test, with what a person would do about a failure on a machine that stood
# still: at most AGAIN_MOST tests that failed are each run AGAIN_COUNT times by
# themselves. One that fails even once more fails the run. One that passes each
# time is named at the end as FLAKY, which is a bug of its own to look into, and
# does not fail the run.
#
# Never forgiven: a data race, a panic, a package that does not build, a timeout,
# more failures than AGAIN_MOST.
#
# usage: test/again.sh "FLAGS of go test" PACKAGE...
set -u
flags=$1
shift
most=${AGAIN_MOST:-2}
count=${AGAIN_COUNT:-5}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

fail() { # what was printed so far, and why that is the end
	grep -v '^ok ' "$log"
	echo "$1"
	exit 1
}

# Lines of packages that passed appear as they come; the rest when its worth is known.
# shellcheck disable=SC2086
{ go test $flags "$@" 2>&1; echo $? >"$work/status"; } | tee "$log" | grep --line-buffered '^ok '
if [ "$(cat "$work/status")" = 0 ]; then
	exit 0
fi

if grep -q -e 'WARNING: DATA RACE' -e '^panic:' -e '^fatal error:' -e '\[build failed\]' -e '\[setup failed\]' "$log"; then
	fail "not run again"
fi
# A package's failed tests stand before the line with its name.
awk '/^--- FAIL: / { names = names " " $3; next }
     /^FAIL\t/     { if (names == "") print $2, "-"; n = split(names, name); for (i = 1; i <= n; i++) print $2, name[i]; names = "" }' "$log" >"$work/failed"
failed=$(wc -l <"$work/failed")
if [ "$failed" = 0 ] || [ "$failed" -gt "$most" ] || grep -q ' -$' "$work/failed"; then
	fail "$failed failures: not run again"
fi
while read -r package name; do
	# shellcheck disable=SC2086
	if ! go test $flags -count="$count" -run "^$name\$" "$package" >"$work/again" 2>&1 </dev/null; then
		cat "$work/again"
		fail "$name of $package failed again by itself"
	fi
done <"$work/failed"

grep -v -e '^ok ' "$log" | sed 's/^/    | /'
while read -r package name; do
	echo "FLAKY $name of $package: it failed once and then passed $count times by itself"
done <"$work/failed"
