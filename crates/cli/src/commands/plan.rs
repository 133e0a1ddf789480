//! `plan`: what a run would cost.

use super::Session;
use crate::args::{ConditionArgs, MachineArgs, MaskName, PlanArgs};
use crate::console;
use crate::failure::Failure;
use crate::output::report;
use crate::prices::text;
use crate::run_options::watched;
use ringattn::Engine;
use ringattn::core::{AttentionShape, Mask, Window};
use ringattn::plan::{Conditions, LayoutKind, Machine, NamedMachine};
use ringattn::predict::{
    Details, LayerMask, Measurement, ModelOutline, NamedOrMeasured, PlanRequest, measure_machine,
    predict,
};

/// The machine that is taken when none is named.
const DEFAULT_MACHINE: &str = "h100-nvlink";

pub(super) fn run(args: &PlanArgs, session: &Session) -> Result<(), Failure> {
    let inputs = args.model.iter().map(|path| path.as_path()).collect();
    let mut outputs = session.outputs(inputs, &Engine::Local);
    let mut file = args.out.as_deref().map(|path| outputs.open("--out", path)).transpose()?;
    let request = request(args, session)?;
    let predicted = predict(&request)?;
    if let Some(file) = &mut file {
        file.write(|file| report::write(file, &predicted))?;
    }
    let files = file.into_iter().collect();
    if args.json {
        return session
            .commit(files, || console::stream(|stdout| report::write(stdout, &predicted)));
    }
    session.commit(files, || console::result(&text(&predicted)))
}

fn request(args: &PlanArgs, session: &Session) -> Result<PlanRequest, Failure> {
    let model = args.model.as_deref().map(ModelOutline::read).transpose()?;
    let (shape, masks) = match &model {
        Some(model) => (model.config.attention, model.masks()),
        None => {
            (shape(args)?, vec![LayerMask { mask: mask(args), layers: args.layers.unwrap_or(1) }])
        }
    };
    let layouts = match args.layout {
        Some(name) => vec![(name.kind(), args.block)],
        None => [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag]
            .map(|kind| (kind, None))
            .to_vec(),
    };
    let kv_dtype = args.kv_dtype.dtype();
    let first = masks.first().map_or(Mask::Full, |group| group.mask.clone());
    let measurement = Measurement::new((shape, kv_dtype), &first, args.tokens, args.ranks);
    let machine = machine(args, &measurement, session)?;
    let details = Details {
        simulation: conditions(&args.conditions, machine.machine),
        charts: args.conditions.charts,
        grid: args.grid,
        decode: args.decode,
    };
    let (tokens, ranks) = (args.tokens, args.ranks);
    Ok(PlanRequest { shape, kv_dtype, masks, tokens, ranks, layouts, machine, model, details })
}

fn shape(args: &PlanArgs) -> Result<AttentionShape, Failure> {
    // Both are there unless a model is; clap sees to it.
    let (heads, dimension) = (args.q_heads.unwrap_or(0), args.head_dim.unwrap_or(0));
    let key_heads = args.kv_heads.unwrap_or(heads);
    Ok(AttentionShape::new(heads, key_heads, dimension).map_err(ringattn::Error::from)?)
}

fn mask(args: &PlanArgs) -> Mask {
    let mask = match args.mask {
        Some(MaskName::Full) => Mask::Full,
        Some(MaskName::Causal) | None => Mask::Causal,
    };
    match args.window {
        Some(window) => mask.and(Mask::Window(Window { left: window.left, right: window.right })),
        None => mask,
    }
}

/// The named, measured or default machine with the numbers that are given instead of its own.
fn machine(
    args: &PlanArgs,
    measurement: &Measurement,
    session: &Session,
) -> Result<NamedOrMeasured, Failure> {
    let MachineArgs { machine, measure, threads, flops, bandwidth, latency, memory } =
        &args.machine;
    let mut found = if *measure {
        args.chatter().note("measuring this machine");
        let mut run = watched(args.ranks, &session.interrupts);
        run.threads = *threads;
        let measured = measure_machine(measurement, &run);
        measured.map_err(|error| session.interrupts.failure(error))?
    } else {
        let named = machine.or_else(|| NamedMachine::find(DEFAULT_MACHINE));
        // The default has an entry, which a test keeps.
        let named = named.unwrap_or(&ringattn::plan::MACHINES[0]);
        let (name, source) = (Some(named.name.to_owned()), named.source.to_owned());
        NamedOrMeasured { name, source, machine: named.machine }
    };
    let base = found.machine;
    found.machine = Machine {
        flops: flops.unwrap_or(base.flops),
        bandwidth: bandwidth.unwrap_or(base.bandwidth),
        latency: latency.unwrap_or(base.latency),
        memory: memory.unwrap_or(base.memory),
    };
    let given = [flops.is_some(), bandwidth.is_some(), latency.is_some(), memory.is_some()];
    let names = ["--flops", "--bandwidth", "--latency", "--memory"];
    let given: Vec<_> =
        names.into_iter().zip(given).filter_map(|(name, given)| given.then_some(name)).collect();
    if given.len() == names.len() {
        (found.name, found.source) = (None, "given on the command line".to_owned());
    } else if !given.is_empty() {
        found.source = format!("{}; {} as given", found.source, given.join(", "));
    }
    Ok(found)
}

fn conditions(args: &ConditionArgs, machine: Machine) -> Option<Conditions> {
    let asked = args.is_asked_for();
    asked.then(|| Conditions {
        slow_ranks: args.slow_rank.clone(),
        slow_links: args.slow_link.clone(),
        jitter: args.jitter.unwrap_or(0.0),
        seed: args.seed.unwrap_or(0),
        ..Conditions::of(machine)
    })
}
