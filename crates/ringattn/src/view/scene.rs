//! Everything that the page shows, as data: the page draws it and moves an index.

use super::chart::Chart;
use super::error::ViewError;
use super::headline::{Headline, Subject};
use super::measured::{Measured, ReportFile};
use super::pace::{Effort, MachineEntry, Pace};
use super::quantity::of;
use super::reduction::{Reduction, reduction};
use super::tiles::{self, TileLoop};
use super::trace::TraceFile;
use super::walk::Walk;
use super::work::WorkGrid;
use super::{MAX_TEACHING_RANKS, TEACHING_RANKS};
use ringattn_core::{AttentionShape, DType, Mask};
use ringattn_plan::LayoutKind;
use serde::{Deserialize, Serialize};

/// The layouts that are shown side by side.
const LAYOUTS: [LayoutKind; 3] = [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];
/// Tokens of a rank in the teaching mode, and in the work grid.
const SMALL_SHARD: u64 = 4;

/// All data of one page.
#[derive(Clone, Debug, Serialize)]
pub struct Scene {
    /// `ringattn.scene/1`.
    schema: &'static str,
    origin: Origin,
    variants: Vec<Variant>,
    /// Index of the variant that is shown first.
    first: usize,
    reductions: Vec<Reduction>,
    tile_loop: TileLoop,
    measured: Option<Measured>,
}

/// Where the data comes from.
#[derive(Clone, Debug, Serialize)]
struct Origin {
    /// `teaching`, `plan`, `report` or `trace`.
    kind: &'static str,
    /// What is shown, for the page's head.
    title: String,
    /// The problem in a line.
    problem: String,
    /// What has to be known about the pictures.
    notes: Vec<String>,
}

/// One plan among those that the page can switch to.
#[derive(Clone, Debug, Serialize)]
struct Variant {
    ranks: u32,
    /// The layout's name.
    layout: String,
    /// The layout in full, with its block.
    layout_text: String,
    mask: String,
    walk: Walk,
    grid: WorkGrid,
    /// For each rank and step the number of the pattern in the tile loop.
    tiles: Vec<Vec<Option<usize>>>,
    predicted: Option<Chart>,
}

/// What tells the three kinds of file apart.
#[derive(Debug, Deserialize)]
struct Kind {
    #[serde(default)]
    schema: Option<String>,
    #[serde(rename = "otherData", default)]
    other: Option<OtherData>,
}

#[derive(Debug, Deserialize)]
struct OtherData {
    #[serde(default)]
    schema: Option<String>,
}

impl Scene {
    /// The teaching default: every ring from 2 to 8 ranks, in every layout, with and without a causal
    /// mask, 4 tokens a rank.
    ///
    /// # Errors
    /// When memory is lacking.
    pub fn teaching() -> Result<Self, ViewError> {
        let mut builder = Builder::new(Some(Pace::teaching()));
        for mask in [Mask::Causal, Mask::Full] {
            for ranks in TEACHING_RANKS {
                let tokens = SMALL_SHARD * u64::from(ranks);
                let shape = AttentionShape::new(32, 8, 128)?;
                let mask = mask.clone();
                let subject = Subject { ranks, tokens, shape, mask, kv_dtype: DType::Bf16 };
                for kind in LAYOUTS {
                    builder.add(&subject, kind, None)?;
                }
            }
        }
        // The plain ring: what a causal mask takes away from it comes second.
        let plain = |v: &Variant| v.ranks == 4 && v.layout == "contiguous" && v.mask == "full";
        let first = builder.variants.iter().position(plain).unwrap_or(0);
        let origin = Origin {
            kind: "teaching",
            title: "Ring attention, step by step".to_owned(),
            problem:
                "A sequence of 4 tokens per device, with the heads of Llama-3-8B (32 query heads \
                      over 8 key heads of dimension 128), one layer, K and V in bf16"
                    .to_owned(),
            notes: Vec::new(),
        };
        builder.finish(origin, first, None)
    }

    /// The scene of a plan, a report or a trace.
    ///
    /// # Errors
    /// When the bytes are none of these, or hold what cannot be or cannot be drawn.
    pub fn from_json(json: &[u8]) -> Result<Self, ViewError> {
        let kind: Kind = parse("a JSON object", json)?;
        let schema = kind.schema.or(kind.other.and_then(|other| other.schema));
        match schema.as_deref() {
            Some("ringattn.plan/1") => Self::of_plan(&parse("a plan", json)?),
            Some("ringattn.report/1") => Self::of_report(&parse("a report", json)?),
            Some("ringattn.trace/1") => Self::of_trace(&parse("a trace", json)?),
            other => Err(ViewError::Schema {
                actual: other.map_or("no schema".to_owned(), super::error::shortened),
            }),
        }
    }

    fn of_plan(plan: &PlanFile) -> Result<Self, ViewError> {
        let pace = plan.machine.as_ref().map(Pace::of_plan);
        Self::of_headline(&plan.headline, ("plan", "A plan"), Run { pace, measured: None })
    }

