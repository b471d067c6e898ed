#!/bin/sh
# What tersor does, on the checkpoint that README shows: Hugging Face's Trainer, a Llama of 106,816 parameters.
# Usage: tests/demo.sh path/to/tersor
set -eu

tersor=$(realpath "$1")
data=$(realpath "$(dirname "$0")/data/frameworks/trainer")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp -r "$data/checkpoint-30" "$data/recording" "$dir"
cd "$dir"

show() {
	printf '\n$ tersor %s\n' "$*"
	"$tersor" "$@"
}

show pack checkpoint-30 -o packed
show verify packed --against checkpoint-30
show unpack packed -o restored
printf '\n# What each form of the state does to the next steps, compared with FP32:\n'
show replay checkpoint-30 recording -q --state flash,tight,coat,bitsandbytes --compare fp32
printf '\n# A bound in CI: pack fails, and writes nothing, if any error is larger.\n'
printf '$ tersor pack checkpoint-30 -o ci --max-error nmse=1e-5\n'
status=0
"$tersor" pack checkpoint-30 -o ci --max-error nmse=1e-5 -qq || status=$?
echo "exit status $status"
[ "$status" = 1 ] && [ ! -e ci ]
printf '\nDone.  Next: build/tersor --help, README.md, docs/tour.md.\n'
