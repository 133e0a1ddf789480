//! The table of bad inputs, by what is bad.

mod files;
mod model;
mod npy;
mod options;
mod outputs;
mod plan;
mod shapes;

use crate::support::{Sandbox, Tensor, safetensors};
use std::fs;
use std::path::PathBuf;

/// What stands in every output before the command runs.
pub(crate) const SENTINEL: &[u8] = b"old output";

/// A command line and what must come of it.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
    pub(crate) code: i32,
    pub(crate) says: &'static str,
}

/// Collects cases over the files of a sandbox.
pub(crate) struct Table<'a> {
    pub(crate) sandbox: &'a Sandbox,
    cases: Vec<Case>,
}

impl Table<'_> {
    /// A command line of words; `IN` and `OUT` stand for a sound input and an existing output.
    pub(crate) fn add(&mut self, line: &str, code: i32, says: &'static str) {
        let word = |word: &str| match word {
            "IN" => self.sandbox.arg("in.safetensors"),
            "OUT" => self.sandbox.arg("out.old"),
            other => other.to_owned(),
        };
        let args = line.split_whitespace().map(word).collect();
        self.cases.push(Case { name: line.to_owned(), args, code, says });
    }

    /// `attend` on a file with these bytes.
    pub(crate) fn attend(
        &mut self,
        name: &str,
        bytes: impl AsRef<[u8]>,
        (code, says): (i32, &'static str),
    ) {
        let file = format!("{name}.safetensors").replace(' ', "-");
        self.sandbox.write(&file, bytes);
        self.add(&format!("attend {file} --out OUT --mask causal"), code, says);
    }

    /// `attend` on these tensors.
    pub(crate) fn tensors(
        &mut self,
        name: &str,
        tensors: &[(&str, &Tensor)],
        expected: (i32, &'static str),
    ) {
        self.attend(name, safetensors(tensors), expected);
    }
}

/// All cases, over files in `sandbox`.
pub(crate) fn all(sandbox: &Sandbox) -> Vec<Case> {
    let mut table = Table { sandbox, cases: Vec::new() };
    sandbox.write("out.old", SENTINEL);
    let [q, k, v] = qkv();
    sandbox.write("in.safetensors", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
    files::add(&mut table);
    shapes::add(&mut table);
    npy::add(&mut table);
    options::add(&mut table);
    outputs::add(&mut table);
    plan::add(&mut table);
    model::add(&mut table);
    table.cases
}

/// Files that no case may change.
pub(crate) fn kept_files(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(sandbox.path("")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let small = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() < 1 << 20)
    };
    paths.filter(small).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Sound tensors of 4 query heads over 2 key heads, 8 tokens, dimension 4.
pub(crate) fn qkv() -> [Tensor; 3] {
    [Tensor::random(&[4, 8, 4], 1), Tensor::random(&[2, 8, 4], 2), Tensor::random(&[2, 8, 4], 3)]
}
