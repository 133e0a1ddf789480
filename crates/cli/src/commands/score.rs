//! `score`: log-probabilities of a document under a model.

use super::Session;
use crate::args::ScoreArgs;
use crate::console::{self, Chatter};
use crate::failure::Failure;
use crate::input::mapped::MappedFile;
use crate::input::{text, tokens};
use crate::output::{report, scores};
use crate::progress::Progress;
use crate::run_options::run_options;
use crate::summary::Summary;
use ringattn::model::Model;
use std::path::PathBuf;

pub(super) fn run(args: &ScoreArgs, session: &Session) -> Result<(), Failure> {
    let options = run_options(&args.run, &session.interrupts)?;
    let chatter = args.run.chatter();
    let document = Document::open(args)?;
    let to_stdout = args.out.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let scores_file = args.out.as_deref().filter(|_| !to_stdout);
    let mut outputs = session.outputs(vec![&args.model, &document.path]);
    let mut scores_file = scores_file.map(|path| outputs.open("--out", path)).transpose()?;
    let report_file = args.run.report.as_deref();
    let mut report_file = report_file.map(|path| outputs.open("--report", path)).transpose()?;

    let model = ringattn::open_model(&args.model, &options)?;
    session.interrupts.check()?;
    let mut ids = document.tokens(&model)?;
    // A limit beyond 2^64 tokens is none.
    ids.truncate(args.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX));
    session.interrupts.check()?;
    warn_beyond_training(&model, ids.len(), chatter);
    let progress = Progress::show(&options.meter, Some(ids.len() as u64), chatter);
    let scored = ringattn::score(&model, &ids, &options);
    drop(progress);
    let (output, run_report) = scored.map_err(|error| session.interrupts.failure(error))?;
    document.file.ensure_unchanged()?;

    if let Some(file) = &mut scores_file {
        file.write(|file| scores::write(file, &output.scores))?;
    }
    if let Some(file) = &mut report_file {
        file.write(|file| report::write(file, &run_report))?;
    }
    let mut summary = Summary::of_score(&output, &run_report);
    for (label, file) in [("scores", &scores_file), ("report", &report_file)] {
        if let Some(file) = file {
            summary.line(label, &file.target().name);
        }
    }
    let files = [scores_file, report_file].into_iter().flatten().collect();
    if !to_stdout {
        return session.commit(files, || console::result(&summary.text()));
    }
    session.commit(files, || console::stream(|stdout| scores::write(stdout, &output.scores)))?;
    chatter.text(&summary.text());
    Ok(())
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
        let file = MappedFile::open(&path)?;
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
