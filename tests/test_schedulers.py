"""examples/ for Slurm and Kubernetes: they make what one process makes.  No scheduler is here: programs that stand in
for sbatch and srun run what they are given."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import BINARY, DATA, ROOT, run_tersor

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"
EXAMPLES = ROOT / "examples"

# A job of an array is run for each number; a dependent job only if all before it ended well.
SBATCH = """#!/bin/bash
echo "$@" >>sbatch.log
while [[ $1 == --* ]]; do
	case $1 in
	--array=*) range=${1#*=} ;;
	--wrap) exec bash -c "! [[ -e failed ]] && $2" ;;
	esac
	shift
done
for i in $(seq "${range%-*}" "${range#*-}"); do
	SLURM_ARRAY_TASK_ID=$i SLURM_CPUS_PER_TASK=1 bash "$@" >>array.log 2>&1 || touch failed
done
echo "7;cluster"
"""
SRUN = """#!/bin/bash
echo "$@" >srun.log
while [[ $1 == --* ]]; do shift; done
exec "$LAUNCHER" $LAUNCHER_OPTIONS -n 2 "$@"
"""


@pytest.fixture
def where(tmp_path):
    """A folder with a checkpoint, what one process makes of it in `one`, and `bin` for stand-ins."""
    for name in "one", "bin":
        (tmp_path / name).mkdir()
    shutil.copy(TINY, tmp_path / "in.safetensors")
    os.symlink(os.path.abspath(BINARY), tmp_path / "bin" / "tersor")
    run_tersor("pack", "in.safetensors", "-o", "one/packed.safetensors", cwd=tmp_path, check=0)
    return tmp_path


def run(where, words, check=0, **env):
    done = subprocess.run(list(map(str, words)), cwd=where, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL,
                          env={**os.environ, "PATH": f"{where}/bin:{os.environ['PATH']}", **env})
    assert done.returncode == check, done.stdout + done.stderr
    return done


def stand_in(where, name, script):
    path = where / "bin" / name
    path.write_text(script)
    path.chmod(0o755)


def assert_packed(where):
    assert (where / "packed.safetensors").read_bytes() == (where / "one" / "packed.safetensors").read_bytes()
    assert not list(where.glob("*.part-*")) and not list(where.glob(".packed*"))


PACK = "pack", "in.safetensors", "-o", "packed.safetensors"


def test_slurm_array_and_its_join(where):
    stand_in(where, "sbatch", SBATCH)
    run(where, [EXAMPLES / "slurm_array.sh", 3, "packed.safetensors", *PACK], SBATCH_OPTIONS="--partition=big --qos=low")
    assert_packed(where)
    array, join = (where / "sbatch.log").read_text().splitlines()
    assert "--array=1-3" in array and "--dependency=afterok:7 " in join
    assert "--partition=big" in array and "--partition=big" in join


def test_slurm_array_with_a_failed_part_is_mended_by_the_same_line(where):
    """A part that a file stands in the way of fails; the others are not done again."""
    stand_in(where, "sbatch", SBATCH)
    (where / "packed.safetensors.part-2-of-3.bin").mkdir()
    words = [EXAMPLES / "slurm_array.sh", 3, "packed.safetensors", *PACK]
    run(where, words, check=1)
    assert (where / "failed").exists() and not (where / "packed.safetensors").exists()
    (where / "packed.safetensors.part-2-of-3.bin").rmdir()
    (where / "failed").unlink()
    (where / "array.log").unlink()
    run(where, words)
    assert_packed(where)
    assert (where / "array.log").read_text().count("was done before") == 2


def test_slurm_array_without_enough_words_says_how(where):
    assert "usage:" in run(where, [EXAMPLES / "slurm_array.sh", 3, "out"], check=2).stderr


def test_slurm_with_ranks(where):
    found = [(m, l) for m, l in ((".mpich", "mpirun.mpich"), (".openmpi", "mpirun.openmpi"), ("", "mpirun"))
             if os.path.exists(f"{BINARY}-mpi{m}") and shutil.which(l)]
    if not found:
        pytest.skip("no tersor-mpi: make mpi needs mpicc")
    suffix, launcher = found[0]
    stand_in(where, "srun", SRUN)
    options = "" if suffix == ".mpich" else "--allow-run-as-root --oversubscribe --bind-to none"
    run(where, [EXAMPLES / "slurm_mpi.sh", *PACK], TERSOR_MPI=f"{BINARY}-mpi{suffix}", LAUNCHER=launcher,
        LAUNCHER_OPTIONS=options, SLURM_CPUS_PER_TASK="1")
    assert_packed(where)
    assert "--mpi=pmix --cpus-per-task=1" in (where / "srun.log").read_text()


def manifest(name):
    """The one document of a manifest, read by PyYAML, which is the system's."""
    script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    done = subprocess.run(["/usr/bin/python3", "-c", script, EXAMPLES / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    job, = json.loads(done.stdout)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert container["workingDir"] in {m["mountPath"] for m in container["volumeMounts"]}
    assert pod["restartPolicy"] == "Never"
    return job["spec"], container


def test_kubernetes_jobs(where):
    spec, container = manifest("kubernetes_parts.yaml")
    env = {e["name"]: e["value"] for e in container["env"]}
    assert spec["completionMode"] == "Indexed" and spec["completions"] == int(env["PARTS"])
    rule, = spec["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    for i in reversed(range(spec["completions"])):
        run(where, container["command"], JOB_COMPLETION_INDEX=str(i), **env)
    # A pod that is started once more, as they may be, does its part no second time.
    assert "was done before" in run(where, container["command"], JOB_COMPLETION_INDEX="0", **env).stdout
    _, container = manifest("kubernetes_join.yaml")
    run(where, container["command"])
    assert_packed(where)
