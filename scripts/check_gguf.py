"""Tiny Hugging Face folders, written as GGUF by another program, must score the same.

usage: check_gguf.py RINGATTN WORK

Writes tiny-llama3 and tiny-qwen3 with PyPI `gguf` (its permutation of Wq and Wk, its
rope_freqs.weight) and scores the reference tokens with both forms of each model.
"""

import json
import os
import subprocess
import sys

BOUND = 5e-5
# The divisors of rope_freqs.weight are float32, the folder's frequencies float64.
BETWEEN = 2e-5


def score(ringattn, model, tokens, ranks):
    """The log-probabilities of tokens 1..."""
    command = [ringattn, "score", model, "--tokens", tokens, "--ranks", str(ranks), "--out", "-", "--quiet"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line)["logprob"] for line in output.splitlines()]


def main():
    ringattn, work = sys.argv[1:]
    for name in ("tiny-llama3", "tiny-qwen3"):
        folder, target = f"fixtures/{name}", f"{work}/{name}.gguf"
        converter = os.path.join(os.path.dirname(__file__), "hf_to_gguf.py")
        subprocess.run([sys.executable, converter, folder, target], check=True)
        tokens = f"{folder}/reference.json"
        expected = json.load(open(tokens))["next_token_logprob"]
        for ranks in (1, 3):
            from_gguf = score(ringattn, target, tokens, ranks)
            from_folder = score(ringattn, folder, tokens, ranks)
            between = max(abs(a - b) for a, b in zip(from_gguf, from_folder))
            worst = max(abs(a - e) for a, e in zip(from_gguf, expected))
            print(f"{name} p={ranks}: {between:.2e} from the folder's, {worst:.2e} from the reference")
            assert len(from_gguf) == len(expected) and between < BETWEEN and worst < BOUND


main()
