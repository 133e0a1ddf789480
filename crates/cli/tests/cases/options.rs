//! Options that cannot be, alone or together.

use super::Table;

pub(crate) fn add(table: &mut Table<'_>) {
    for (options, code, says) in [
        ("--ranks 0", 2, "1 to 1024"),
        ("--ranks 1025", 2, "1 to 1024, the limit of the local engine"),
        ("--ranks 100000", 2, "the limit of the local engine"),
        ("--ranks 1e30", 2, "1 to 1024"),
        ("--ranks -1", 2, "--ranks"),
        ("--ranks two", 2, "expected a number"),
        ("--ranks", 2, "--ranks"),
        ("--ranks 2 --ranks 3", 2, "cannot be used multiple times"),
        ("--threads 0", 2, "1 to 1024"),
        ("--threads 1.5", 2, "1 to 1024"),
        ("--block 0", 2, "expected 1 to"),
        ("--block 4 --layout contiguous", 2, "contiguous layout has no block size"),
        ("--layout spiral", 2, "contiguous, striped, zigzag"),
        #[cfg(not(feature = "mpi"))]
        ("--engine mpi", 2, "no MPI engine"),
        ("--no-checksum", 2, "moves nothing between processes"),
        ("--engine gpu", 2, "auto, local, mpi"),
        ("--timeout 0", 2, "seconds above 0"),
        ("--timeout -1", 2, "seconds above 0"),
        ("--timeout nan", 2, "expected a number"),
        ("--timeout 1e300", 2, "seconds above 0"),
        ("--memory-limit lots", 2, "expected a number"),
        ("--memory-limit 1e30", 2, "2^64"),
        ("--memory-limit 1.5", 2, "whole number"),
        ("--memory-limit 1k", 8, "the memory limit is 1000"),
        ("--softmax-scale nan", 2, "expected a number"),
        ("--softmax-scale inf", 2, "expected a number"),
        ("--softmax-scale 1e39", 2, "finite"),
        ("--kv-dtype f64", 2, "f32, bf16, f16"),
        ("--window 4", 2, "two whole numbers"),
        ("--window a,b", 2, "two whole numbers"),
        ("--window 1,99999999999999999999", 2, "two whole numbers"),
        ("--window 4k,8192Pi", 2, "from -2^63 to 2^63 - 1"),
        ("--window -1.5,0", 2, "from -2^63 to 2^63 - 1"),
        ("--cu-seqlens 0,5,3", 2, "cu_seqlens must not decrease: entry 2 is 3"),
        ("--cu-seqlens 0,9", 2, "cu_seqlens ends at 9, beyond the 8 tokens"),
        ("--cu-seqlens 0,x", 2, "entry 1"),
        ("--cu-seqlens -1,8", 2, "entry 0"),
        ("--frobnicate", 2, "--frobnicate"),
        ("--quiet=yes", 2, "--quiet"),
    ] {
        table.add(&format!("attend IN --out OUT --mask causal {options}"), code, says);
    }
    for (options, code, says) in [
        ("--isa sse", 2, "avx512, avx2, neon, scalar"),
        (if cfg!(target_arch = "aarch64") { "--isa avx2" } else { "--isa neon" }, 2, "has no"),
        ("--threads 0", 2, "1 to 1024"),
        ("--ranks 1025", 2, "1 to 1024"),
        ("--filter nothing-of-the-kind", 2, "an example is \"forward f32"),
        ("--quick --quick", 2, "cannot be used multiple times"),
        ("--mask full", 2, "--mask"),
        ("file", 2, "file"),
    ] {
        table.add(&format!("bench {options}"), code, says);
    }
    for (line, says) in [
        ("", "Usage"),
        ("dance", "dance"),
        ("attend", "--out"),
        ("attend IN --out OUT", "--mask"),
        ("attend IN --mask full", "--out"),
        ("attend IN --out OUT --mask window", "full, causal"),
        ("score", "MODEL"),
        ("score model", "--file"),
    ] {
        table.add(line, 2, says);
    }
}
