//! Places where no result can be written.

use super::{SENTINEL, Table};
use std::fs;

pub(crate) fn add(table: &mut Table<'_>) {
    let sandbox = table.sandbox;
    sandbox.write("a-file", SENTINEL);
    sandbox.write("read-only", SENTINEL);
    let mut closed = fs::metadata(sandbox.path("read-only")).unwrap().permissions();
    closed.set_readonly(true);
    fs::set_permissions(sandbox.path("read-only"), closed).unwrap();
    fs::hard_link(sandbox.path("in.safetensors"), sandbox.path("hard-link")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("in.safetensors"), sandbox.path("soft-link")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("none/at-all"), sandbox.path("dead-end")).unwrap();
    for (out, code, says) in [
        ("none/out", 9, "the folder none: No such file"),
        ("a-file/out", 9, "Not a directory"),
        ("/proc/out", 9, "cannot write /proc/out"),
        ("a-folder", 9, "found a folder"),
        ("a-folder/..", 9, "found a folder"),
        ("/dev/full", 9, "a pipe, socket or device"),
        ("a-pipe", 9, "a pipe, socket or device"),
        ("dead-end", 9, "a link that leads nowhere"),
        ("read-only", 9, "read-only"),
        ("in.safetensors", 9, "it is an input of this run"),
        ("./a-folder/../in.safetensors", 9, "it is an input of this run"),
        ("hard-link", 9, "it is an input of this run"),
        ("soft-link", 9, "it is an input of this run"),
        ("-", 2, "the name of a file"),
    ] {
        table.add(&format!("attend IN --out {out} --mask full"), code, says);
    }
    for (report, code, says) in [
        ("none/report", 9, "the folder none"),
        ("OUT", 2, "--out and --report name the same file"),
        ("in.safetensors", 9, "it is an input"),
        ("-", 2, "--report -"),
    ] {
        table.add(&format!("attend IN --out OUT --mask full --report {report}"), code, says);
    }
    // The output is checked before hours of computing and not after them.
    let line = "attend IN --out none/out --mask full --memory-limit 1";
    table.add(line, 9, "the folder none");
    for (json, says) in [
        ("none/figures", "the folder none: No such file"),
        ("a-folder", "found a folder"),
        ("/dev/full", "a pipe, socket or device"),
        ("read-only", "read-only"),
    ] {
        table.add(&format!("bench --quick --json {json}"), 9, says);
    }
}
