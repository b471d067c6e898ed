#!/bin/sh
# What tersor does, on a checkpoint that was really trained: a GPT of 84,288 parameters with its
# AdamW state after 400 steps.  Usage: tests/demo.sh path/to/tersor
set -eu

tersor=$(realpath "$1")
data=$(realpath "$(dirname "$0")/data/tiny-gpt/checkpoint.safetensors")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$data" "$dir/checkpoint.safetensors"
cd "$dir"

show() {
	printf '\n$ tersor %s\n' "$*"
	"$tersor" "$@"
}

show pack checkpoint.safetensors -o packed.safetensors
show verify packed.safetensors --against checkpoint.safetensors
show unpack packed.safetensors -o restored.safetensors
printf '\n# The largest difference of any tensor stays below an NMSE of 1e-4:\n'
show diff checkpoint.safetensors restored.safetensors --tol nmse=1e-4 -qq
echo "exit status 0: within the tolerance"
printf '\n# Nothing is lost with the exact split and FP32 state:\n'
show pack checkpoint.safetensors -o exact.safetensors --weights bf16+exact16 --momentum f32 \
	--variance f32 -qq
show diff checkpoint.safetensors exact.safetensors
printf '\n# A bound in CI: pack fails, and writes nothing, if any error is larger.\n'
printf '$ tersor pack checkpoint.safetensors -o ci.safetensors --max-error nmse=1e-5\n'
status=0
"$tersor" pack checkpoint.safetensors -o ci.safetensors --max-error nmse=1e-5 -qq || status=$?
echo "exit status $status"
[ "$status" = 1 ] && [ ! -e ci.safetensors ]
printf '\nDone.  Next: build/tersor --help, README.md, docs/.\n'
