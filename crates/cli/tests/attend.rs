//! `attend` against attention in f64 written down from its definition, over ranks, layouts, masks,
//! types and file formats.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use safetensors::Dtype;
use std::fs;
use support::{
    Sandbox, Tensor, command, max_difference, misaligned, read_npy, read_safetensors, ringattn,
    run, safetensors,
};

/// Whether the query at the first position sees the key at the second.
type Sees<'a> = &'a dyn Fn(i64, i64) -> bool;

/// Positions of queries and keys.
type Places<'a> = (&'a [i64], &'a [i64]);

/// `out` and `lse` from the definition.
fn reference(
    [q, k, v]: [&Tensor; 3],
    (query_places, key_places): Places<'_>,
    sees: Sees<'_>,
) -> (Vec<f64>, Vec<f64>) {
    let (queries, keys) = (query_places.len(), key_places.len());
    let d = *q.shape.last().unwrap();
    let heads = |tensor: &Tensor| tensor.shape[..tensor.shape.len() - 2].iter().product::<usize>();
    let (query_heads, key_heads) = (heads(q), heads(k));
    let (q, k, v) = (q.values(), k.values(), v.values());
    let (mut out, mut lse) = (vec![0.0; q.len()], Vec::new());
    for row in 0..query_heads * queries {
        let (head, query) = (row / queries * key_heads / query_heads, row % queries);
        let logit = |key: usize| {
            let key_row = head * keys + key;
            let dot: f64 = (0..d).map(|i| q[row * d + i] * k[key_row * d + i]).sum();
            dot / (d as f64).sqrt()
        };
        let seen = |key: &usize| sees(query_places[query], key_places[*key]);
        let seen: Vec<_> = (0..keys).filter(seen).collect();
        let total: f64 = seen.iter().map(|&key| logit(key).exp()).sum();
        lse.push(total.ln());
        for key in seen {
            let weight = logit(key).exp() / total;
            for i in 0..d {
                out[row * d + i] += weight * v[(head * keys + key) * d + i];
            }
        }
    }
    (out, lse)
}

/// Runs `attend` on these tensors and compares with the reference.
fn check(tensors: &[(&str, &Tensor)], options: &str, places: Option<Places<'_>>, sees: Sees<'_>) {
    let sandbox = Sandbox::new();
    let (input, out) = (sandbox.write("in", safetensors(tensors)), sandbox.arg("out"));
    let mut args = vec!["attend", &input, "--out", &out];
    args.extend(options.split(' '));
    ringattn(&args);
    let [(_, q), (_, k), (_, v), ..] = tensors else { panic!() };
    let range: Vec<_> = (0..q.shape[q.shape.len() - 2] as i64).collect();
    let expected = reference([q, k, v], places.unwrap_or((&range, &range)), sees);
    let (out, lse) = (
        read_safetensors(&sandbox.path("out"), "out"),
        read_safetensors(&sandbox.path("out"), "lse"),
    );
    assert_eq!((out.dtype, &out.shape), (q.dtype, &q.shape));
    assert_eq!((lse.dtype, &lse.shape[..]), (Dtype::F32, &q.shape[..q.shape.len() - 1]));
    // The last step is rounding to the type of q: 2^-9 and 2^-12 of at most 2.
    let bound = match q.dtype {
        Dtype::F32 => 1e-5,
        Dtype::BF16 => 2f64.powi(-8),
        _ => 2f64.powi(-11),
    };
    let difference = max_difference(&out.values(), &expected.0);
    assert!(difference < bound, "{options}: out is off by {difference}");
    let difference = max_difference(&lse.values(), &expected.1);
    assert!(difference < 1e-5, "{options}: lse is off by {difference}");
}

fn qkv(query_shape: &[usize], key_shape: &[usize]) -> [Tensor; 3] {
    [Tensor::random(query_shape, 1), Tensor::random(key_shape, 2), Tensor::random(key_shape, 3)]
}

#[test]
fn ranks_and_layouts_do_not_change_the_result() {
    let [q, k, v] = qkv(&[4, 37, 8], &[2, 37, 8]);
    let tensors = [("q", &q), ("k", &k), ("v", &v)];
    for ranks in 1..=5 {
        for layout in ["contiguous", "striped", "zigzag", "striped --block 3", "zigzag --block 2"] {
            let options = format!("--mask causal --ranks {ranks} --layout {layout}");
            check(&tensors, &options, None, &|query, key| key <= query);
        }
    }
}

