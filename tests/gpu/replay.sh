#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/gpu/replay.sh TERSOR [DEVICE]: replays of tests/data/tiny-gpt on a GPU write the files that the CPU
# writes, for every optimizer and many forms of state.  Exits 1 after the first that does not.
set -euo pipefail
export LC_ALL=C
data=$(cd "$(dirname "$0")/../data/tiny-gpt" && pwd)
tersor=$1 device=${2:-cuda}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

states=(
	'--state fp32' '--state flash' '--state flashoptim'
	'--weights bf16+ulp16 --momentum softsign8 --variance sqrt8 --scale f32'
	'--weights fp16+ulp8 --momentum linear8 --variance ulinear8'
	'--weights bf16+exact16 --momentum bf16 --variance bf16'
	'--weights bf16+bf16 --momentum f32 --variance f32'
	'--weights bf16+trunc8 --momentum softsign8 --variance sqrt8 --group 48'
	'--weights bf16+sr8 --seed 7 --momentum softsign8 --variance sqrt8 --group 128'
	'--weights bf16 --momentum bf16 --variance sqrt8'
)
optimizers=(
	'' '--optimizer adam' '--optimizer lion --lr 1e-4'
	'--optimizer sgd --zero-state --lr 0.1 --hyper momentum=0.9 --nesterov'
	'--optimizer sgdw --zero-state --lr 0.1 --hyper momentum=0.9 --hyper dampening=0.5'
	'--optimizer sgd --zero-state --lr 0.1'
)
n=0
for optimizer in "${optimizers[@]}"; do
	for state in "${states[@]}"; do
		for at in cpu "$device"; do
			# shellcheck disable=SC2086
			"$tersor" replay "$data/checkpoint.safetensors" "$data/recording" $optimizer \
				$state --device "$at" -o "$scratch/${at%%:*}" -f -qq
		done
		if ! cmp "$scratch/cpu" "$scratch/${device%%:*}"; then
			echo "replay $optimizer $state: differs on $device" >&2
			exit 1
		fi
		n=$((n + 1))
	done
done
echo "replay: $n files are the same on $device and the CPU"
