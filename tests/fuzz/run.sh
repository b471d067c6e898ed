#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh SECONDS JOBS: all fuzz targets on JOBS processors for SECONDS, beside the programs and corpora that
# `make fuzz-kit` puts here.  Targets that open whole checkpoints get three times as much.  Needs bash and coreutils
# (tar and awk too, which is all of a minimal system).
#
# Prints per target the runs, runs per second of a processor, edges covered, peak of memory in MB, inputs that failed, and
# processor seconds.  In $OUT (default ./out): inputs that failed, with their logs, and corpus.tar, minimised.
set -u
seconds=${1:?usage: run.sh SECONDS JOBS} jobs=${2:?usage: run.sh SECONDS JOBS}
kit=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$kit/out}
mkdir -p "$out/failed" "$out/logs"
work=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:handle_abort=1

heavy=' checkpoint replay write '
targets=() units=()
for program in "$kit"/bin/fuzz_*; do
	name=${program##*/fuzz_}
	targets+=("$name")
	mkdir -p "$work/$name/corpus" "$work/$name/new"
	units+=("$name")
done
for _ in 1 2; do
	for name in "${targets[@]}"; do
		[[ $heavy == *" $name "* ]] && units+=("$name")
	done
done

# As many passes over the units as make a whole number of rounds on all processors.
a=${#units[@]} b=$jobs
while ((b)); do
	c=$((a % b)) a=$b b=$c
done
slots=()
for ((pass = 0; pass < jobs / a; pass++)); do
	slots+=("${units[@]}")
done

# The merge at the end is part of SECONDS.
merge=$((seconds / 6 > 90 ? 90 : seconds / 6))
fuzzing=$((seconds - merge))
rounds=$((${#slots[@]} / jobs))
each=$((fuzzing / rounds))
((each > 0)) || each=1
echo "${#targets[@]} targets, ${#slots[@]} runs of $each s on $jobs processors, then $merge s for merging"

# One run of a target, restarted when an input failed, until its time is over.
slot() {
	local name=$1 number=$2 end=$((SECONDS + each)) left try=0 log
	while left=$((end - SECONDS)); ((left > 0 && try < 50)); do
		log=$out/logs/$name.$number.$try.log
		time "$kit/bin/fuzz_$name" -max_total_time="$left" -timeout=25 -rss_limit_mb=3000 -print_final_stats=1 \
			-use_value_profile=$((number % 2)) -reload=1 -verbosity=1 -max_len=65536 \
			-artifact_prefix="$out/failed/$name-" \
			"$work/$name/new" "$kit/corpus/$name" >"$log" 2>&1 && break
		try=$((try + 1))
	done 2>>"$work/$name/times"
}
TIMEFORMAT='%U %S'

# Waits for a free processor, so that each has one run at a time.
number=0
for name in "${slots[@]}"; do
	while (($(jobs -rp | wc -l) >= jobs)); do
		wait -n
	done
	number=$((number + 1))
	slot "$name" $number &
done
wait

# --- Figures ------------------------------------------------------------------------------------

printf '%-12s %12s %8s %7s %8s %7s %8s\n' target runs runs/s edges peak-MB failed cpu-s
for name in "${targets[@]}"; do
	cat "$out/logs/$name".*.log "$work/$name/times" 2>/dev/null | awk -v name="$name" -v failed="$(find "$out/failed" -name "$name-*" 2>/dev/null | wc -l)" '
		/^stat::number_of_executed_units/ { runs += $2 }
		/^stat::peak_rss_mb/ { if ($2 > peak) peak = $2 }
		/^#[0-9]+.* cov: / { for (i = 1; i < NF; i++) if ($i == "cov:" && $(i + 1) > edges) edges = $(i + 1) }
		/^[0-9.]+ [0-9.]+$/ { time += $1 + $2 }
		END { printf "%-12s %12d %8d %7d %8d %7d %8d\n", name, runs, time ? runs / time : 0, edges, peak, failed, time }'
done | tee "$out/figures.txt"

# --- The corpus -----------------------------------------------------------------------------------

# As many merges at a time as there are processors; each target's is cut when its time is over.
for name in "${targets[@]}"; do
	while (($(jobs -rp | wc -l) >= jobs)); do
		wait -n
	done
	timeout "$merge" "$kit/bin/fuzz_$name" -merge=1 -rss_limit_mb=3000 -timeout=10 -max_len=65536 "$work/$name/corpus" \
		"$kit/corpus/$name" "$work/$name/new" >"$out/logs/$name.merge.log" 2>&1 &
done
wait
mkdir -p "$work/tar"
for name in "${targets[@]}"; do
	# A merge that was cut leaves nothing: then all new units.
	from=$work/$name/corpus
	[ -n "$(ls -A "$from")" ] || from=$work/$name/new
	mkdir -p "$work/tar/corpus" && cp -r "$from" "$work/tar/corpus/$name"
done
tar -C "$work/tar" -czf "$out/corpus.tar.gz" corpus
ls -l "$out/corpus.tar.gz"
found=$(find "$out/failed" -type f | wc -l)
echo "$found inputs failed"
((found == 0))
