//! Tells the program which revision it is built from: `RINGATTN_COMMIT` is the abbreviated commit,
//! with a `+` when the sources differ from it, or `unknown` outside a checkout.
//!
//! Runs again when the checkout moves or a source changes, which rebuild this crate anyway, and
//! rebuilds nothing else.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is built from, relative to the root.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    // Asked at run time: two checkouts may share a target folder, and this program with it.
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=RINGATTN_COMMIT={commit}");
    // A path that is not there would make the script run every time.
    let sources = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let sources = sources.map(|folder| folder.path().join("src"));
    let files = SOURCES.iter().map(|name| root.join(name)).filter(|path| path.is_file());
    let watched = sources.chain(files).chain(git_files(&root));
    for path in watched.filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The revision; `None` without git, or when the root is not a checkout of its own.
fn commit(root: &Path) -> Option<String> {
    if !root.join(".git").exists() {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(root, &[&["status", "--porcelain", "--"], &SOURCES[..]].concat())?;
    Some(if changes.is_empty() { commit } else { format!("{commit}+") })
}

/// Files that change when the checkout moves to another commit.
fn git_files(root: &Path) -> Vec<PathBuf> {
    let path = |name: &str| Some(root.join(git(root, &["rev-parse", "--git-path", name])?));
    ["HEAD", "logs/HEAD"].into_iter().filter_map(path).collect()
}

/// What git prints, without the line's end; `None` when it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
