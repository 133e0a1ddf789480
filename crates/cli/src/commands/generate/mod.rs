//! `generate`: a continuation, printed as it comes.

mod text;

use super::Session;
use crate::args::GenerateArgs;
use crate::console;
use crate::failure::{Failure, UsageError};
use crate::input::mapped::MappedFile;
use crate::input::{text as document, tokens};
use crate::output::{report, scores};
use crate::progress::Progress;
use crate::run_options::run_options;
use crate::signals::Interrupts;
use crate::summary::Summary;
use ringattn::GenerateInput;
use ringattn::model::{Flow, Listener, Model, ModelError, TokenScore, Tokenizer};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use text::Continuation;

pub(super) fn run(args: &GenerateArgs, session: &Session) -> Result<(), Failure> {
    let options = run_options(&args.run, &session.interrupts)?;
    let chatter = args.run.chatter();
    let (sampling, stops) = (args.sampling()?, args.stops()?);
    let prompt = Prompt::open(args)?;
    let mut inputs: Vec<&Path> = vec![&args.model];
    inputs.extend(args.file.as_deref().or(args.tokens.as_deref()));
    let mut outputs = session.outputs(inputs);
    let mut tokens_file = args.out.as_deref().map(|p| outputs.open("--out", p)).transpose()?;
    let report_file = args.run.report.as_deref();
    let mut report_file = report_file.map(|path| outputs.open("--report", path)).transpose()?;

    let model = ringattn::open_model(&args.model, &options)?;
    session.interrupts.check()?;
    let tokenizer = tokenizer(&model, args)?;
    let conventions = model.conventions().map_err(ringattn::Error::from)?;
    let prompt = prompt.tokens(&model, tokenizer.as_ref(), args)?;
    session.interrupts.check()?;
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let input = GenerateInput {
        prefill_chunk: args.cache.prefill_chunk.map(size),
        cache_block: args.cache.cache_block,
        cache_dtype: args.cache.cache_dtype.map(|name| name.dtype()),
        sampling,
        end_tokens: if args.ignores_end() { Vec::new() } else { conventions.end_tokens },
        load_cache: args.cache.load_cache.clone(),
        save_cache: args.cache.save_cache.clone(),
        ..GenerateInput::new(prompt, size(args.new_tokens))
    };
    let progress = Progress::show(&options.meter, Some(input.prompt.len() as u64), chatter);
    let printer = Printer::new(Continuation::new(tokenizer.as_ref(), stops), progress, session);
    let generated = ringattn::generate(&model, &input, &options, &printer);
    let printed = printer.finish();
    let (output, run_report) = generated.map_err(|error| session.interrupts.failure(error))?;
    printed?;

    if let Some(file) = &mut tokens_file {
        file.write(|file| scores::write(file, &output.tokens))?;
    }
    if let Some(file) = &mut report_file {
        file.write(|file| report::write(file, &run_report))?;
    }
    if run_report.result.beyond_trained_context {
        let trained = model.config.trained_context.unwrap_or(0);
        let text = format!("the text is longer than the {trained} tokens of the model's training");
        chatter.warning(&text);
    }
    let summary = Summary::of_generate(&run_report);
    let files = [tokens_file, report_file].into_iter().flatten().collect();
    session.commit(files, || Ok(()))?;
    chatter.text(&summary.text());
    Ok(())
}

/// The model's tokenizer. Ids can be continued without one, if they are written to a file.
fn tokenizer(model: &Model, args: &GenerateArgs) -> Result<Option<Tokenizer>, Failure> {
    let needed = args.file.is_some() || args.prompt.is_some() || args.out.is_none();
    match model.tokenizer() {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(ModelError::MissingFile { .. })
            if !needed || args.new_tokens == 0 && args.tokens.is_some() =>
        {
            Ok(None)
        }
        Err(error) => Err(ringattn::Error::from(error).into()),
    }
}

/// What is to be continued.
enum Prompt {
    Nothing,
    Ids(Vec<u32>),
    Text(String),
}

impl Prompt {
    fn open(args: &GenerateArgs) -> Result<Self, Failure> {
        if let Some(path) = &args.tokens {
            return Ok(Self::Ids(tokens::read(&MappedFile::open(path)?)?));
        }
        if let Some(path) = &args.file {
            return Ok(Self::Text(document::read(&MappedFile::open(path)?)?.to_owned()));
        }
        match &args.prompt {
            Some(text) => Ok(Self::Text(text.clone())),
            None if args.chat => Err(UsageError::NoQuestion.into()),
            None => Ok(Self::Nothing),
        }
    }

    fn tokens(
        self,
        model: &Model,
        tokenizer: Option<&Tokenizer>,
        args: &GenerateArgs,
    ) -> Result<Vec<u32>, Failure> {
        let (text, tokenizer) = match (self, tokenizer) {
            (Self::Ids(ids), _) => return Ok(ids),
            (Self::Text(text), Some(tokenizer)) => (text, tokenizer),
            _ => return Ok(Vec::new()),
        };
        let encoded = if args.chat {
            let chat = model.conventions().map_err(ringattn::Error::from)?.chat;
            let chat = chat.ok_or_else(|| UsageError::NoChatTemplate {
                model: args.model.display().to_string(),
            })?;
            chat.question(&text).and_then(|text| tokenizer.encode_written(&text))
        } else if args.cache.load_cache.is_some() {
            // Behind other tokens, not at the start of a document.
            tokenizer.encode_written(&text)
        } else {
            tokenizer.encode(&text)
        };
        Ok(encoded.map_err(ringattn::Error::from)?)
    }
}

/// Prints the new text as it comes.
struct Printer<'a> {
    interrupts: &'a Interrupts,
    state: Mutex<State<'a>>,
}

struct State<'a> {
    text: Option<Continuation<'a>>,
    /// Until the first token.
    progress: Option<Progress>,
    /// What went wrong; nothing is printed any more.
    failure: Option<Failure>,
}

impl<'a> Printer<'a> {
    fn new(text: Continuation<'a>, progress: Progress, session: &'a Session) -> Self {
        let state = State { text: Some(text), progress: Some(progress), failure: None };
        Self { interrupts: &session.interrupts, state: Mutex::new(state) }
    }

    /// Prints what is left, and the final newline.
    fn finish(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        state.progress = None;
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let rest = state.text.take().map_or(Ok(String::new()), Continuation::finish);
        let mut rest = rest.map_err(ringattn::Error::from)?;
        rest.push('\n');
        Ok(console::result(&rest)?)
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State<'_> {
    /// Prints what a token adds; whether the text goes on.
    fn print(&mut self, token: u32) -> Result<Flow, Failure> {
        let Some(text) = &mut self.text else { return Ok(Flow::Stop) };
        let added = text.push(token).map_err(ringattn::Error::from)?;
        let stopped = text.has_stopped();
        if !added.is_empty() && console::piece(&added)? == console::Reader::Gone {
            return Ok(Flow::Stop);
        }
        Ok(if stopped { Flow::Stop } else { Flow::Continue })
    }
}

impl Listener for Printer<'_> {
    fn token(&self, token: TokenScore) -> Flow {
        let mut state = self.lock();
        if state.progress.take().is_some() {
            // From now on a signal ends the text and not the run.
            self.interrupts.defer();
        }
        let flow = state.print(token.token).unwrap_or_else(|failure| {
            state.failure = Some(failure);
            Flow::Stop
        });
        if self.interrupts.came() { Flow::Stop } else { flow }
    }
}
