#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=tersor
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --mem-per-cpu=512M
# A command over MPI ranks under Slurm.  The words are the command line, without --part:
#
#	sbatch examples/slurm_mpi.sh pack big.safetensors -o packed.safetensors
#
# A job that ended early is sent again as it was: --continue leaves the parts that are done.  SRUN_MPI is what
# the MPI library of tersor-mpi and this Slurm have in common: `srun --mpi=list`.
set -euo pipefail

exec srun --mpi="${SRUN_MPI:-pmix}" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1 \
	"${TERSOR_MPI:-tersor-mpi}" "$@" --continue --no-progress
