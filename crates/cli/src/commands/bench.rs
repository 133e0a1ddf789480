//! `bench`: how fast this machine attends, beside what it could do at best.

use super::Session;
use crate::args::BenchArgs;
use crate::console;
use crate::failure::Failure;
use crate::figures::table;
use crate::output::report;
use crate::progress::Progress;
use crate::run_options::watched;
use ringattn::bench::{BenchOptions, bench};

/// The revision of the sources, as the build script found it.
const COMMIT: &str = env!("RINGATTN_COMMIT");

pub(super) fn run(args: &BenchArgs, session: &Session) -> Result<(), Failure> {
    let mut run = watched(args.ranks, &session.interrupts);
    run.threads = args.threads;
    run.isa = args.isa.map_or(run.isa, |name| name.isa());
    let to_stdout = args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let file = args.json.as_deref().filter(|_| !to_stdout);
    let mut file = session.outputs(Vec::new(), &run.engine).open_if("--json", file)?;

    let (filter, commit) = (args.filter.clone(), COMMIT.to_owned());
    let options = BenchOptions { size: args.size(), filter, commit };
    let progress = Progress::show(&run.meter, None, args.chatter());
    let measured = bench(&options, &run);
    drop(progress);
    let figures = measured.map_err(|error| session.interrupts.failure(error))?;

    if let Some(file) = &mut file {
        file.write(|file| report::write(file, &figures))?;
    }
    let files = file.into_iter().collect();
    if !to_stdout {
        return session.commit(files, || console::result(&table(&figures)));
    }
    session.commit(files, || console::stream(|stdout| report::write(stdout, &figures)))?;
    args.chatter().text(&table(&figures));
    Ok(())
}
