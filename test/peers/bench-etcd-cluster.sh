#!/bin/sh
# Plays each scenario on MEMBERS of etcd and then on as many of Incumbent with
# the same settings, one after the other on this machine, and prints both side by
# side with their ratio. `make bench-etcd-cluster` and `make bench-etcd-keys` call it
# with their variables; all have defaults. All tables together are in RESULTS/table.txt.
#
# A scenario is NAME, NAME:PRESET, or NAME@FAULT, as in
# SCENARIOS='cluster-closed cluster-closed:refuse leader-kill@stop'.
# SCALE=smoke plays everything small, to see that it works.
set -u
BIN=${BIN:-bin}
SCENARIOS=${SCENARIOS:-cluster-closed cluster-closed:refuse cluster-closed:extend-60s cluster-closed:extend-10s cluster-closed:extend-5000 leader-kill@kill leader-kill@stop}
MEMBERS=${MEMBERS:-local:3}
RESULTS=${RESULTS:-results/etcd-cluster}
SCALE=${SCALE:-}
TLS=${TLS:-}       # anything: over TLS
LIMIT=${LIMIT:-300} # seconds for one run with starting and stopping
failed=0

# one PEER SCENARIO FOLDER SETTING…: one run of one side.
one() {
	side=$1 scenario=$2 folder=$3
	shift 3
	set -- "$@" --dir "$folder" --members "$MEMBERS"
	[ -n "$TLS" ] && set -- "$@" --tls
	[ "$side" = etcd ] && set -- "$@" --peer etcd
	timeout --kill-after=20 "$LIMIT" "$BIN/incumbent" bench run "$scenario" "$@" >/dev/null 2>"$folder.log"
	code=$?
	[ "$code" -eq 0 ] && return 0
	echo "$side: exit code $code, see $folder.log" >&2
	tail -n 3 "$folder.log" >&2
	failed=1
	[ -f "$folder/summary.json" ] # a missed threshold leaves figures to compare
}

# both SCENARIO NAME SETTING…: both sides in turn, then the table.
both() {
	scenario=$1 name=$2
	shift 2
	echo "== $name"
	rm -rf "$RESULTS/etcd-$name" "$RESULTS/incumbent-$name"
	one etcd "$scenario" "$RESULTS/etcd-$name" "$@" &&
		one incumbent "$scenario" "$RESULTS/incumbent-$name" "$@" &&
		"$BIN/incumbent" bench compare "$RESULTS/etcd-$name" "$RESULTS/incumbent-$name" >"$RESULTS/$name.txt" &&
		cat "$RESULTS/$name.txt" &&
		{ echo "== $name"; cat "$RESULTS/$name.txt"; echo; } >>"$RESULTS/table.txt"
	echo
}

mkdir -p "$RESULTS" || exit 1
: >"$RESULTS/table.txt"
for which in $SCENARIOS; do
	scenario=${which%%[:@]*}
	name=$(echo "$which" | tr ':@' '--')
	set --
	case $which in
	*:*) set -- --set "scale=${which#*:}" ;;
	*@*) set -- --set "fault=${which#*@}" ;;
	esac
	if [ -n "$SCALE" ]; then
		case $which in
		*:*) set -- "$@" --set closed.workers=120 --set closed.warmup=500ms --set closed.duration=2s ;;
		*) set -- "$@" --set "scale=$SCALE" ;;
		esac
	fi
	both "$scenario" "$name" "$@"
done
exit "$failed"
