//! `generate`: a continuation, printed as it comes.

mod text;

use super::Session;
use crate::args::GenerateArgs;
use crate::console;
use crate::failure::{Failure, UsageError};
use crate::input::mapped::{Access, MappedFile};
use crate::input::{text as document, tokens};
use crate::output::{Staged, report, scores};
use crate::progress::Progress;
use crate::run_options::run_options;
use crate::signals::{Deferral, Interrupts};
use crate::summary::Summary;
use ringattn::model::{Flow, Listener, Model, ModelError, TokenScore, Tokenizer};
use ringattn::{GenerateInput, RunOptions, Trace};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use text::Continuation;

pub(super) fn run(args: &GenerateArgs, session: &Session) -> Result<(), Failure> {
    let options = run_options(&args.run, &session.interrupts)?;
    let chatter = args.run.chatter();
    let (sampling, stops) = (args.sampling()?, args.stops()?);
    let begun = session.together(&options, || Begun::new(args, session, &options))?;
    let Begun { model, tokenizer, prompt, end_tokens, mut files } = begun;
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let input = GenerateInput {
        prefill_chunk: args.cache.prefill_chunk.map(size),
        cache_block: args.cache.cache_block,
        cache_dtype: args.cache.cache_dtype.map(|name| name.dtype()),
        sampling,
        end_tokens,
        load_cache: args.cache.load_cache.clone(),
        save_cache: args.cache.save_cache.clone(),
        ..GenerateInput::new(prompt, size(args.new_tokens))
    };
    if !options.engine.is_root() {
        session.interrupts.defer(Deferral::Elsewhere);
    }
    let progress = Progress::show(&options.meter, Some(input.prompt.len() as u64), chatter);
    let printer = Printer::new(Continuation::new(tokenizer.as_ref(), stops), progress, session);
    let generated = ringattn::generate(&model, &input, &options, &printer);
    let printed = match &generated {
        // What failed before it printed anything prints nothing.
        Err(_) if !printer.has_begun() => Ok(()),
        _ => printer.finish(),
    };
    let generated = generated.map_err(|error| session.interrupts.failure(error))?;
    printed?;
    let Some((output, run_report)) = generated else { return Ok(()) };

    if let Some(file) = &mut files.tokens {
        file.write(|file| scores::write(file, &output.tokens))?;
    }
    if let Some(file) = &mut files.report {
        file.write(|file| report::write(file, &run_report))?;
    }
    if let (Some(file), Some(trace)) = (&mut files.trace, Trace::new(&run_report)) {
        file.write(|file| report::write_compact(file, &trace))?;
    }
    if run_report.result.beyond_trained_context {
        let trained = model.config.trained_context.unwrap_or(0);
        let text = format!("the text is longer than the {trained} tokens of the model's training");
        chatter.warning(&text);
    }
    let summary = Summary::of_generate(&run_report);
    let files = [files.tokens, files.report, files.trace].into_iter().flatten().collect();
    session.commit(files, || Ok(()))?;
    chatter.text(&summary.text());
    Ok(())
}

/// What is there before the run: inputs read, outputs opened.
struct Begun {
    model: Model,
    tokenizer: Option<Tokenizer>,
    prompt: Vec<u32>,
    end_tokens: Vec<u32>,
    files: Files,
}

/// The files that the command writes, those that were asked for.
struct Files {
    tokens: Option<Staged>,
    report: Option<Staged>,
    trace: Option<Staged>,
}

impl Begun {
    fn new(args: &GenerateArgs, session: &Session, options: &RunOptions) -> Result<Self, Failure> {
        let prompt = Prompt::open(args)?;
        let mut inputs: Vec<&Path> = vec![&args.model];
        inputs.extend(args.file.as_deref().or(args.tokens.as_deref()));
        let mut outputs = session.outputs(inputs, &options.engine);
        let files = Files {
            tokens: outputs.open_if("--out", args.out.as_deref())?,
            report: outputs.open_if("--report", args.run.report.as_deref())?,
            trace: outputs.open_if("--trace", args.run.trace.as_deref())?,
        };
        if let Some(folder) = &args.cache.save_cache {
            outputs.folder("--save-cache", folder)?;
        }
        let model = ringattn::open_model(&args.model, options)?;
        session.interrupts.check()?;
        let tokenizer = tokenizer(&model, args)?;
        let conventions = model.conventions().map_err(ringattn::Error::from)?;
        let prompt = prompt.tokens(&model, tokenizer.as_ref(), args)?;
        session.interrupts.check()?;
        let end_tokens = if args.ignores_end() { Vec::new() } else { conventions.end_tokens };
        Ok(Self { model, tokenizer, prompt, end_tokens, files })
    }
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
            return Ok(Self::Ids(tokens::read(&MappedFile::open(path, Access::Whole)?)?));
        }
        if let Some(path) = &args.file {
            return Ok(Self::Text(
                document::read(&MappedFile::open(path, Access::Whole)?)?.to_owned(),
            ));
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
    has_begun: bool,
    /// What went wrong; nothing is printed any more.
    failure: Option<Failure>,
}

impl<'a> Printer<'a> {
    fn new(text: Continuation<'a>, progress: Progress, session: &'a Session) -> Self {
        let state =
            State { text: Some(text), progress: Some(progress), has_begun: false, failure: None };
        Self { interrupts: &session.interrupts, state: Mutex::new(state) }
    }

    /// Whether a token has come.
    fn has_begun(&self) -> bool {
        self.lock().has_begun
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
        state.has_begun = true;
        if state.progress.take().is_some() {
            // From now on a signal ends the text and not the run.
            self.interrupts.defer(Deferral::Asked);
        }
        let flow = state.print(token.token).unwrap_or_else(|failure| {
            state.failure = Some(failure);
            Flow::Stop
        });
        if self.interrupts.came() { Flow::Stop } else { flow }
    }
}
