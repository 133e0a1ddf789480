"""Generates with the real model over many rings and compares every token with the reference.

usage: check_generate.py RINGATTN MODEL.gguf FIXTURES [LAUNCHER ...]

The reference is Hugging Face transformers in float64 on the same weights (gpl3-512.greedy.json): 64 greedy
tokens after 512. Its smallest margin between the best and the second-best logit is 0.024. A launcher, as
`mpirun --oversubscribe -n`, starts the same command on as many processes.
"""

import itertools
import json
import subprocess
import sys
import tempfile

RANKS = [1, 2, 3, 4, 5, 8]
LAYOUTS = ["contiguous", "striped", "zigzag"]
# Between ways of computing the same log-probability.
BETWEEN = 2e-4
# With a 16-bit cache tokens may differ where the reference was less sure than this.
MARGIN = 0.1


class Generator:
    """Runs the command and keeps what it leaves."""

    def __init__(self, ringattn, model, folder, launcher):
        self.ringattn, self.model, self.folder, self.launcher = ringattn, model, folder, launcher

    def ids(self, tokens):
        """The tokens as a file."""
        path = f"{self.folder}/ids.json"
        with open(path, "w") as file:
            json.dump(tokens, file)
        return path

    def run(self, tokens, count, *options, ranks=1):
        """The printed text, the new tokens, their log-probabilities, and the report."""
        out, report = f"{self.folder}/tokens.jsonl", f"{self.folder}/report.json"
        launch = self.launcher + [str(ranks)] if self.launcher else []
        command = launch + [self.ringattn, "generate", self.model, "-n", str(count), "--quiet"]
        command += ["--out", out, "--report", report, "--ranks", str(ranks), *options]
        if tokens is not None:
            command += ["--tokens", self.ids(tokens)]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        with open(out) as lines:
            rows = [json.loads(line) for line in lines]
        with open(report) as file:
            report = json.load(file)
        assert report["law"]["holds"]
        return text, [row["token"] for row in rows], [row["logprob"] for row in rows], report


def rounds(ranks, schedule):
    """Tree rounds until rank 0 has the whole state, or all ranks have."""
    power = ranks.bit_length() - 1
    folds = ranks != 1 << power
    return power + (folds if schedule == "tree-reduce" else 2 * folds)


def check_greedy(generator, reference):
    """Every ring and layout gives the reference's tokens; traffic follows the formula."""
    first = None
    for ranks, layout in itertools.product(RANKS, LAYOUTS):
        text, tokens, logprobs, report = generator.run(
            reference["prompt"], len(reference["greedy"]), "--layout", layout, ranks=ranks
        )
        assert tokens == reference["greedy"], (ranks, layout, tokens)
        assert text == reference["decoded"] + "\n", text
        first = first or logprobs
        between = max(abs(a - b) for a, b in zip(logprobs, first))
        assert between <= BETWEEN, between
        result, decode = report["result"], report["result"]["decode"]
        schedule = decode["schedule"]
        assert schedule == ("tree" if generator.launcher else "tree-reduce"), schedule
        assert decode["rounds_per_layer"] == rounds(ranks, schedule) and decode["received_kv_bytes"] == 0
        state = 4 * report["q_heads"] * (report["head_dim"] + 2)
        for messages, received in zip(decode["messages_per_token"], decode["received_bytes_per_token"]):
            assert received == messages * state
        # The busiest rank of either tree gets ceil(log2 p) messages; to the root there are p - 1 in all.
        busiest = (ranks - 1).bit_length()
        assert max(decode["messages_per_token"]) == busiest * report["layers"]
        if schedule == "tree-reduce":
            assert sum(decode["messages_per_token"]) == (ranks - 1) * report["layers"]
        speed = result["decode_tokens_per_s"]
        print(f"p={ranks} {layout:10} the same tokens, {speed:.1f} tokens/s, between rings {between:.1e}")
    return first


def check_scores(generator, reference, decoded):
    """`score` on the whole text gives what decoding gave."""
    whole = generator.ids(reference["prompt"] + reference["greedy"])
    out = f"{generator.folder}/scores.jsonl"
    command = [generator.ringattn, "score", generator.model, "--tokens", whole, "--out", out, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(out) as lines:
        scores = [json.loads(line)["logprob"] for line in lines]
    worst = max(abs(a - b) for a, b in zip(scores[-len(decoded):], decoded))
    assert worst <= BETWEEN, worst
    print(f"log-probabilities of decoding and of score: worst {worst:.1e}")


def check_pieces(generator, reference):
    """A prompt in pieces, through a folder, over other ranks and layouts, gives the same tokens."""
    prompt, greedy = reference["prompt"], reference["greedy"]
    for piece in [1, 7, 512]:
        tokens = generator.run(prompt, 16, "--prefill-chunk", str(piece), ranks=3)[1]
        assert tokens == greedy[:16], (piece, tokens)
        print(f"prompt in pieces of {piece}: the same tokens")
    if generator.launcher:
        return
    cache = f"{generator.folder}/cache"
    generator.run(prompt[:300], 0, "--save-cache", cache, "--layout", "zigzag", ranks=3)
    load = ["--load-cache", cache, "--layout", "contiguous"]
    tokens = generator.run(prompt[300:], 20, *load, "--save-cache", cache, ranks=2)[1]
    more = generator.run(None, 44, "--load-cache", cache, ranks=5)[1]
    assert tokens + more == greedy, (tokens, more)
    print("saved at p=3, appended at p=2, continued at p=5: the same tokens")


def check_types(generator, reference):
    """With a 16-bit cache, fed the reference's tokens, the best token is the reference's where it is sure."""
    prompt, greedy, margins = reference["prompt"], reference["greedy"], reference["margin"]
    for dtype in ["bf16", "f16"]:
        cache = f"{generator.folder}/{dtype}"
        generator.run(prompt[:-1], 0, "--cache-dtype", dtype, "--save-cache", cache, ranks=2)
        same = 0
        for index, (token, margin) in enumerate(zip(greedy, margins)):
            fed = prompt[-1:] + greedy[:index]
            best = generator.run(fed, 1, "--load-cache", cache, ranks=2)[1][0]
            assert best == token or margin <= MARGIN, (dtype, index, best, token, margin)
            same += best == token
        print(f"{dtype} cache: {same} of {len(greedy)} best tokens are the reference's")


def main():
    ringattn, model, fixtures, *launcher = sys.argv[1:]
    with open(f"{fixtures}/gpl3-512.greedy.json") as file:
        reference = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        generator = Generator(ringattn, model, folder, launcher)
        decoded = check_greedy(generator, reference)
        check_scores(generator, reference, decoded)
        check_pieces(generator, reference)
        if not launcher:
            check_types(generator, reference)


main()
