//! Npy files that are none, or hold what attention does not take.

use super::{Table, qkv};
use crate::support::{Tensor, npy};

pub(crate) fn add(table: &mut Table<'_>) {
    let [q, k, v] = qkv();
    let sandbox = table.sandbox;
    for (name, tensor) in
        [("q", &q), ("k", &k), ("v", &v), ("short", &Tensor::random(&[2, 7, 4], 1))]
    {
        sandbox.write(&format!("{name}.npy"), tensor.npy());
    }
    let mut bad = |name: &str, bytes: &[u8], says| {
        let file = format!("{name}.npy").replace(' ', "-");
        sandbox.write(&file, bytes);
        let line = format!("attend q.npy {file} v.npy --out new-folder --mask full");
        table.add(&line, 3, says);
    };
    let sound = k.npy();
    let header = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let with = |header: &str| npy(header, &k.bytes);

    bad("nothing", b"", "a file of 0 bytes");
    bad("no magic", b"PK\x03\x04 this is a zip", "begin an npy file");
    bad("version 9", &[b"\x93NUMPY\x09\x00", &sound[8..]].concat(), "version 9");
    bad("no length", &sound[..8], "a header length");
    bad("cut header", &sound[..40], "a header within the file");
    bad("cut data", &sound[..sound.len() - 3], "256 bytes by shape and type, found 253");
    bad("too much data", &[&sound[..], b"more"].concat(), "found 260");
    let long = [b"\x93NUMPY\x02\x00\xff\xff\xff\xff" as &[u8], &sound[10..]].concat();
    bad("header of 4 GB", &long, "4294967295 of");
    bad("Fortran order", &with(&header("'<f4'", "True", "(2, 8, 4)")), "found Fortran order");
    bad("big-endian", &with(&header("'>f4'", "False", "(2, 8, 4)")), "big-endian");
    bad("pickled", &with(&header("'|O'", "False", "(2, 8, 4)")), "pickled objects");
    bad("structured", &with(&header("[('a', '<f4')]", "False", "(64,)")), "structured");
    bad("f64", &with(&header("'<f8'", "False", "(32,)")), "float64");
    bad("bf16", &with(&header("'<V2'", "False", "(128,)")), "bfloat16");
    bad("integers", &with(&header("'<i4'", "False", "(2, 8, 4)")), "'<i4'");
    let shape = "(4294967296, 4294967296, 4294967296)";
    bad("size overflows", &with(&header("'<f4'", "False", shape)), "more than 2^64");
    let shape = "(1099511627776, 8, 4)";
    bad("claims a terabyte", &with(&header("'<f4'", "False", shape)), "the data");
    bad("negative size", &with(&header("'<f4'", "False", "(-2, 8, 4)")), "the header");
    bad("nested shape", &with(&header("'<f4'", "False", "((2, 8), 4)")), "the header");
    bad("deep header", &with(&"(".repeat(60_000)), "the header");
    bad("no shape", &with("{'descr': '<f4', 'fortran_order': False}"), "the header");
    bad("code", &with("__import__('os').system('true')"), "the header");

    let line = "attend q.npy short.npy short.npy --out new-folder --mask full";
    table.add(line, 2, "which npy files cannot carry");
    let many_heads = Tensor::f32(&[1 << 58, 0, 64], &[]);
    sandbox.write("many-heads.npy", many_heads.npy());
    let line = "attend many-heads.npy many-heads.npy many-heads.npy --out new-folder --mask full";
    table.add(line, 2, "288230376151711744 heads");
    table.add("attend q.npy --out OUT --mask full", 2, "three npy files");
    table.add("attend q.npy k.npy --out OUT --mask full", 2, "got 2");
    table.add("attend q.npy k.npy v.npy v.npy --out OUT --mask full", 2, "got 4");
    table.add("attend IN IN IN --out new-folder --mask full", 3, "begin an npy file");
    table.add("attend q.npy k.npy missing.npy --out new-folder --mask full", 3, "missing.npy");
    for (out, says) in [
        ("OUT", "expected a folder, found a file"),
        ("a-pipe", "expected a folder, found a pipe, socket or device"),
        ("a-dead-link", "expected a folder, found a link that leads nowhere"),
    ] {
        table.add(&format!("attend q.npy k.npy v.npy --out {out} --mask full"), 9, says);
    }
    table.add("attend q.npy k.npy v.npy --out none/folder --mask full", 9, "none/folder");
    table.add("attend q.npy k.npy v.npy --out - --mask full", 2, "a folder");
    let line = "attend q.npy k.npy v.npy --out new-folder --mask full --report none/report";
    table.add(line, 9, "the folder none");
}
