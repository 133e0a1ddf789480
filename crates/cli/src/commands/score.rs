//! `score`: log-probabilities of a document under a model.

use super::Session;
use crate::args::ScoreArgs;
use crate::console::{self, Chatter};
use crate::failure::Failure;
use crate::input::mapped::{Access, MappedFile};
use crate::input::{text, tokens};
use crate::output::{Staged, report, scores};
use crate::progress::Progress;
use crate::run_options::run_options;
use crate::summary::Summary;
use ringattn::model::Model;
use ringattn::{RunOptions, Trace};
use std::path::PathBuf;

pub(super) fn run(args: &ScoreArgs, session: &Session) -> Result<(), Failure> {
    let options = run_options(&args.run, &session.interrupts)?;
    let chatter = args.run.chatter();
    let begun = session.together(&options, || Begun::new(args, session, &options))?;
    let Begun { document, model, ids, mut scores_file, mut report_file, mut trace_file } = begun;
    warn_beyond_training(&model, ids.len(), chatter);
    let progress = Progress::show(&options.meter, Some(ids.len() as u64), chatter);
    let scored = ringattn::score(&model, &ids, &options);
    drop(progress);
    let scored = scored.map_err(|error| session.interrupts.failure(error))?;
    document.file.ensure_unchanged()?;
    let Some((output, run_report)) = scored else { return Ok(()) };

    if let Some(file) = &mut scores_file {
        file.write(|file| scores::write(file, &output.scores))?;
    }
    if let Some(file) = &mut report_file {
        file.write(|file| report::write(file, &run_report))?;
    }
    if let (Some(file), Some(trace)) = (&mut trace_file, Trace::new(&run_report)) {
        file.write(|file| report::write_compact(file, &trace))?;
    }
    let mut summary = Summary::of_score(&output, &run_report);
    let written = [("scores", &scores_file), ("report", &report_file), ("trace", &trace_file)];
    for (label, file) in written {
        if let Some(file) = file {
            summary.line(label, &file.target().name);
        }
    }
    let files = [scores_file, report_file, trace_file].into_iter().flatten().collect();
    if !to_stdout(args) {
        return session.commit(files, || console::result(&summary.text()));
    }
    session.commit(files, || console::stream(|stdout| scores::write(stdout, &output.scores)))?;
    chatter.text(&summary.text());
    Ok(())
}

fn to_stdout(args: &ScoreArgs) -> bool {
    args.out.as_deref().is_some_and(|path| path.as_os_str() == "-")
}

/// What is there before the run: inputs read, outputs opened.
struct Begun {
    document: Document,
    model: Model,
    ids: Vec<u32>,
    scores_file: Option<Staged>,
    report_file: Option<Staged>,
    trace_file: Option<Staged>,
}

impl Begun {
    fn new(args: &ScoreArgs, session: &Session, options: &RunOptions) -> Result<Self, Failure> {
        let document = Document::open(args)?;
        let scores_file = args.out.as_deref().filter(|_| !to_stdout(args));
        let mut outputs = session.outputs(vec![&args.model, &document.path], &options.engine);
        let scores_file = outputs.open_if("--out", scores_file)?;
        let report_file = outputs.open_if("--report", args.run.report.as_deref())?;
        let trace_file = outputs.open_if("--trace", args.run.trace.as_deref())?;
        let model = ringattn::open_model(&args.model, options)?;
        session.interrupts.check()?;
        let mut ids = document.tokens(&model)?;
        // A limit beyond 2^64 tokens is none.
        let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
        ids.truncate(limit.unwrap_or(usize::MAX));
        session.interrupts.check()?;
        Ok(Self { document, model, ids, scores_file, report_file, trace_file })
    }
}

/// Says so when a document of `len` tokens is longer than any in the model's training.
fn warn_beyond_training(model: &Model, len: usize, chatter: Chatter) {
    if let Some(trained) = model.config.trained_context
        && len as u64 > trained
    {
        chatter.warning(&format!(
            "{len} tokens are more than the {trained} that the model was trained on; scores beyond \
             them mean little"
        ));
    }
}

/// The file of the document, and the ids when it holds them.
struct Document {
    file: MappedFile,
    path: PathBuf,
    ids: Option<Vec<u32>>,
}

impl Document {
    fn open(args: &ScoreArgs) -> Result<Self, Failure> {
        // Exactly one of the two is given; clap sees to it.
        let path = args.tokens.as_ref().or(args.file.as_ref()).cloned().unwrap_or_default();
        let file = MappedFile::open(&path, Access::Whole)?;
        let ids = args.tokens.as_ref().map(|_| tokens::read(&file)).transpose()?;
        if ids.is_none() {
            text::read(&file)?;
        }
        Ok(Self { file, path, ids })
    }

    /// The ids, by the model's tokenizer when the document is a text.
    fn tokens(&self, model: &Model) -> Result<Vec<u32>, Failure> {
        if let Some(ids) = &self.ids {
            return Ok(ids.clone());
        }
        let tokenizer = model.tokenizer().map_err(ringattn::Error::from)?;
        Ok(tokenizer.encode(text::read(&self.file)?).map_err(ringattn::Error::from)?)
    }
}
