#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=tersor
#SBATCH --cpus-per-task=8
#SBATCH --mem=4G
#SBATCH --requeue
# A command in parts as a Slurm job array, and a job that joins them when all have ended well:
#
#	examples/slurm_array.sh 16 packed.safetensors pack big.safetensors -o packed.safetensors
#
# The words are how many parts, what is joined (the output, or the file of --json), and the command line.
# Parts that failed are done again by the same line: --continue leaves those that are done.  Options of
# sbatch for all jobs, such as a partition, go into the variable SBATCH_OPTIONS.
set -euo pipefail

if [[ $# -lt 3 ]]; then
	echo "usage: $0 PARTS OUT COMMAND..." >&2
	exit 2
fi
parts=$1 out=$2
command=("${@:3}")
tersor=${TERSOR:-tersor}

# Within the array: one part.
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
	exec "$tersor" "${command[@]}" --part "$SLURM_ARRAY_TASK_ID/$parts" --continue \
		--threads "${SLURM_CPUS_PER_TASK:-0}" --no-progress
fi

# At the prompt: the array, and the join after it.
read -ra options <<<"${SBATCH_OPTIONS:-}"
array=$(sbatch --parsable "${options[@]}" --array="1-$parts" "$0" "$@")
array=${array%%;*} # of the form JOB;CLUSTER
printf -v join '%q join %q --threads 8 --no-progress' "$tersor" "$out"
sbatch "${options[@]}" --job-name=tersor-join --cpus-per-task=8 --mem=4G \
	--dependency="afterok:$array" --kill-on-invalid-dep=yes --wrap "$join"
