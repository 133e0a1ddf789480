//! Runs the command, and makes and reads the files it takes and leaves. Shares no code with it.

#![allow(dead_code, reason = "each test file uses a part")]

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take before it counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// What a report counts of each rank and also expects, under the same name with `_expected`.
pub(crate) const COUNTS_OF_RANK: [&str; 7] = [
    "resident_kv_bytes",
    "peak_kv_bytes",
    "peak_query_bytes",
    "peak_state_bytes",
    "sent_bytes",
    "received_bytes",
    "hops",
];

/// The command, not started.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringattn"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command to its end and says how long it took.
pub(crate) fn run(command: &mut Command) -> (Output, Duration) {
    let start = Instant::now();
    let mut child = command.spawn().unwrap();
    // What the command prints in these tests fits into the pipes' buffers, or is read to its end.
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("hangs: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let elapsed = start.elapsed();
    (child.wait_with_output().unwrap(), elapsed)
}

/// Runs the command, which must succeed, and returns what it printed.
pub(crate) fn ringattn(args: &[&str]) -> String {
    let (output, _) = run(&mut command(args));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder for one test.
pub(crate) struct Sandbox(tempfile::TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.arg(name)
    }

    /// Names of temporaries that were left behind.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains(".tmp"))
            .collect()
    }
}

/// A folder of this repository's `fixtures`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// A tensor in memory.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    pub(crate) fn f32(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    pub(crate) fn i64(values: &[i64]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::I64, shape: vec![values.len()], bytes }
    }

    /// Values between -2 and 2 that `seed` decides.
    pub(crate) fn random(shape: &[usize], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 22) as f32 - 2.0
        };
        let values: Vec<_> = (0..shape.iter().product()).map(|_| next()).collect();
        Self::f32(shape, &values)
    }

    /// The same values cut (not rounded) to bf16.
    pub(crate) fn to_bf16(&self) -> Self {
        let bytes = self.bytes.as_chunks::<4>().0.iter().flat_map(|&[_, _, low, high]| [low, high]);
        Self { dtype: Dtype::BF16, shape: self.shape.clone(), bytes: bytes.collect() }
    }

    /// The same values cut (not rounded) to f16; they must be 0 or between 2^-14 and 65504.
    pub(crate) fn to_f16(&self) -> Self {
        let half = |bytes: &[u8; 4]| {
            let bits = u32::from_le_bytes(*bytes);
            let (sign, exponent) = ((bits >> 16) & 0x8000, (bits >> 23) & 0xff);
            let rest =
                if exponent < 113 { 0 } else { ((exponent - 112) << 10) | ((bits >> 13) & 0x3ff) };
            ((sign | rest) as u16).to_le_bytes()
        };
        let bytes = self.bytes.as_chunks().0.iter().flat_map(half).collect();
        Self { dtype: Dtype::F16, shape: self.shape.clone(), bytes }
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        let half = |bits: u16| {
            let (sign, exponent) = (if bits >> 15 == 1 { -1.0 } else { 1.0 }, (bits >> 10) & 31);
            let fraction = f64::from(bits & 0x3ff) / 1024.0;
            match exponent {
                0 => sign * fraction * 2f64.powi(-14),
                31 => sign * f64::INFINITY,
                _ => sign * (1.0 + fraction) * 2f64.powi(i32::from(exponent) - 15),
            }
        };
        match self.dtype {
            Dtype::F32 => {
                self.bytes.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect()
            }
            Dtype::BF16 => {
                let wide = |&[low, high]: &[u8; 2]| f32::from_le_bytes([0, 0, low, high]);
                self.bytes.as_chunks().0.iter().map(wide).map(f64::from).collect()
            }
            Dtype::F16 => {
                self.bytes.as_chunks().0.iter().map(|&b| half(u16::from_le_bytes(b))).collect()
            }
            other => panic!("{other}"),
        }
    }

    /// As an npy file, written as numpy writes it.
    pub(crate) fn npy(&self) -> Vec<u8> {
        let descr = match self.dtype {
            Dtype::F32 => "<f4",
            Dtype::F16 => "<f2",
            other => panic!("{other}"),
        };
        let sizes: Vec<_> = self.shape.iter().map(usize::to_string).collect();
        npy(
            &format!(
                "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({},), }}",
                sizes.join(", ")
            ),
            &self.bytes,
        )
    }
}

/// An npy file of version 1 with this header.
pub(crate) fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let text = format!("{header}\n");
    file.extend((text.len() as u16).to_le_bytes());
    file.extend(text.as_bytes());
    file.extend(data);
    file
}

/// The data and the shape of an npy file, read by the rules of the format.
pub(crate) fn read_npy(path: &Path, dtype: Dtype) -> Tensor {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + length) % 64, 0);
    let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    let descr = if dtype == Dtype::F32 { "'<f4'" } else { "'<f2'" };
    assert!(header.contains(descr) && header.contains("'fortran_order': False"), "{header}");
    let sizes = header.split(['(', ')']).nth(1).unwrap();
    let shape = sizes.split(',').filter_map(|size| size.trim().parse().ok()).collect();
    Tensor { dtype, shape, bytes: bytes[10 + length..].to_vec() }
}

/// A safetensors file.
pub(crate) fn safetensors(tensors: &[(&str, &Tensor)]) -> Vec<u8> {
    let views: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, view(tensor))).collect();
    serialize(views, None).unwrap()
}

/// The same safetensors file with a header one byte longer, so that no tensor is aligned.
pub(crate) fn misaligned(file: &[u8]) -> Vec<u8> {
    let (length, rest) = file.split_first_chunk::<8>().unwrap();
    let length = u64::from_le_bytes(*length);
    let (header, data) = rest.split_at(length as usize);
    [&(length + 1).to_le_bytes()[..], header, b" ", data].concat()
}

fn view(tensor: &Tensor) -> TensorView<'_> {
    TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap()
}

/// A tensor of a safetensors file.
pub(crate) fn read_safetensors(path: &Path, name: &str) -> Tensor {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor(name).unwrap();
    Tensor { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), bytes: tensor.data().to_vec() }
}

/// The largest difference; equal infinities differ by 0.
pub(crate) fn max_difference(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    let difference = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() };
    left.iter().zip(right).map(difference).fold(0.0, |most, next| {
        assert!(!next.is_nan());
        f64::max(most, next)
    })
}

/// A sandbox with `model`, a tiny model whose 256 tokens are the words `w0` to `w255`.
pub(crate) fn model_of_words() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("model")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("tiny-llama3").join(file), sandbox.path("model").join(file)).unwrap();
    }
    let words: Vec<_> = (0..256).map(|id| format!(r#""w{id}": {id}"#)).collect();
    let tokenizer = format!(
        r#"{{"version": "1.0", "added_tokens": [], "normalizer": null, "truncation": null,
        "padding": null, "pre_tokenizer": {{"type": "Whitespace"}}, "post_processor": null,
        "decoder": null, "model": {{"type": "WordLevel", "unk_token": "w0",
        "vocab": {{{}}}}}}}"#,
        words.join(", ")
    );
    fs::write(sandbox.path("model/tokenizer.json"), tokenizer).unwrap();
    sandbox
}