#[test]
fn masks_combine() {
    let [q, k, v] = qkv(&[2, 29, 5], &[1, 29, 5]);
    let tensors = [("q", &q), ("k", &k), ("v", &v)];
    let check = |options: &str, sees: Sees<'_>| {
        check(&tensors, &format!("{options} --ranks 3"), None, sees);
    };
    check("--mask full", &|_, _| true);
    check("--mask full --window -1,4", &|query, key| (query + 1..=query + 4).contains(&key));
    check("--mask full --window=-3,7", &|query, key| (query + 3..=query + 7).contains(&key));
    check("--mask causal --window 0.006k,-0", &|query, key| (query - 6..=query).contains(&key));
    check("--mask full --window 80G,-1e0", &|query, key| key < query);
    check("--mask causal --window 6,0", &|query, key| (query - 6..=query).contains(&key));
    // Tokens 0, 1 and 27, 28 belong to no document, one document is empty.
    let document = |token: i64| [2, 9, 20, 27].iter().filter(|&&start| start <= token).count();
    let one = |query, key| document(query) == document(key) && (2..27).contains(&query);
    check("--mask full --cu-seqlens 2,9,9,20,27", &one);
    check("--mask causal --cu-seqlens 2,9,9,20,27 --window 3,3", &|query, key| {
        one(query, key) && (query - 3..=query).contains(&key)
    });
}

#[test]
fn batches_and_types() {
    let [q, k, v] = qkv(&[2, 6, 17, 16], &[2, 3, 17, 16]);
    let causal: Sees<'_> = &|query, key| key <= query;
    check(&[("q", &q), ("k", &k), ("v", &v)], "--mask causal --ranks 2", None, causal);
    let (q16, k16, v16) = (q.to_bf16(), k.to_bf16(), v.to_bf16());
    check(&[("q", &q16), ("k", &k16), ("v", &v16)], "--mask causal --ranks 3", None, causal);
    // What bf16 holds is not changed by f32, and q may be of another type.
    let options = "--mask causal --kv-dtype f32";
    check(&[("q", &q), ("k", &k16), ("v", &v16)], options, None, causal);
    let (q16, k16, v16) = (q.to_f16(), k.to_f16(), v.to_f16());
    check(&[("q", &q16), ("k", &k16), ("v", &v16)], "--mask causal --ranks 3", None, causal);
}

#[test]
fn positions_and_other_lengths() {
    let [q, k, v] = qkv(&[2, 3, 4], &[2, 7, 4]);
    let (queries, keys) = ([5, 1, 40], [0, 1, 1, 4, 6, 30, i64::MAX]);
    let (query_positions, key_positions) = (Tensor::i64(&queries), Tensor::i64(&keys));
    let tensors = [
        ("q", &q),
        ("k", &k),
        ("v", &v),
        ("q_positions", &query_positions),
        ("k_positions", &key_positions),
    ];
    let places = Some((&queries[..], &keys[..]));
    for ranks in [1, 2, 4] {
        let options = format!("--mask causal --ranks {ranks}");
        check(&tensors, &options, places, &|query, key| key <= query);
        let options = format!("--mask causal --window 5,0 --ranks {ranks}");
        check(&tensors, &options, places, &|query, key| key <= query && key >= query - 5);
    }
}

#[test]
fn scale_and_no_tokens() {
    let [q, k, v] = qkv(&[2, 9, 16], &[2, 9, 16]);
    let default = [("q", &q), ("k", &k), ("v", &v)];
    check(&default, "--mask full --softmax-scale 0.25", None, &|_, _| true);
    let sandbox = Sandbox::new();
    let input = sandbox.write("in", safetensors(&default));
    let lse = |scale: &str| {
        let out = sandbox.arg("out");
        ringattn(&["attend", &input, "--out", &out, "--mask", "full", "--softmax-scale", scale]);
        read_safetensors(&sandbox.path("out"), "lse").values()
    };
    assert!(max_difference(&lse("0"), &[9f64.ln(); 18]) < 1e-6);
    assert!(max_difference(&lse("-0.5"), &lse("0.5")) > 0.1);
    let [q, k, v] = qkv(&[2, 0, 16], &[2, 0, 16]);
    check(&[("q", &q), ("k", &k), ("v", &v)], "--mask causal --ranks 3", None, &|_, _| true);
}

