#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/gpu/run.sh [FOLDER]: all that only a GPU can show, in about five minutes.
#
#   1. check_gpu: every kernel, sweep and step against the CPU, and every shortcut
#   2. a sweep of all 2^32 patterns with every codec, compared with tests/golden
#   3. the same report from the CPU for a part of the range: identical files
#   4. compute-sanitizer: memcheck and racecheck of the short tests, memcheck of packing and a replay
#   5. packing, unpacking, replays and, with PyTorch, saves from a job against the CPU's: identical files
#   6. sweep --library: kernels that nvcc compiles here, one with a planted bug
#   7. bench: each codec and step beside a copy, and the entropy coder
#
# FOLDER (default build/gpu-kit) is made by `make gpu-kit`, on a machine with the toolkit and the
# libraries; this one needs a driver, python3 and for step 4 compute-sanitizer.  Ends with a line
# "N passed, N failed"; logs and reports are in FOLDER/out, or in $OUT if that is set.
set -u
cd "$(dirname "$0")/../.." || exit 1
kit=$(realpath "${1:-build/gpu-kit}")
out=${OUT:-$kit/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$kit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

passed=0 failed=0
step() {
	local name=$1 start=$SECONDS
	shift
	echo "=== $name: $*"
	if "$@" >"$out/$name.log" 2>&1; then
		passed=$((passed + 1))
		echo "=== $name: ok, $((SECONDS - start)) s"
	else
		failed=$((failed + 1))
		echo "=== $name: FAILED with status $?, $((SECONDS - start)) s"
	fi
	tail -n "${LINES_SHOWN:-6}" "$out/$name.log"
}

golden() {
	time "$kit/tersor" sweep --device cuda -v --no-progress --json="$out/sweep.json" || return 1
	python3 tests/helpers/golden.py --check "$out/sweep.json"
}

# The CPU takes 3 processor-seconds per codec for 2^32 patterns: a 64th of them.
same_report() {
	local range=(--first 0x3e000001 --last 0x41fffffe -qq --no-progress)

	"$kit/tersor" sweep --device cuda "${range[@]}" --json="$out/part-cuda.json" &&
		"$kit/tersor" sweep --device cpu "${range[@]}" --json="$out/part-cpu.json" &&
		cmp "$out/part-cuda.json" "$out/part-cpu.json"
}

# The goal is 0.2 s in all: starting the driver is not the sweep's.
eight_codecs() {
	for _ in 1 2 3; do
		time "$kit/tersor" sweep --device cuda:0 -qq --no-progress \
			--codec 'bf16,fp16,bf16+bf16,fp16+fp16,*ulp*' || return 1
	done
	time "$kit/tersor" sweep --device cuda:0 -qq --no-progress --codec bf16 --last 0x7fff
}

sanitize() {
	compute-sanitizer --tool "$1" --error-exitcode 1 "$kit/check_gpu" --small
}

sanitize_pack() {
	local checkpoint=tests/data/tiny-gpt/checkpoint.safetensors run=(compute-sanitizer --tool "$1" --error-exitcode 1)

	"${run[@]}" "$kit/tersor" pack --device cuda "$checkpoint" -fo "$out/packed.safetensors" &&
		"${run[@]}" "$kit/tersor" unpack --device cuda "$out/packed.safetensors" -fo "$out/unpacked.safetensors"
}

sanitize_replay() {
	local gpt=tests/data/tiny-gpt

	compute-sanitizer --tool "$1" --error-exitcode 1 "$kit/tersor" replay --device cuda \
		"$gpt/checkpoint.safetensors" "$gpt/recording" --state flash --steps 401..410
}

# The planted bug is 32,640 halfway cases; a kernel that writes to address 8 is named.
kernels() {
	local sweep=("$kit/tersor" sweep --device cuda --symbol)

	nvcc -arch=native -cubin -o "$out/to_bf16.cubin" examples/to_bf16.cu || return 1
	echo 'extern "C" __global__ void crash(const float *in, void *out, size_t n) { *(int *)8 = 1; }' >"$out/crash.cu"
	nvcc -arch=native -ptx -o "$out/crash.ptx" "$out/crash.cu" || return 1
	time "${sweep[@]}" to_bf16 --library "$out/to_bf16.cubin" || return 1
	"${sweep[@]}" to_bf16_fast --library "$out/to_bf16.cubin" | grep "^32,640 results differ" || return 1
	"${sweep[@]}" crash --library "$out/crash.ptx" 2>&1 | grep "kernel crash on inputs .* failed"
}

bench() {
	"$kit/tersor" bench --device cuda --no-progress --json="$out/bench.json"
}

bench_entropy() {
	"$kit/tersor" bench --entropy --device cuda --no-progress --json="$out/bench-entropy.json"
}

nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv,noheader
step check "$kit/check_gpu"
step golden golden
step same-report same_report
LINES_SHOWN=20 step eight-codecs eight_codecs
if command -v compute-sanitizer >/dev/null; then
	step memcheck sanitize memcheck
	step racecheck sanitize racecheck
	step pack-memcheck sanitize_pack memcheck
	step replay-memcheck sanitize_replay memcheck
else
	echo "=== no compute-sanitizer here: memcheck and racecheck are left out"
fi
LINES_SHOWN=20 step packing python3 tests/gpu/pack.py "$kit/tersor"
LINES_SHOWN=20 step replays python3 tests/gpu/replay.py "$kit/tersor"
LINES_SHOWN=20 step saving python3 tests/gpu/saving.py "$kit/tersor"
LINES_SHOWN=12 step kernels kernels
LINES_SHOWN=60 step bench bench
LINES_SHOWN=20 step bench-entropy bench_entropy
echo "$passed passed, $failed failed"
((failed == 0))