    fn of_report(report: &ReportFile) -> Result<Self, ViewError> {
        // The headline first: its limits guard the rest.
        report.headline.subject()?;
        let measured = Some(Measured::of_report(report)?);
        let pace = Pace::of_run(&report.effort());
        let title = format!("A run of {}", super::error::shortened(&report.command));
        Self::of_headline(&report.headline, ("report", &title), Run { pace, measured })
    }

    fn of_trace(trace: &TraceFile) -> Result<Self, ViewError> {
        trace.headline.subject()?;
        let layout = trace.headline.layout.clone();
        let timeline = trace.timeline()?;
        let pace = Pace::of_run(&Effort::of_timeline(&timeline));
        let measured = Some(Measured::of_trace(layout, &timeline));
        let head = ("trace", "A measured run");
        Self::of_headline(&trace.headline, head, Run { pace, measured })
    }

    fn of_headline(
        headline: &Headline,
        (kind, title): (&'static str, &str),
        run: Run,
    ) -> Result<Self, ViewError> {
        let subject = headline.subject()?;
        let (own, block) = headline.layout()?;
        let mut builder = Builder::new(run.pace);
        for layout in LAYOUTS {
            builder.add(&subject, layout, block.filter(|_| layout == own))?;
        }
        let layers = headline.layers.unwrap_or(1).max(1);
        let problem = format!(
            "{} over {}, {} query heads over {} key heads of dimension {}, K and V in {}, {}; counts \
             are those of one",
            of(subject.tokens, "token"),
            of(subject.ranks.into(), "rank"),
            headline.q_heads,
            headline.kv_heads,
            headline.head_dim,
            headline.kv_dtype,
            of(layers, "layer"),
        );
        let mut notes = Vec::new();
        let small = small_shard(subject.ranks);
        if subject.tokens != small * u64::from(subject.ranks) {
            notes.push(format!(
                "The work grid is drawn for {} per rank, with windows in proportion.",
                of(small, "token"),
            ));
        }
        let first = LAYOUTS.iter().position(|&layout| layout == own).unwrap_or(0);
        let origin = Origin {
            kind,
            title: format!("{title}: {own} over {}", of(subject.ranks.into(), "rank")),
            problem,
            notes,
        };
        builder.finish(origin, first, run.measured)
    }
}

/// What a file brings beside the plan.
struct Run {
    pace: Option<Pace>,
    measured: Option<Measured>,
}

/// A plan's file, as far as it is drawn.
#[derive(Debug, Deserialize)]
struct PlanFile {
    #[serde(flatten)]
    headline: Headline,
    machine: Option<MachineEntry>,
}

/// Tokens of a rank in the work grid: few, so that they can be counted.
fn small_shard(ranks: u32) -> u64 {
    if ranks <= MAX_TEACHING_RANKS { SMALL_SHARD } else { SMALL_SHARD / 2 }
}

/// A scene in the making.
struct Builder {
    variants: Vec<Variant>,
    tile_loop: TileLoop,
    pace: Option<Pace>,
}

impl Builder {
    fn new(pace: Option<Pace>) -> Self {
        Self { variants: Vec::new(), tile_loop: TileLoop::new(), pace }
    }

    fn add(
        &mut self,
        subject: &Subject,
        kind: LayoutKind,
        block: Option<u64>,
    ) -> Result<(), ViewError> {
        let plan = subject.plan(kind, block)?;
        let grid = subject.scaled(small_shard(subject.ranks)).plan(kind, None)?;
        let tiled = subject.scaled(tiles::TOKENS).plan(kind, None)?;
        self.variants.push(Variant {
            ranks: subject.ranks,
            layout: kind.to_string(),
            layout_text: plan.key_layout().to_string(),
            mask: subject.mask.to_string(),
            walk: Walk::new(&plan),
            grid: WorkGrid::new(&grid),
            tiles: self.tile_loop.of_plan(&tiled),
            predicted: self.pace.as_ref().map(|pace| pace.chart(&plan)).transpose()?,
        });
        Ok(())
    }

    fn finish(
        self,
        origin: Origin,
        first: usize,
        measured: Option<Measured>,
    ) -> Result<Scene, ViewError> {
        let mut ranks: Vec<_> = self.variants.iter().map(|variant| variant.ranks).collect();
        ranks.dedup();
        ranks.sort_unstable();
        ranks.dedup();
        let reductions = ranks.into_iter().map(reduction).collect::<Result<_, _>>()?;
        let Self { variants, tile_loop, .. } = self;
        let schema = "ringattn.scene/1";
        Ok(Scene { schema, origin, variants, first, reductions, tile_loop, measured })
    }
}

fn parse<'a, T: Deserialize<'a>>(expected: &'static str, json: &'a [u8]) -> Result<T, ViewError> {
    serde_json::from_slice(json)
        .map_err(|error| ViewError::Form { expected, reason: error.to_string() })
}
