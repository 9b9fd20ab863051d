#!/bin/sh
# Plays each scenario on etcd and then on Incumbent with the same settings, one
# after the other on this machine, and prints both side by side. `make
# bench-etcd` calls it with its variables; all have defaults.
#
# A run that hangs ends after its time limit: warm-up, duration, and LIMIT
# seconds for starting, connecting and stopping. A run that fails does not end
# the others, but the script's exit code tells.
set -u
BIN=${BIN:-bin}
SCENARIOS=${SCENARIOS:-session-open create-closed claim-closed refuse-closed extend-single extend-batch idle-fleet}
WORKERS=${WORKERS:-64 1024}
DURATION=${DURATION:-10s}
WARMUP=${WARMUP:-3s}
RESULTS=${RESULTS:-results/etcd}
IDLE=${IDLE:-2000}    # connections of idle-fleet
SETTLE=${SETTLE:-30s} # from the last of them to the reading of memory
LIMIT=${LIMIT:-120}   # seconds
failed=0

# seconds of a duration such as 10s or 2m; the limit needs no fractions.
seconds() {
	case $1 in
	*[!0-9]*m | *[!0-9]*s | *ms | *h) echo "bench-etcd: $1: whole seconds or minutes, as 10s or 2m" >&2; exit 2 ;;
	*m) echo $((${1%m} * 60)) ;;
	*s) echo "${1%s}" ;;
	*) echo "bench-etcd: $1 is not a duration" >&2; exit 2 ;;
	esac
}

# one PEER SCENARIO FOLDER SETTING…: one run of one side.
one() {
	side=$1 scenario=$2 folder=$3
	shift 3
	set -- "$@" --dir "$folder"
	[ "$side" = etcd ] && set -- "$@" --peer etcd
	timeout --kill-after=20 "$most" "$BIN/incumbent" bench run "$scenario" "$@" >/dev/null 2>"$folder.log"
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
		"$BIN/incumbent" bench compare "$RESULTS/etcd-$name" "$RESULTS/incumbent-$name"
	echo
}

duration=$(seconds "$DURATION") || exit 2
warmup=$(seconds "$WARMUP") || exit 2
settle=$(seconds "$SETTLE") || exit 2
mkdir -p "$RESULTS" || exit 1
for scenario in $SCENARIOS; do
	if [ "$scenario" = idle-fleet ]; then
		most=$((settle + LIMIT))
		both idle-fleet "idle-fleet-$IDLE" --set "settle=$SETTLE" --set "stages=[{leases: $IDLE, ramp: 500, hold: 0s}]" \
			--set "thresholds={lost: 0, violations: 0}" # the goal is for 10,000, over which the server's own memory is spread
		continue
	fi
	most=$((duration + warmup + LIMIT))
	for workers in $WORKERS; do
		both "$scenario" "$scenario-$workers" --set "closed.workers=$workers" --set "closed.duration=$DURATION" --set "closed.warmup=$WARMUP"
	done
done
exit "$failed"
