//! Machines by name: peaks as their makers state them, so that predicted times are lower bounds.
//!
//! A measured machine is better; these serve to compare. One rank per device or node.

use super::time::Machine;

/// A machine with a name and where its numbers come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedMachine {
    /// As the command line calls it.
    pub name: &'static str,
    /// Its numbers.
    pub machine: Machine,
    /// Where they come from.
    pub source: &'static str,
}

/// All of them.
pub const MACHINES: [NamedMachine; 4] = [
    // 312 TFLOP/s bf16 without sparsity, 80 GB, NVLink 600 GB/s in both directions together: NVIDIA,
    // A100 Tensor Core GPU datasheet, 2021. Ring Attention (2310.01889, table 2) takes the same.
    // Latency: of a small NCCL message between two devices, rounded; an assumption.
    NamedMachine {
        name: "a100-nvlink",
        machine: Machine { flops: 312e12, bandwidth: 300e9, latency: 10e-6, memory: 80 * GB },
        source: "NVIDIA A100 80GB SXM datasheet: bf16 peak, NVLink 3 in one direction",
    },
    // 989 TFLOP/s bf16 without sparsity, 80 GB, NVLink 900 GB/s in both directions together: NVIDIA,
    // H100 Tensor Core GPU datasheet, 2023 (SXM5). Latency as above.
    NamedMachine {
        name: "h100-nvlink",
        machine: Machine { flops: 989e12, bandwidth: 450e9, latency: 10e-6, memory: 80 * GB },
        source: "NVIDIA H100 80GB SXM5 datasheet: bf16 peak, NVLink 4 in one direction",
    },
    // 16 cores of 100 GFLOP/s f32, the multiply-add peak that `ringattn bench` finds on a Zen 4 core at
    // 3.1 GHz (2 x 16 lanes x 3.1 GHz). 10^9 bit/s less the headers of Ethernet, IP and TCP in frames
    // of 1500 bytes (1448 of 1538) is 118 MB/s. Latency: of TCP through one switch; an assumption.
    NamedMachine {
        name: "cpu-1gbe",
        machine: Machine { flops: 1.6e12, bandwidth: 118e6, latency: 50e-6, memory: 64 * GB },
        source: "16 Zen 4 cores at their f32 multiply-add peak, TCP over 1 Gbit/s Ethernet",
    },
    NamedMachine {
        name: "cpu-10gbe",
        machine: Machine { flops: 1.6e12, bandwidth: 1.18e9, latency: 30e-6, memory: 64 * GB },
        source: "16 Zen 4 cores at their f32 multiply-add peak, TCP over 10 Gbit/s Ethernet",
    },
];

/// Bytes of a decimal gigabyte.
const GB: u64 = 1_000_000_000;

impl NamedMachine {
    /// The machine of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        MACHINES.iter().find(|machine| machine.name == name)
    }
}
