//! `attend`: attention over the tensors of one safetensors file or three npy files.

use super::Session;
use crate::args::{AttendArgs, MaskName};
use crate::console::{self, Chatter};
use crate::failure::{Failure, UsageError};
use crate::input::mapped::Access;
use crate::input::tensors::{AttentionTensor, InputFiles, Shape, TensorSet, listed};
use crate::output::tensors::OutTensors;
use crate::output::{Staged, report};
use crate::progress::Progress;
use crate::run_options::run_options;
use crate::summary::Summary;
use ringattn::core::{Documents, Mask, Window};
use ringattn::{AttendInput, Engine, Positions, RunOptions, Tensor, Trace};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) fn run(args: &AttendArgs, session: &Session) -> Result<(), Failure> {
    let options = run_options(&args.run, &session.interrupts)?;
    let chatter = args.run.chatter();
    let begun = session.together(&options, || Begun::new(args, session, &options))?;
    let Begun { files, tensors, input, outputs } = begun;
    let progress = Progress::show(&options.meter, Some(input.queries.tokens()), chatter);
    let attended = ringattn::attend(&input, &options);
    drop(progress);
    let attended = attended.map_err(|error| session.interrupts.failure(error))?;
    files.ensure_unchanged()?;
    let (Some((output, run_report)), Some(mut outputs)) = (attended, outputs) else {
        return Ok(());
    };

    let (shape, dtype) = (&tensors.q.shape[..], tensors.q.dtype);
    let out = OutTensors { output: &output, shape, dtype };
    out.check(options.non_finite)?;
    match &mut outputs.tensors {
        TensorFiles::Safetensors(file) => out.write_safetensors(file)?,
        TensorFiles::Npy { out: file, lse } => out.write_npy(file, lse)?,
    }
    if let Some(file) = &mut outputs.report {
        file.write(|file| report::write(file, &run_report))?;
    }
    if let (Some(file), Some(trace)) = (&mut outputs.trace, Trace::new(&run_report)) {
        file.write(|file| report::write_compact(file, &trace))?;
    }
    let mut summary = Summary::of_attend(&run_report);
    let files = outputs.files();
    for (label, name) in &files {
        summary.line(label, &name.target().name);
    }
    let files = files.into_iter().map(|(_, file)| file).collect();
    session.commit(files, || console::result(&summary.text()))
}

/// What is there before the run: inputs with their headers read, outputs opened.
struct Begun {
    files: InputFiles,
    tensors: TensorSet,
    input: AttendInput,
    /// `None` where another process writes them.
    outputs: Option<AttendFiles>,
}

impl Begun {
    fn new(args: &AttendArgs, session: &Session, options: &RunOptions) -> Result<Self, Failure> {
        let access = match options.engine {
            Engine::Local => Access::Whole,
            Engine::Mpi(_) => Access::Head,
        };
        let files = open(&args.inputs, access)?;
        let tensors = files.tensors()?;
        say_ignored(&tensors, args.run.chatter());
        let input = attend_input(args, &tensors, &files)?;
        let outputs = if options.engine.is_root() {
            Some(AttendFiles::open(args, session, (&files, options))?)
        } else {
            None
        };
        Ok(Self { files, tensors, input, outputs })
    }
}

fn open(inputs: &[PathBuf], access: Access) -> Result<InputFiles, Failure> {
    match inputs {
        [file] if file.extension().is_none_or(|extension| extension != "npy") => {
            Ok(InputFiles::one(file, access)?)
        }
        [q, k, v] => Ok(InputFiles::three([q, k, v], access)?),
        _ => {
            let first = inputs.first().map(|path| path.display().to_string()).unwrap_or_default();
            Err(UsageError::InputCount { count: inputs.len(), first }.into())
        }
    }
}

fn say_ignored(tensors: &TensorSet, chatter: Chatter) {
    if !tensors.ignored.is_empty() {
        let names = listed(&tensors.ignored);
        chatter.note(&format!("tensors that attention does not use are ignored: {names}"));
    }
}

fn attend_input(
    args: &AttendArgs,
    tensors: &TensorSet,
    files: &InputFiles,
) -> Result<AttendInput, Failure> {
    let TensorSet { q, k, v, .. } = tensors;
    dimensions(q)?;
    for other in [k, v] {
        if (other.shape.len(), batch(other)) != (q.shape.len(), batch(q)) {
            dimensions(other)?;
            let expected = Shape(&q.shape).to_string();
            let actual = Shape(&other.shape).to_string();
            return Err(UsageError::Batch { tensor: other.name, expected, actual }.into());
        }
    }
    if k.dtype != v.dtype && args.kv_dtype.is_none() {
        let (k, v) = (k.dtype.to_string(), v.dtype.to_string());
        return Err(UsageError::KvDType { k, v }.into());
    }
    let (queries, keys, values) = (folded(q)?, folded(k)?, folded(v)?);
    let positions = positions(tensors)?;
    let lengths = (queries.tokens(), keys.tokens());
    if matches!(files, InputFiles::Npy(_)) && lengths.0 != lengths.1 {
        return Err(UsageError::NpyLengths { queries: lengths.0, keys: lengths.1 }.into());
    }
    Ok(AttendInput {
        queries,
        keys,
        values,
        mask: mask(args)?,
        positions,
        softmax_scale: args.softmax_scale,
        kv_dtype: args.kv_dtype.map(|dtype| dtype.dtype()),
    })
}

