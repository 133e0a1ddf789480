//! Plans that cannot be.

use super::Table;

pub(crate) fn add(table: &mut Table<'_>) {
    table.add("plan", 2, "--tokens");
    table.add("plan --tokens 8", 2, "--q-heads");
    table.add("plan --tokens 8 --q-heads 4", 2, "--head-dim");
    table.add("plan nothing --tokens 8", 3, "nothing: no such file");
    table.add("plan IN --tokens 8", 3, "in.safetensors");
    table.add("plan IN --tokens 8 --q-heads 4", 2, "cannot be used with");
    table.add("plan IN --tokens 8 --mask full", 2, "cannot be used with");
    for (options, says) in [
        ("--ranks 0", "1 to 65536"),
        ("--ranks 65537", "1 to 65536 ranks that are priced"),
        ("--ranks 1025 --grid", "the grid is printed for at most 1024 ranks, got 1025"),
        ("--ranks 1025 --simulate", "runs are simulated for at most 1024 ranks, got 1025"),
        ("--ranks 1025 --jitter 0", "runs are simulated for at most 1024 ranks, got 1025"),
        ("--ranks 1025 --decode", "decoding is simulated for at most 1024 ranks, got 1025"),
        ("--ranks 65 --charts", "charts are drawn for at most 64 ranks, got 65"),
        ("--ranks 2 --slow-rank 2:1.5", "rank 2 is outside a world of 2"),
        ("--ranks 2 --slow-link 2:1.5", "rank 2 is outside a world of 2"),
        ("--slow-rank 0:0", "a rank and a factor above 0"),
        ("--slow-rank 1", "a rank and a factor above 0"),
        ("--jitter -1", "at least 0"),
        ("--seed 3", "--jitter"),
        ("--kv-heads 3", "3 key heads do not divide 4 query heads"),
        ("--q-heads 0", "1 to"),
        ("--layers 0", "1 to"),
        ("--block 4", "--layout"),
        ("--block 4 --layout contiguous", "contiguous layout has no block size"),
        ("--machine abacus", "expected one of a100-nvlink, h100-nvlink, cpu-1gbe, cpu-10gbe"),
        ("--machine cpu-1gbe --measure", "cannot be used with"),
        ("--threads 1", "--measure"),
        ("--flops 0", "above 0"),
        ("--bandwidth -1", "above 0"),
        ("--latency -1e-6", "at least 0"),
        ("--memory lots", "expected a number"),
        ("--ranks 1025 --window 3,0 --layout zigzag", "has no closed form"),
        (
            "--tokens 1e15",
            "the number of tokens is 1000000000000000, more than the 281474976710656",
        ),
        ("--tokens 1e19", "exceed 2^64 bytes"),
        ("--out -", "--out -"),
    ] {
        let tokens = if options.contains("--tokens") { "" } else { "--tokens 64" };
        let heads = if options.contains("--q-heads") { "" } else { "--q-heads 4" };
        table.add(&format!("plan {tokens} {heads} --head-dim 8 {options}"), 2, says);
    }
}
