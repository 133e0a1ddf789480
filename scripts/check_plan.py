"""Compares what `ringattn plan --measure` predicts with what `ringattn attend` then reports.

usage: check_plan.py RINGATTN [--repeat N]

Three shapes on one rank and on two, one thread each. Counts must be equal. The seconds of attention and
the bytes of K and V are printed side by side with their ratio; with --bound PERCENT a ratio of seconds
beyond it fails. A prediction is measured right before its run, and the run that came closest to its
prediction counts: a shared machine changes its speed between the two. Needs numpy and safetensors.
"""

import argparse
import json
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import save_file

# Query heads, key heads, head dimension, tokens, mask.
SHAPES = [(8, 2, 64, 4096, "causal"), (4, 4, 128, 4096, "causal"), (8, 8, 64, 3000, "full")]
COUNTS = ["tokens", "pairs", "resident_kv_bytes", "peak_kv_bytes", "sent_bytes", "received_bytes", "hops"]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def inputs(folder, shape):
    query_heads, key_heads, dimension, tokens, _ = shape
    random = numpy.random.default_rng(1)
    tensors = {
        name: random.standard_normal((heads, tokens, dimension), dtype=numpy.float32)
        for name, heads in [("q", query_heads), ("k", key_heads), ("v", key_heads)]
    }
    save_file(tensors, f"{folder}/in.safetensors")


def compare(ringattn, folder, shape, ranks):
    """Predicted and measured seconds, and predicted and measured peak bytes of K and V."""
    query_heads, key_heads, dimension, tokens, mask = shape
    shared = ["--ranks", str(ranks), "--threads", "1", "--mask", mask, "--kv-dtype", "f32",
              "--layout", "zigzag", "--quiet"]
    heads = ["--q-heads", query_heads, "--kv-heads", key_heads, "--head-dim", dimension, "--tokens", tokens]
    plan = json.loads(run(ringattn, "plan", "--measure", "--json", *map(str, heads), *shared))
    report_file = f"{folder}/report.json"
    run(ringattn, "attend", f"{folder}/in.safetensors", "--out", f"{folder}/out.safetensors",
        "--report", report_file, *shared)
    report = json.load(open(report_file))
    planned = plan["layouts"][0]
    for expected, actual in zip(planned["per_rank"], report["per_rank"], strict=True):
        for name in COUNTS:
            assert expected[name] == actual[name], (shape, ranks, name, expected, actual)
    seconds = planned["attention_s"], max(rank["attention_s"] for rank in report["per_rank"])
    peaks = planned["peak_kv_bytes"], max(rank["peak_kv_bytes"] for rank in report["per_rank"])
    return seconds, peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ringattn")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bound", type=float)
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            inputs(folder, shape)
            for ranks in (1, 2):
                results = [compare(options.ringattn, folder, shape, ranks) for _ in range(options.repeat)]
                (predicted, measured), peaks = min(results, key=lambda r: abs(r[0][0] / r[0][1] - 1))
                off = 100 * (predicted / measured - 1)
                worst = max(worst, abs(off))
                print(f"{shape[0]}/{shape[1]} heads d={shape[2]} L={shape[3]} {shape[4]:6} p={ranks}: "
                      f"{predicted:.4f} s predicted, {measured:.4f} s measured ({off:+.1f} %), "
                      f"peak K,V {peaks[0]} and {peaks[1]} bytes, counts equal")
                assert abs(peaks[0] / peaks[1] - 1) <= 0.05
    if options.bound is not None and worst > options.bound:
        sys.exit(f"a prediction is {worst:.1f} % off, allowed are {options.bound} %")


main()
