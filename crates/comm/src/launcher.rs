//! Whether an MPI launcher has started this process, by the variables that launchers set. Reads no
//! environment itself: the caller looks the variables up.

use std::ffi::OsString;

/// Who started this process as one rank of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Hydra, the `mpiexec` of MPICH and Intel MPI.
    Hydra,
    /// Slurm's `srun`, through PMI or PMIx.
    Slurm,
    /// Another launcher that speaks PMIx.
    Pmix,
}

/// What the environment says about the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Who started the process.
    pub launcher: Launcher,
    /// The number of ranks, where the launcher says it.
    pub size: Option<u32>,
    /// This process's rank, where the launcher says it.
    pub rank: Option<u32>,
}

/// What launched this process, or `None` where no MPI launcher did.
///
/// A Slurm job alone is none: its batch script runs outside `srun` and has no PMI variables.
pub fn environment(lookup: impl Fn(&str) -> Option<OsString>) -> Option<Environment> {
    let number = |name| lookup(name)?.to_str()?.parse::<u32>().ok();
    let slurm = lookup("SLURM_JOB_ID").is_some();
    if lookup("OMPI_COMM_WORLD_SIZE").is_some() {
        let (size, rank) = (number("OMPI_COMM_WORLD_SIZE"), number("OMPI_COMM_WORLD_RANK"));
        return Some(Environment { launcher: Launcher::OpenMpi, size, rank });
    }
    let rank = number("PMI_RANK").or_else(|| number("PMIX_RANK"));
    if lookup("PMI_SIZE").is_some() {
        let launcher = if slurm { Launcher::Slurm } else { Launcher::Hydra };
        return Some(Environment { launcher, size: number("PMI_SIZE"), rank });
    }
    let speaks_pmi = ["PMIX_RANK", "PMI_RANK", "PMI_FD"].iter().any(|name| lookup(name).is_some());
    match (speaks_pmi, slurm) {
        (false, _) => None,
        (true, true) => {
            let size = number("SLURM_STEP_NUM_TASKS").or_else(|| number("SLURM_NTASKS"));
            let rank = rank.or_else(|| number("SLURM_PROCID"));
            Some(Environment { launcher: Launcher::Slurm, size, rank })
        }
        (true, false) => Some(Environment { launcher: Launcher::Pmix, size: None, rank }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_told_by_their_variables() {
        let found = |launcher, size, rank| Some(Environment { launcher, size, rank });
        type Variables = &'static [(&'static str, &'static str)];
        let cases: [(Variables, Option<Environment>); 9] = [
            (&[], None),
            (
                &[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3"), ("PMIX_RANK", "1")],
                found(Launcher::OpenMpi, Some(4), Some(3)),
            ),
            (&[("OMPI_COMM_WORLD_SIZE", "many")], found(Launcher::OpenMpi, None, None)),
            (&[("PMI_SIZE", "2"), ("PMI_RANK", "0")], found(Launcher::Hydra, Some(2), Some(0))),
            (&[("PMI_SIZE", "8"), ("SLURM_JOB_ID", "7")], found(Launcher::Slurm, Some(8), None)),
            (
                &[
                    ("PMIX_RANK", "0"),
                    ("SLURM_JOB_ID", "7"),
                    ("SLURM_STEP_NUM_TASKS", "3"),
                    ("SLURM_NTASKS", "9"),
                ],
                found(Launcher::Slurm, Some(3), Some(0)),
            ),
            (
                &[
                    ("PMI_FD", "5"),
                    ("SLURM_JOB_ID", "7"),
                    ("SLURM_NTASKS", "9"),
                    ("SLURM_PROCID", "5"),
                ],
                found(Launcher::Slurm, Some(9), Some(5)),
            ),
            (&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "9"), ("SLURM_PROCID", "0")], None),
            (&[("PMIX_RANK", "0")], found(Launcher::Pmix, None, Some(0))),
        ];
        for (variables, expected) in cases {
            let lookup = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            assert_eq!(environment(lookup), expected, "{variables:?}");
        }
    }
}
