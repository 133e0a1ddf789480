//! The walls between the crates, kept by reading the package graph and the sources.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each crate may depend on among ours, tests aside.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ringattn-core", &[]),
    ("ringattn-plan", &["ringattn-core"]),
    ("ringattn-kernel", &["ringattn-core"]),
    ("ringattn-comm", &["ringattn-core"]),
    ("ringattn-oracle", &["ringattn-core"]),
    ("ringattn-engine", &["ringattn-core", "ringattn-plan", "ringattn-kernel", "ringattn-comm"]),
    ("ringattn-model", &["ringattn-core", "ringattn-plan", "ringattn-comm", "ringattn-engine"]),
    (
        "ringattn",
        &["ringattn-core", "ringattn-plan", "ringattn-comm", "ringattn-engine", "ringattn-model"],
    ),
    ("ringattn-cli", &["ringattn"]),
];

/// Files that may hold `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/kernel/src/",
    "crates/comm/src/mpi/library.rs",
    "crates/model/src/file.rs",
    "crates/cli/src/input/mapped.rs",
];

/// What no crate below the command line may do.
const BELOW_CLI: &[&str] = &["std::env::", "env::var", "println!", "eprintln!", "static mut"];

/// What a plan must not hold.
const NOT_IN_PLAN: &[&str] =
    &["std::thread", "std::net", "Instant", "SystemTime", "Vec<Step>", "Mutex"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn ours() -> Vec<Package> {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec().unwrap();
    metadata.packages
}

/// Source files below `crates/*/src`, with their path from the root.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                if name.contains("/src/") {
                    found.insert(name, std::fs::read_to_string(path).unwrap());
                }
            }
        }
    }
    found
}

/// The text before the file's unit tests, without comments.
fn code(text: &str) -> String {
    let body = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = body.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn crates_depend_only_downwards() {
    let packages = ours();
    let names: BTreeSet<_> = packages.iter().map(|package| package.name.to_string()).collect();
    let known: BTreeSet<_> = ALLOWED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names, known, "a crate without a line in ALLOWED");
    for package in &packages {
        let name = package.name.to_string();
        let (_, allowed) = ALLOWED.iter().find(|(known, _)| *known == name).unwrap();
        for dependency in &package.dependencies {
            let tests_only = dependency.kind == DependencyKind::Development;
            let inside = names.contains(&dependency.name) && !tests_only;
            let fine = allowed.contains(&dependency.name.as_str());
            assert!(!inside || fine, "{name} must not depend on {}", dependency.name);
        }
    }
}

#[test]
fn the_oracle_is_for_tests_only() {
    for package in ours() {
        for dependency in &package.dependencies {
            let oracle = dependency.name == "ringattn-oracle";
            assert!(!oracle || dependency.kind == DependencyKind::Development, "{}", package.name);
        }
    }
}

#[test]
fn unsafe_stays_where_it_is_allowed() {
    for (name, text) in sources() {
        let holds =
            code(&text).split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
        let allowed = UNSAFE.iter().any(|prefix| name.starts_with(prefix));
        assert!(!holds || allowed, "unsafe in {name}");
    }
    let forbids = "#![forbid(unsafe_code)]";
    // With the feature `mpi`, one file of comm calls a C library.
    let forbids_without_mpi = "#![cfg_attr(not(feature = \"mpi\"), forbid(unsafe_code))]";
    for (name, attribute) in [
        ("core", forbids),
        ("plan", forbids),
        ("comm", forbids_without_mpi),
        ("engine", forbids),
        ("ringattn", forbids),
        ("oracle", forbids),
    ] {
        let text =
            std::fs::read_to_string(root().join(format!("crates/{name}/src/lib.rs"))).unwrap();
        assert!(text.contains(attribute), "crates/{name} does not forbid unsafe");
    }
}

#[test]
fn nothing_below_the_command_line_prints_or_reads_the_environment() {
    for (name, text) in sources().iter().filter(|(name, _)| !name.starts_with("crates/cli/")) {
        for word in BELOW_CLI {
            // The compiler's own paths are fixed when it is built.
            let text = code(text).replace("env!(", "");
            assert!(!text.contains(word), "{word} in {name}");
        }
    }
}

#[test]
fn a_plan_is_plain_data() {
    for name in [
        "plan",
        "layout",
        "segment",
        "problem",
        "step",
        "ring",
        "tree",
        "reduce",
        "gather",
        "timeline",
        "closed_form/mod",
        "cost/mod",
    ] {
        let path = format!("crates/plan/src/{name}.rs");
        let text = code(&sources()[&path]);
        for word in NOT_IN_PLAN {
            assert!(!text.contains(word), "{word} in {path}");
        }
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (name, text) in sources() {
        assert!(text.starts_with("//!"), "{name} does not open with //!");
    }
}
