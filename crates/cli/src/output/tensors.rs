//! `out` and `lse` as safetensors or npy, streamed: no second copy of the result exists.

use super::{OutputError, Staged};
use ringattn::AttendOutput;
use ringattn::core::{DType, PlainElement, bf16, f16};
use ringattn::engine::NonFinite;
use serde_json::json;
use std::io::{self, Write};

/// Elements that are converted at a time.
const CHUNK: usize = 16 << 10;

/// The result with the shape and type that it is written in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutTensors<'a> {
    pub(crate) output: &'a AttendOutput,
    /// That of q.
    pub(crate) shape: &'a [u64],
    /// That of q.
    pub(crate) dtype: DType,
}

impl OutTensors<'_> {
    /// Refuses a finite result that the type cannot hold.
    pub(crate) fn check(&self, non_finite: NonFinite) -> Result<(), OutputError> {
        let infinite = |value: f32| match self.dtype {
            DType::F32 => false,
            DType::Bf16 => !bf16::from_f32(value).is_finite(),
            DType::F16 => !f16::from_f32(value).is_finite(),
        };
        let narrow = |&value: &f32| value.is_finite() && infinite(value);
        match self.output.out.iter().position(narrow) {
            Some(index) if non_finite == NonFinite::Refuse => {
                let (value, dtype) = (self.output.out[index], self.dtype.to_string());
                Err(OutputError::Narrow { index, value, dtype })
            }
            _ => Ok(()),
        }
    }

    /// Writes one file with `out` and `lse`.
    pub(crate) fn write_safetensors(&self, file: &mut Staged) -> Result<(), OutputError> {
        let name = match self.dtype {
            DType::F32 => "F32",
            DType::Bf16 => "BF16",
            DType::F16 => "F16",
        };
        let lse_end = self.output.lse.len() as u64 * DType::F32.size();
        let out_end = lse_end + self.output.out.len() as u64 * self.dtype.size();
        // lse first: then both are aligned to their element size, in whatever type `out` is.
        let header = json!({
            "lse": { "dtype": "F32", "shape": self.lse_shape(), "data_offsets": [0, lse_end] },
            "out": { "dtype": name, "shape": self.shape, "data_offsets": [lse_end, out_end] },
        });
        let mut header = header.to_string();
        header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
        file.write(|file| {
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(header.as_bytes())?;
            write_as(file, &self.output.lse, DType::F32)?;
            write_as(file, &self.output.out, self.dtype)
        })
    }

    /// Writes `out` and `lse` to a file each.
    pub(crate) fn write_npy(&self, out: &mut Staged, lse: &mut Staged) -> Result<(), OutputError> {
        out.write(|file| {
            write_npy_header(file, self.dtype, self.shape)?;
            write_as(file, &self.output.out, self.dtype)
        })?;
        lse.write(|file| {
            write_npy_header(file, DType::F32, self.lse_shape())?;
            write_as(file, &self.output.lse, DType::F32)
        })
    }

    fn lse_shape(&self) -> &[u64] {
        self.shape.split_last().map_or(&[], |(_, shape)| shape)
    }
}

/// Version 1.0, padded so that the data begins at a multiple of 64.
fn write_npy_header(file: &mut dyn Write, dtype: DType, shape: &[u64]) -> io::Result<()> {
    let descr = match dtype {
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        // npy input is never bf16, and `out` has the type of q.
        DType::Bf16 => return Err(io::Error::other("npy has no bfloat16")),
    };
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let total = (10 + dict.len() + 1).next_multiple_of(64);
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&((total - 10) as u16).to_le_bytes())?;
    writeln!(file, "{dict:<width$}", width = total - 11)
}

fn write_as(file: &mut dyn Write, values: &[f32], dtype: DType) -> io::Result<()> {
    match dtype {
        DType::F32 => write_converted(file, values, f32::to_le_bytes),
        DType::Bf16 => write_converted(file, values, |value| {
            <bf16 as PlainElement>::from_f32(value).to_le_bytes()
        }),
        DType::F16 => write_converted(file, values, |value| {
            <f16 as PlainElement>::from_f32(value).to_le_bytes()
        }),
    }
}

fn write_converted<const N: usize>(
    file: &mut dyn Write,
    values: &[f32],
    bytes: impl Fn(f32) -> [u8; N],
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(CHUNK * N);
    for chunk in values.chunks(CHUNK) {
        buffer.clear();
        buffer.extend(chunk.iter().flat_map(|&value| bytes(value)));
        file.write_all(&buffer)?;
    }
    Ok(())
}
