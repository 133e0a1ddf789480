//! What a run will cost, before it is queued: schema `ringattn.plan/1`.
//!
//! A [`PlanRequest`] says what is to be run where. [`predict`] prices it for every layout that is asked
//! for (closed forms, whatever the length), says which to take, what fits, and from which block on
//! transfers are hidden, and on request simulates the ranks one by one. The arithmetic is all in
//! `ringattn_plan`; here it is put together. [`measure_machine`] makes a machine of the one this
//! program runs on.

mod decode;
mod measure;
mod report;
mod simulation;

pub use decode::DecodePlanReport;
pub use measure::{Measurement, measure_machine};
pub use report::{
    ChartsReport, GridReport, LayoutReport, LongestContextReport, MachineReport, MaskReport,
    MemoryReport, ModelReport, PairBalance, PlanReport, RankPlanReport, Recommended,
    SimulationReport, SmallestBlockReport, SpikePoint, ThroughputPoint, UnpricedReport, WaitReport,
};

use crate::error::Error;
use ringattn_core::{AttentionShape, DType, Mask, Window};
use ringattn_model::{Model, ModelConfig};
use ringattn_plan::{
    Candidate, Conditions, Cost, CostError, Layout, LayoutKind, MAX_ENUMERATED_RANKS, Machine,
    Plan, Problem, Schedule, SmallestBlock, Timeline, Timing, price, recommend, simulate,
    smallest_block,
};
use std::path::Path;
use thiserror::Error;

/// Ranks whose charts are drawn at most: each needs dozens of simulations.
pub const MAX_CHART_RANKS: u32 = 64;

/// What is to be run, and on what.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// Heads and head dimension.
    pub shape: AttentionShape,
    /// The type in which K and V are kept and sent.
    pub kv_dtype: DType,
    /// The mask of the first layers, of the next ones, and so on.
    pub masks: Vec<LayerMask>,
    /// Tokens of the sequence.
    pub tokens: u64,
    /// Ranks `p`.
    pub ranks: u32,
    /// Layouts to compare, with their blocks where they are chosen.
    pub layouts: Vec<(LayoutKind, Option<u64>)>,
    /// What each rank runs on.
    pub machine: NamedOrMeasured,
    /// The model whose attention it is.
    pub model: Option<ModelOutline>,
    /// What is added to the prices.
    pub details: Details,
}

/// Layers with one mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMask {
    /// What their queries see.
    pub mask: Mask,
    /// How many there are.
    pub layers: u64,
}

/// A machine, and what it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedOrMeasured {
    /// Its name; `None` for numbers that were given.
    pub name: Option<String>,
    /// Where its numbers come from.
    pub source: String,
    /// Its numbers.
    pub machine: Machine,
}

/// What is worked out beside the prices.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// Simulates one layer under these conditions, whose machine is that of the request.
    pub simulation: Option<Conditions>,
    /// Throughput by block size and the response to a late message, under the same conditions.
    pub charts: bool,
    /// The `p x p` grid of every layout.
    pub grid: bool,
    /// A new token behind the tokens of the request, by each schedule, under the same conditions, in
    /// the recommended layout.
    pub decode: bool,
}

/// A model as far as a plan needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelOutline {
    /// Its configuration.
    pub config: ModelConfig,
    /// Bytes of its weight files; 0 where there is only a configuration.
    pub weight_file_bytes: u64,
}

/// Why there is no prediction.
#[derive(Debug, Error)]
pub enum PredictError {
    /// A plan without a price.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// A simulation that cannot be.
    #[error(transparent)]
    Simulation(#[from] ringattn_plan::SimulationError),
    /// A machine that cannot be.
    #[error(transparent)]
    Machine(#[from] ringattn_plan::MachineError),
    /// Something that is shown for fewer ranks.
    #[error("{what} for at most {limit} ranks, got {ranks}")]
    Ranks {
        /// What was asked for.
        what: &'static str,
        /// The most ranks.
        limit: u32,
        /// Ranks of the plan.
        ranks: u32,
    },
    /// No layout was asked for.
    #[error("there is no layout to price")]
    NoLayout,
}

impl ModelOutline {
    /// Reads the configuration of a model, and the size of its weight files.
    ///
    /// # Errors
    /// For a configuration that is unsound or not supported.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let config = Model::read_config(path)?;
        let alone = path.extension().is_some_and(|extension| extension == "json");
        let weight_file_bytes = if alone { 0 } else { Model::stored_bytes(path)? };
        Ok(Self { config, weight_file_bytes })
    }

    /// The masks of the model's layers: causal, within the layer's window if it has one.
    pub fn masks(&self) -> Vec<LayerMask> {
        let mut masks: Vec<LayerMask> = Vec::new();
        for window in &self.config.sliding_window {
            let within = |width: &u64| {
                // A window of 0 keys is refused when a configuration is read; widths are below 2^48.
                Mask::Window(Window { left: *width as i64 - 1, right: 0 })
            };
            let mask =
                window.as_ref().map_or(Mask::Causal, |width| Mask::Causal.and(within(width)));
            match masks.iter_mut().find(|other| other.mask == mask) {
                Some(same) => same.layers += 1,
                None => masks.push(LayerMask { mask, layers: 1 }),
            }
        }
        masks
    }
}

/// A layout with the plans and prices of all layers.
struct Priced {
    kind: LayoutKind,
    /// The plan of each group of layers.
    plans: Vec<Plan>,
    /// Its price, and how many layers the group has.
    groups: Vec<(u64, Cost)>,
    /// All layers together.
    cost: Cost,
    timing: Timing,
}

impl PlanRequest {
    fn layers(&self) -> u64 {
        self.masks.iter().map(|group| group.layers).sum()
    }

