//! Safetensors files that are none.

use super::{Table, qkv};
use crate::support::{Tensor, safetensors};
use std::fs;
use std::process::Command;

/// A file with this header and so many bytes of data.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

/// A header that names q, k and v, of 128 bytes each, and something else.
fn qkv_and(entry: &str) -> String {
    let tensor = |name, start| {
        let end = start + 128;
        format!(r#""{name}":{{"dtype":"F32","shape":[1,8,4],"data_offsets":[{start},{end}]}}"#)
    };
    format!("{{{},{},{},{entry}}}", tensor("q", 0), tensor("k", 128), tensor("v", 256))
}

pub(crate) fn add(table: &mut Table<'_>) {
    places(table);
    lengths(table);
    headers(table);
    entries(table);
}

fn places(table: &mut Table<'_>) {
    let sandbox = table.sandbox;
    fs::create_dir(sandbox.path("a-folder")).unwrap();
    let made = Command::new("mkfifo").arg(sandbox.path("a-pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink(sandbox.path("nowhere"), sandbox.path("a-dead-link")).unwrap();
    for (input, says) in [
        ("missing.safetensors", "missing.safetensors: No such file"),
        ("a-dead-link", "No such file"),
        ("a-folder", "expected a regular file, found a folder"),
        ("a-pipe", "found a pipe"),
        ("/dev/zero", "found a pipe, socket or device"),
        ("in.safetensors/x", "Not a directory"),
    ] {
        table.add(&format!("attend {input} --out OUT --mask full"), 3, says);
    }
}

fn lengths(table: &mut Table<'_>) {
    let [q, k, v] = qkv();
    let sound = safetensors(&[("q", &q), ("k", &k), ("v", &v)]);
    let length = |length: u64| {
        let mut file = sound.clone();
        file[..8].copy_from_slice(&length.to_le_bytes());
        file
    };
    table.attend("empty", "", (3, "a file of 0 bytes"));
    table.attend("seven bytes", &sound[..7], (3, "a file of 7 bytes"));
    table.attend("only a length", &sound[..8], (3, "the header length"));
    table.attend("cut in the header", &sound[..60], (3, "what the file has"));
    table.attend("cut in the data", &sound[..sound.len() - 1], (3, "the file is truncated"));
    table.attend("a byte too long", [&sound[..], b"x"].concat(), (3, "as the header says"));
    table.attend("header of no length", length(0), (3, "the header length"));
    table.attend("header of length 1", length(1), (3, "JSON"));
    table.attend("header beyond the file", length(sound.len() as u64), (3, "the header length"));
    table.attend("header of 2^63", length(1 << 63), (3, "the header length"));
    table.attend("header of 2^64-1", length(u64::MAX), (3, "found 18446744073709551615"));
    // A sparse file in which a header of 100 MB would fit.
    table.attend("header of 100 MB", length(100_000_000), (3, "the limit"));
    let sparse = table.sandbox.path("header-of-100-MB.safetensors");
    fs::OpenOptions::new().write(true).open(sparse).unwrap().set_len(200_000_000).unwrap();
}

fn headers(table: &mut Table<'_>) {
    for (name, header, says) in [
        ("not JSON", "hello, I am a header", "a JSON object of tensors"),
        ("an array", "[]", "a JSON object of tensors"),
        ("no tensor", "{}", "tensor q is missing, found none"),
        ("NaN in JSON", r#"{"q": NaN}"#, "a JSON object of tensors"),
        ("text behind", "{} {}", "trailing characters"),
        ("entry without type", r#"{"q":{"shape":[],"data_offsets":[0,0]}}"#, "missing field"),
        (
            "entry with more",
            r#"{"q":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"strides":[1]}}"#,
            "unknown field",
        ),
        (
            "negative size",
            r#"{"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
            "invalid value: integer `-1`",
        ),
        (
            "fractional size",
            r#"{"q":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}"#,
            "floating point `1.5`",
        ),
        (
            "size of 2^64",
            r#"{"q":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}"#,
            "a JSON object of tensors",
        ),
    ] {
        table.attend(name, with_header(header, 0), (3, says));
    }
    table.attend("deep arrays", with_header(&"[".repeat(100_000), 0), (3, "a JSON object"));
    let deep = format!("{{\"q\":{}", "{\"a\":".repeat(100_000));
    table.attend("deep objects", with_header(&deep, 0), (3, "a JSON object"));
    let many: Vec<_> = (0..100_000)
        .map(|i| format!(r#""t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#))
        .collect();
    let many = with_header(&format!("{{{}}}", many.join(",")), 0);
    table.attend("100000 tensors", many, (3, "tensor q is missing"));
    let mut not_utf8 = with_header("{\"q\": 1}", 0);
    not_utf8[10] = 0xff;
    table.attend("not UTF-8", not_utf8, (3, "expected UTF-8, found byte 2"));
}

fn entries(table: &mut Table<'_>) {
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        let entry = format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#);
        with_header(&qkv_and(&format!(r#""x":{entry}"#)), 384 + 16)
    };
    let sound = r#"{"dtype":"F32","shape":[4],"data_offsets":[384,400]}"#;
    let twice = |entry: &str| with_header(&qkv_and(entry), 400);
    table.attend("a name twice", twice(&format!(r#""q":{sound}"#)), (3, "key q appears twice"));
    table.attend(
        "a field twice",
        twice(r#""x":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[384,400]}"#),
        (3, "duplicate field"),
    );
    table.attend("overlap", entry("F32", "[4]", "[256,272]"), (3, "tensor"));
    table.attend("gap", entry("F32", "[3]", "[388,400]"), (3, "12 bytes from 384 on"));
    table.attend("offsets backwards", entry("F32", "[4]", "[400,384]"), (3, "tensor x"));
    table.attend("beyond the end", entry("F32", "[8]", "[384,416]"), (3, "the file is truncated"));
    table.attend("other size", entry("F32", "[5]", "[384,400]"), (3, "20 bytes from 384 on"));
    table.attend("unknown type", entry("F31", "[4]", "[384,400]"), (3, "a known type"));
    table.attend("half a byte", entry("F4", "[31]", "[384,400]"), (3, "of whole bytes"));
    table.attend("other size of F6", entry("F6_E2M3", "[24]", "[384,400]"), (3, "18 bytes from"));
    let huge = "[4294967296,4294967296,4]";
    table.attend("size overflows", entry("F32", huge, "[384,400]"), (3, "below 2^64"));
    let end = format!("[384,{}]", u64::MAX);
    table.attend("offset overflows", entry("U8", "[16]", &end), (3, "tensor x"));

    let [q, k, v] = qkv();
    let as_type = |tensor: &Tensor, dtype, bits: usize| {
        let bytes = vec![0; tensor.bytes.len() / 32 * bits];
        Tensor { dtype, bytes, ..tensor.clone() }
    };
    let f64s = as_type(&q, safetensors::Dtype::F64, 64);
    let i64s = as_type(&k, safetensors::Dtype::I64, 64);
    let f8s = as_type(&v, safetensors::Dtype::F8_E4M3, 8);
    let says = "tensor q: expected F32, BF16 or F16, found type F64";
    table.tensors("q in f64", &[("q", &f64s), ("k", &k), ("v", &v)], (3, says));
    table.tensors("k in i64", &[("q", &q), ("k", &i64s), ("v", &v)], (3, "tensor k"));
    table.tensors("v in f8", &[("q", &q), ("k", &k), ("v", &f8s)], (3, "F8_E4M3"));
    for (dtype, bits, says) in [
        (safetensors::Dtype::F4, 4, "tensor v: expected F32, BF16 or F16, found type F4"),
        (safetensors::Dtype::F6_E2M3, 6, "F16, found type F6_E2M3"),
        (safetensors::Dtype::F6_E3M2, 6, "F16, found type F6_E3M2"),
        (safetensors::Dtype::F8_E4M3FNUZ, 8, "F16, found type F8_E4M3FNUZ"),
        (safetensors::Dtype::F8_E5M2FNUZ, 8, "F16, found type F8_E5M2FNUZ"),
    ] {
        let v = as_type(&v, dtype, bits);
        table.tensors(&format!("v in {dtype}"), &[("q", &q), ("k", &k), ("v", &v)], (3, says));
    }
    table.tensors("no v", &[("q", &q), ("k", &k)], (3, "tensor v is missing, found k, q"));
    table.tensors("no tensor q", &[("Q", &q), ("k", &k), ("v", &v)], (3, "tensor q is missing"));
}
