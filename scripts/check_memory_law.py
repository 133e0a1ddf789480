#!/usr/bin/env python3
"""The law as a user meets it: what does not fit into one rank fits into four.

usage: check_memory_law.py RINGATTN WORK

Attends 65536 tokens, each process limited (RLIMIT_AS) to 60 % of the address space that one rank alone needs.
One rank under that limit ends with exit code 8; four ranks, each under the same limit, succeed. Peak memory
of each rank is in the report, and the measured bytes of K and V are those of the plan.
"""
import json
import os
import resource
import subprocess
import sys

import numpy
from safetensors.numpy import save_file

TOKENS, HEADS, HEAD_DIM = 65536, 16, 64
RANKS = 4
SHARE = 0.6
# A window keeps the computing short; memory does not depend on it.
ATTEND = ("--mask", "causal", "--window", "255,0", "--threads", "1", "--layout", "striped")


def needed(command):
    """Most address space of the process, in bytes: VmPeak, read until it ends."""
    peak = 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status") as file:
                lines = [line for line in file if line.startswith("VmPeak:")]
            peak = max(peak, *(1024 * int(line.split()[1]) for line in lines), 0)
        except OSError:
            pass
    assert process.returncode == 0, process.returncode
    return peak


def main():
    binary, work = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.makedirs(work, exist_ok=True)
    source, out = os.path.join(work, "law.safetensors"), os.path.join(work, "law-out.safetensors")
    report = os.path.join(work, "law.json")
    rng = numpy.random.default_rng(1)
    shape = (HEADS, TOKENS, HEAD_DIM)
    save_file({name: rng.standard_normal(shape, dtype=numpy.float32) for name in "qkv"}, source)
    command = (binary, "attend", source, "--out", out, "--report", report, *ATTEND)
    whole = needed(command)
    cap = int(SHARE * whole)
    print(f"one rank alone needs {whole / 1e6:.0f} MB, the limit is {cap / 1e6:.0f} MB")

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (cap, cap))

    alone = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    print(f"one rank under the limit: code {alone.returncode}, {alone.stderr.splitlines()[0]}")
    assert alone.returncode == 8, alone
    # The limit is each rank's, not mpirun's.
    shell = f"ulimit -v {cap // 1024}; exec {' '.join(command)}"
    rooted = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = ["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none"]
    mpirun += ["--mca", "mpi_yield_when_idle", "1"]
    ring = subprocess.run(
        [*mpirun, "sh", "-c", shell], env=os.environ | rooted, capture_output=True, text=True
    )
    assert ring.returncode == 0, ring.stderr
    with open(report) as file:
        found = json.load(file)
    for rank in found["per_rank"]:
        resident, peak = rank["resident_kv_bytes"], rank["peak_kv_bytes"]
        print(
            f"rank {rank['rank']} of {RANKS}: peak RSS {rank['peak_rss_bytes'] / 1e6:.0f} MB, "
            f"K,V resident {resident / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB"
        )
        assert resident == rank["resident_kv_bytes_expected"], rank
        assert peak == rank["peak_kv_bytes_expected"], rank
        assert resident == found["law"]["kv_bytes_total_per_layer"] // RANKS, rank
    assert found["engine"] == "mpi" and found["law"]["holds"]
    os.remove(source)
    os.remove(out)


main()