/// The size of the batch, where there is one.
fn batch(tensor: &AttentionTensor) -> Option<u64> {
    tensor.shape.first().copied().filter(|_| tensor.shape.len() == 4)
}

/// Batch, heads, tokens and head dimension.
fn dimensions(tensor: &AttentionTensor) -> Result<[u64; 4], UsageError> {
    match *tensor.shape {
        [heads, tokens, head_dim] => Ok([1, heads, tokens, head_dim]),
        [batch, heads, tokens, head_dim] => Ok([batch, heads, tokens, head_dim]),
        _ => Err(UsageError::Dimensions {
            file: tensor.file.clone(),
            tensor: tensor.name,
            shape: Shape(&tensor.shape).to_string(),
        }),
    }
}

/// The tensor with its batch as part of its heads, which leaves the grouping of heads unchanged.
fn folded(tensor: &AttentionTensor) -> Result<Tensor, Failure> {
    let [batch, heads, tokens, head_dim] = dimensions(tensor)?;
    let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let shape = (size(batch.saturating_mul(heads)), size(tokens), size(head_dim));
    // Reading the file has already compared shape and bytes; only sizes of empty tensors are left.
    let bytes = Arc::new(tensor.bytes.clone());
    let folded = match bytes.mapped() {
        Some(_) => Tensor::of_source(bytes, tensor.dtype, shape),
        None => Tensor::outside(bytes, tensor.dtype, shape),
    };
    folded.map_err(|_| {
        UsageError::Dimensions {
            file: tensor.file.clone(),
            tensor: tensor.name,
            shape: Shape(&tensor.shape).to_string(),
        }
        .into()
    })
}

fn mask(args: &AttendArgs) -> Result<Mask, Failure> {
    let mut mask = match args.mask {
        MaskName::Full => Mask::Full,
        MaskName::Causal => Mask::Causal,
    };
    if let Some(window) = args.window {
        mask = mask.and(Mask::Window(Window { left: window.left, right: window.right }));
    }
    if let Some(cu_seqlens) = &args.cu_seqlens {
        let documents = Documents::new(&cu_seqlens.0).map_err(ringattn::Error::from)?;
        mask = mask.and(Mask::Documents(documents));
    }
    Ok(mask)
}

fn positions(tensors: &TensorSet) -> Result<Option<Positions>, Failure> {
    let file = tensors.q.file.clone();
    let (q, k) = ("q_positions", "k_positions");
    let (queries, keys) = match (&tensors.q_positions, &tensors.k_positions) {
        (None, None) => return Ok(None),
        (Some(queries), Some(keys)) => (queries, keys),
        (Some(_), None) => {
            return Err(UsageError::OnePositions { file, present: q, missing: k }.into());
        }
        (None, Some(_)) => {
            return Err(UsageError::OnePositions { file, present: k, missing: q }.into());
        }
    };
    for (tensor, found) in [(q, queries), (k, keys)] {
        if found.shape.len() != 1 {
            let shape = Shape(&found.shape).to_string();
            return Err(UsageError::PositionsShape { file, tensor, shape }.into());
        }
    }
    let (queries, keys) = (queries.positions.clone(), keys.positions.clone());
    Ok(Some(Positions { queries, keys }))
}

/// The files that the command writes.
struct AttendFiles {
    tensors: TensorFiles,
    report: Option<Staged>,
    trace: Option<Staged>,
}

enum TensorFiles {
    Safetensors(Staged),
    Npy { out: Staged, lse: Staged },
}

impl AttendFiles {
    fn open(
        args: &AttendArgs,
        session: &Session,
        (files, options): (&InputFiles, &RunOptions),
    ) -> Result<Self, Failure> {
        let inputs = args.inputs.iter().map(PathBuf::as_path).collect();
        let mut outputs = session.outputs(inputs, &options.engine);
        let tensors = match files {
            InputFiles::Safetensors(_) => {
                TensorFiles::Safetensors(outputs.open("--out", &args.out)?)
            }
            InputFiles::Npy(_) => {
                outputs.folder("--out", &args.out)?;
                let out = outputs.open("--out", &args.out.join("out.npy"))?;
                let lse = outputs.open("--out", &args.out.join("lse.npy"))?;
                TensorFiles::Npy { out, lse }
            }
        };
        let report = outputs.open_if("--report", args.run.report.as_deref())?;
        let trace = outputs.open_if("--trace", args.run.trace.as_deref())?;
        Ok(Self { tensors, report, trace })
    }

    /// All files with what they are called in the summary.
    fn files(self) -> Vec<(&'static str, Staged)> {
        let mut files = match self.tensors {
            TensorFiles::Safetensors(file) => vec![("out, lse", file)],
            TensorFiles::Npy { out, lse } => vec![("out", out), ("lse", lse)],
        };
        files.extend(self.report.map(|file| ("report", file)));
        files.extend(self.trace.map(|file| ("trace", file)));
        files
    }
}