    fn plan(&self, kind: LayoutKind, block: Option<u64>, mask: &Mask) -> Result<Plan, Error> {
        let layout = Layout::new(kind, block, self.tokens, self.ranks)?;
        let (queries, keys) = (self.tokens, self.tokens);
        let (mask, kv_dtype) = (mask.clone(), self.kv_dtype);
        let problem = Problem { shape: self.shape, queries, keys, mask, kv_dtype };
        Ok(Plan::new(problem, layout, Schedule::RingPassKv)?)
    }

    fn price(&self, kind: LayoutKind, block: Option<u64>) -> Result<Priced, Error> {
        let mut plans = Vec::with_capacity(self.masks.len());
        let mut groups = Vec::with_capacity(self.masks.len());
        for group in &self.masks {
            let plan = self.plan(kind, block, &group.mask)?;
            groups.push((group.layers, price(&plan).map_err(PredictError::from)?));
            plans.push(plan);
        }
        let machine = &self.machine.machine;
        let timing = |(layers, cost): &(u64, Cost)| (*layers, Timing::new(cost, machine));
        let timings: Vec<_> = groups.iter().map(timing).collect();
        let costs: Vec<_> = groups.iter().map(|(layers, cost)| (*layers, cost)).collect();
        let cost = Cost::sum(&costs).map_err(PredictError::from)?;
        Ok(Priced { kind, plans, groups, cost, timing: Timing::sum(&timings) })
    }

    /// Every layout that has a price, and why the others have none; an error when none has.
    fn price_all(&self) -> Result<(Vec<Priced>, Vec<UnpricedReport>), Error> {
        let (mut priced, mut unpriced) = (Vec::new(), Vec::new());
        for &(kind, block) in &self.layouts {
            match self.price(kind, block) {
                Ok(one) => priced.push(one),
                Err(Error::Predict(PredictError::Cost(error @ CostError::NoClosedForm { .. })))
                    if self.layouts.len() > 1 =>
                {
                    let (layout, reason) = (kind.to_string(), error.to_string());
                    unpriced.push(UnpricedReport { layout, reason });
                }
                Err(error) => return Err(error),
            }
        }
        Ok((priced, unpriced))
    }

    /// The smallest shard that hides its transfer, for masks of which every step of balanced ranks
    /// shows the same share.
    fn smallest_block(&self) -> Option<SmallestBlock> {
        let visible = match self.masks.first()?.mask {
            Mask::Full => 1.0,
            Mask::Causal => 0.5,
            _ => return None,
        };
        Some(smallest_block(self.shape, self.kv_dtype, visible, &self.machine.machine))
    }

    fn check(&self) -> Result<(), PredictError> {
        self.machine.machine.validate()?;
        let ranks = self.ranks;
        let Details { simulation, charts, grid, decode } = &self.details;
        for (asked, what, limit) in [
            (*grid, "the grid is printed", MAX_ENUMERATED_RANKS),
            (simulation.is_some(), "runs are simulated", MAX_ENUMERATED_RANKS),
            (*charts, "charts are drawn", MAX_CHART_RANKS),
            (*decode, "decoding is simulated", MAX_ENUMERATED_RANKS),
        ] {
            if asked && ranks > limit {
                return Err(PredictError::Ranks { what, limit, ranks });
            }
        }
        Ok(())
    }

    /// The conditions of simulations, on the request's machine.
    fn conditions(&self) -> Conditions {
        let machine = self.machine.machine;
        let given = self.details.simulation.clone();
        given.map_or(Conditions::of(machine), |given| Conditions { machine, ..given })
    }
}

/// Prices what is asked for.
///
/// # Errors
/// When the parts do not fit together, a size is beyond what is priced, or a detail is asked for more
/// ranks than it is worked out for.
pub fn predict(request: &PlanRequest) -> Result<PlanReport, Error> {
    request.check()?;
    let (priced, unpriced) = request.price_all()?;
    let candidates: Vec<_> = priced
        .iter()
        .map(|p| Candidate { kind: p.kind, cost: &p.cost, timing: p.timing })
        .collect();
    let chosen = recommend(&candidates).ok_or(PredictError::NoLayout)?;
    let mut report = PlanReport::new(request, &priced, &chosen);
    report.unpriced = unpriced;
    if request.details.simulation.is_some() {
        report.simulation = Some(simulation::simulations(request, &priced)?);
    }
    if request.details.charts {
        report.charts = Some(simulation::charts(request, &priced)?);
    }
    if request.details.decode {
        let kind = priced[chosen.index].kind;
        let asked = request.layouts.iter().find(|(asked, _)| *asked == kind);
        report.decode = Some(decode::decoding(request, asked.copied().unwrap_or((kind, None)))?);
    }
    Ok(report)
}

/// The predicted timeline of one layer, the first, in the first layout of the request.
///
/// # Errors
/// As for [`predict`].
pub fn predicted_timeline(request: &PlanRequest) -> Result<Timeline, Error> {
    request.check()?;
    let (&(kind, block), group) = (
        request.layouts.first().ok_or(PredictError::NoLayout)?,
        request.masks.first().ok_or(PredictError::Cost(CostError::NoLayer))?,
    );
    let plan = request.plan(kind, block, &group.mask)?;
    Ok(simulate(&plan, &request.conditions()).map_err(PredictError::from)?)
}
