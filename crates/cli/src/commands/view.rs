//! `view`: a plan or a run as a page.

use super::Session;
use crate::args::ViewArgs;
use crate::console;
use crate::failure::Failure;
use crate::input::InputError;
use crate::input::mapped::{Access, MappedFile};
use crate::serve::Server;
use ringattn::Engine;
use ringattn::view::{MAX_FILE_BYTES, Scene, ViewError, page};
use std::path::Path;

pub(super) fn run(args: &ViewArgs, session: &Session) -> Result<(), Failure> {
    let to_stdout = args.out.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let inputs = args.input.as_deref().into_iter().collect();
    let file = args.out.as_deref().filter(|_| !to_stdout);
    let mut file = session.outputs(inputs, &Engine::Local).open_if("--out", file)?;
    let page = read(args.input.as_deref())?;
    session.interrupts.check()?;

    if let Some(file) = &mut file {
        file.write(|file| file.write_all(page.as_bytes()))?;
    }
    let name = file.as_ref().map(|file| format!("page        {}\n", file.target().name));
    session.commit(file.into_iter().collect(), || match (to_stdout, &name) {
        (true, _) => console::result(&page),
        (false, Some(name)) => console::result(name),
        (false, None) => Ok(()),
    })?;
    if !args.serve {
        return Ok(());
    }
    let server = Server::bind(args.port.unwrap_or(0))?;
    let address = format!("{}\n", server.url());
    if to_stdout {
        console::stderr_line(address.trim_end());
    } else {
        console::result(&address)?;
    }
    server.run(page, || session.interrupts.check())
}

/// The page of the file, or the teaching default.
fn read(input: Option<&Path>) -> Result<String, Failure> {
    let Some(path) = input else {
        return drawn("the teaching default", Scene::teaching());
    };
    let file = MappedFile::open(path, Access::Whole)?;
    let (limit, actual) = (MAX_FILE_BYTES, file.bytes().len() as u64);
    if actual > limit {
        return Err(InputError::TooLong { file: file.name(), limit, actual }.into());
    }
    let page = drawn(&file.name(), Scene::from_json(file.bytes()))?;
    file.ensure_unchanged()?;
    Ok(page)
}

fn drawn(file: &str, scene: Result<Scene, ViewError>) -> Result<String, Failure> {
    scene
        .and_then(|scene| page(&scene))
        .map_err(|source| InputError::View { file: file.to_owned(), source }.into())
}