#[test]
fn npy_is_the_same_as_safetensors() {
    for cut in [Tensor::clone, Tensor::to_f16] {
        let sandbox = Sandbox::new();
        let [q, k, v] = qkv(&[2, 2, 19, 8], &[2, 1, 19, 8]).map(|tensor| cut(&tensor));
        let input = sandbox.write("in", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
        let files = [("q", &q), ("k", &k), ("v", &v)]
            .map(|(name, tensor)| sandbox.write(&format!("{name}.npy"), tensor.npy()));
        let options = ["--mask", "causal", "--ranks", "2"];
        let (out, folder) = (sandbox.arg("out"), sandbox.arg("folder"));
        ringattn(&[&["attend", &input, "--out", &out], &options[..]].concat());
        let [q_file, k_file, v_file] = &files;
        let npy = ["attend", q_file, k_file, v_file, "--out", &folder];
        ringattn(&[&npy[..], &options[..]].concat());
        // Into a folder that is there already, too.
        ringattn(&[&npy[..], &options[..]].concat());
        for (name, dtype) in [("out", q.dtype), ("lse", Dtype::F32)] {
            let one = read_safetensors(&sandbox.path("out"), name);
            let other = read_npy(&sandbox.path("folder").join(format!("{name}.npy")), dtype);
            assert_eq!((&one.shape, &one.bytes), (&other.shape, &other.bytes), "{name}");
        }
    }
}

#[test]
fn threads_and_repeats_do_not_change_a_bit() {
    let sandbox = Sandbox::new();
    let [q, k, v] = qkv(&[2, 700, 16], &[1, 700, 16]);
    let input = sandbox.write("in", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
    let result = |threads: &str| {
        let out = sandbox.arg("out");
        let options = ["--mask", "causal", "--ranks", "3", "--threads", threads];
        ringattn(&[&["attend", &input, "--out", &out], &options[..]].concat());
        fs::read(out).unwrap()
    };
    let first = result("1");
    for threads in ["1", "2", "3"] {
        assert!(result(threads) == first, "{threads} threads");
    }
}

#[test]
fn tensors_that_are_not_aligned_are_read_all_the_same() {
    let sandbox = Sandbox::new();
    let wide = qkv(&[4, 37, 8], &[2, 37, 8]);
    let types = [|t: &Tensor| t.clone(), Tensor::to_bf16, Tensor::to_f16];
    for (narrow, kv_dtype) in types.into_iter().zip(["f16", "f32", "bf16"]) {
        let [q, k, v] = [&wide[0], &wide[1], &wide[2]].map(narrow);
        let aligned = safetensors(&[("q", &q), ("k", &k), ("v", &v)]);
        let input = [sandbox.write("a", &aligned), sandbox.write("b", misaligned(&aligned))];
        for options in [&[][..], &["--kv-dtype", kv_dtype]] {
            let [left, right] = [("a", &input[0]), ("b", &input[1])].map(|(name, input)| {
                let out = sandbox.arg(&format!("{name}.out"));
                let args = ["attend", input, "--out", &out, "--mask", "causal", "--ranks", "3"];
                ringattn(&[&args[..], options].concat());
                fs::read(out).unwrap()
            });
            assert_eq!(left, right, "{} {options:?}", q.dtype);
        }
    }
}

#[test]
fn numbers_that_nobody_sees_do_not_matter() {
    let sandbox = Sandbox::new();
    let [q, mut k, mut v] = qkv(&[1, 8, 4], &[1, 8, 4]);
    let result = |name: &str, k: &Tensor, v: &Tensor, options: &[&str]| {
        let input = sandbox.write(name, safetensors(&[("q", &q), ("k", k), ("v", v)]));
        let out = sandbox.arg("out");
        ringattn(&[&["attend", &input, "--out", &out, "--mask", "causal"], options].concat());
        read_safetensors(&sandbox.path("out"), "out")
    };
    let documents = ["--cu-seqlens", "0,6"];
    let clean = result("clean", &k, &v, &documents);
    for tensor in [&mut k, &mut v] {
        tensor.bytes[6 * 16..6 * 16 + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        tensor.bytes[7 * 16..7 * 16 + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    }
    assert_eq!(result("unseen", &k, &v, &documents).bytes, clean.bytes);
    let seen = result("seen", &k, &v, &["--allow-nonfinite"]).values();
    let before: Vec<_> = seen[..6 * 4].to_vec();
    assert!(before.iter().all(|value| value.is_finite()));
    assert!(seen[6 * 4..].iter().any(|value| value.is_nan()));
}

#[test]
fn stderr_has_notes_unless_quiet() {
    let sandbox = Sandbox::new();
    let [q, k, v] = qkv(&[1, 8, 4], &[1, 8, 4]);
    // 24 elements of any size from 4 bits on fill whole bytes.
    let quantized = [
        (Dtype::F4, 12),
        (Dtype::F6_E2M3, 18),
        (Dtype::F6_E3M2, 18),
        (Dtype::F8_E4M3FNUZ, 24),
        (Dtype::F8_E5M2FNUZ, 24),
    ];
    let quantized =
        quantized.map(|(dtype, bytes)| Tensor { dtype, shape: vec![24], bytes: vec![0; bytes] });
    let [a, b, c, d, e] = &quantized;
    let more = [("a", a), ("b", b), ("c", c), ("d", d), ("e", e)];
    let tensors = [&[("q", &q), ("k", &k), ("v", &v)][..], &more].concat();
    let input = sandbox.write("quantized", safetensors(&tensors));
    let args = ["attend", &input, "--out", &sandbox.arg("out"), "--mask", "full"];
    let (output, _) = run(&mut command(&args));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "note: tensors that attention does not use are ignored: a, b, c, d, e\n");
    let tensors = [("q", &q), ("k", &k), ("v", &v), ("mask", &q), ("out", &q)];
    let (input, out) = (sandbox.write("in", safetensors(&tensors)), sandbox.arg("out"));
    let args = ["attend", &input, "--out", &out, "--mask", "full"];
    let (output, _) = run(&mut command(&args));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "note: tensors that attention does not use are ignored: mask, out\n");
    let (quiet, _) = run(&mut command(&[&args[..], &["--quiet"]].concat()));
    assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "");
    // The summary differs in its times alone.
    let lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(lines(&quiet.stdout), lines(&output.stdout));
    assert!(lines(&quiet.stdout) >= 5);
}
