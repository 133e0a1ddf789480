//! The machine in words, as far as Linux tells; what it does not tell is left out.

use crate::host;
use ringattn_engine::cpu::Isa;
use std::fs::read_to_string;

/// For instance `AMD EPYC 9454, 2 cores, avx512, L1d 32 KiB, L2 1 MiB, L3 32 MiB`.
pub(super) fn describe(isa: Isa) -> String {
    let cores = host::cores();
    let counted = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
    let processor = read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text));
    let caches = (0..8).filter_map(cache);
    let parts: Vec<_> =
        processor.into_iter().chain([counted, isa.to_string()]).chain(caches).collect();
    parts.join(", ")
}

/// The processor's name in `/proc/cpuinfo`; Arm systems give none.
fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    let name = line.trim_start().strip_prefix(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Cache `index` of the first core, instruction caches aside.
fn cache(index: u32) -> Option<String> {
    let read = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        Some(read_to_string(path).ok()?.trim().to_owned())
    };
    cache_text(&read("level")?, &read("type")?, &read("size")?)
}

/// A cache from its level, type (`Data`, `Instruction`, `Unified`) and size (`32K`).
fn cache_text(level: &str, kind: &str, size: &str) -> Option<String> {
    let suffix = match kind {
        "Data" => "d",
        "Unified" => "",
        _ => return None,
    };
    let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
    let size =
        if kib.is_multiple_of(1024) { format!("{} MiB", kib / 1024) } else { format!("{kib} KiB") };
    Some(format!("L{level}{suffix} {size}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_words_are_understood() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC 9454  48-Core\ncpu MHz\t\t: 2596\n";
        assert_eq!(model_name(cpuinfo).as_deref(), Some("AMD EPYC 9454 48-Core"));
        assert_eq!(model_name("processor\t: 0\nCPU implementer\t: 0x41\n"), None);
        for (cache, text) in [
            (("1", "Data", "48K"), Some("L1d 48 KiB")),
            (("1", "Instruction", "32K"), None),
            (("2", "Unified", "1280K"), Some("L2 1280 KiB")),
            (("3", "Unified", "32768K"), Some("L3 32 MiB")),
            (("3", "Unified", ""), None),
        ] {
            assert_eq!(cache_text(cache.0, cache.1, cache.2).as_deref(), text);
        }
    }
}
