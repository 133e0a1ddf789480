//! With the feature `mpi`, says in plain words what is missing before the bindings' own build fails
//! with less clear ones.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const MPI: &str = "the feature `mpi` needs an MPI library: no compiler wrapper `mpicc` was found, and pkg-config knows \
    neither `mpich` nor `ompi`. Install one (Debian, Ubuntu: libopenmpi-dev openmpi-bin) or set MPICC to the wrapper's path.";
const CLANG: &str = "the feature `mpi` needs libclang, which was not found in the usual places. If the build of `mpi-sys` \
    fails with \"Unable to find libclang\", install it (Debian, Ubuntu: libclang-dev clang) or set LIBCLANG_PATH to its folder.";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["MPICC", "LIBCLANG_PATH", "PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if env::var_os("CARGO_FEATURE_MPI").is_none() {
        return;
    }
    if !has_mpi() {
        println!("cargo::error={MPI}");
    }
    if !has_libclang() {
        println!("cargo::warning={CLANG}");
    }
}

fn has_mpi() -> bool {
    let wrapper = env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let runs = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    runs(&wrapper, &["-show"])
        || ["mpich", "ompi"].iter().any(|name| runs("pkg-config", &["--exists", name]))
}

fn has_libclang() -> bool {
    let asks = Command::new("llvm-config").arg("--libdir").output().ok();
    let told = asks.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let mut folders: Vec<PathBuf> = env::var_os("LIBCLANG_PATH")
        .map(PathBuf::from)
        .into_iter()
        .chain(told.map(PathBuf::from))
        .collect();
    for parent in [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/opt/homebrew/opt/llvm/lib",
        "/usr/local/opt/llvm/lib",
    ] {
        folders.push(parent.into());
        let below = inside(Path::new(parent));
        folders.extend(below.iter().map(|folder| folder.join("lib")));
        folders.extend(below);
    }
    let is_libclang = |path: &PathBuf| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("libclang.") || name.starts_with("libclang-")
        })
    };
    folders.iter().any(|folder| folder.is_file() || inside(folder).iter().any(&is_libclang))
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
