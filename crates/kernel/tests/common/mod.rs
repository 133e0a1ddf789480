//! What the kernel's tests share: random cases, runs, and comparison with the oracle.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check stops the test")]

use ringattn_core::{
    Attention, AttentionShape, DType, Elements, ElementsView, Interval, Partial, Slot, Unwatched,
};
use ringattn_kernel::{Arrangement, Isa, Kernel, KeysValues, Problem, Rows, Work};
use ringattn_oracle::{Dense, Random, Tolerance, attention};
use std::ops::Range;

/// Inputs of one attention over one block.
#[derive(Clone, Debug)]
pub struct Case {
    pub shape: AttentionShape,
    pub scale: f32,
    pub q: Vec<f32>,
    pub k: Elements,
    pub v: Elements,
    pub intervals: Vec<Interval<Slot>>,
    pub keys: usize,
}

/// `[start, end)` as slots.
pub fn slots(start: usize, end: usize) -> Interval<Slot> {
    Interval::new(Slot(start as u64), Slot(end as u64))
}

/// The shapes of interval that a block meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    Full,
    Causal,
    Single,
    Empty,
    Random,
}

pub const ALL_SEEN: [Seen; 5] = [Seen::Full, Seen::Causal, Seen::Single, Seen::Empty, Seen::Random];

impl Seen {
    pub fn intervals(self, rows: usize, keys: usize, random: &mut Random) -> Vec<Interval<Slot>> {
        let at = |random: &mut Random| random.below(keys as u64 + 1) as usize;
        (0..rows)
            .map(|row| match self {
                Self::Full => slots(0, keys),
                Self::Causal => slots(0, (row + 1).min(keys)),
                Self::Single if keys > 0 => {
                    let key = random.below(keys as u64) as usize;
                    slots(key, key + 1)
                }
                Self::Single | Self::Empty => slots(0, 0),
                Self::Random => slots(at(random), at(random)),
            })
            .collect()
    }
}

impl Case {
    /// Unit-normal inputs.
    pub fn new(
        shape: AttentionShape,
        (rows, keys): (usize, usize),
        seen: Seen,
        dtype: DType,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        let intervals = seen.intervals(rows, keys, &mut random);
        Self {
            shape,
            scale: 1.0 / (shape.head_dim() as f32).sqrt(),
            q: random.normals(rows * shape.query_width()),
            k: Elements::from_f32(random.normals(keys * shape.key_width()), dtype),
            v: Elements::from_f32(random.normals(keys * shape.key_width()), dtype),
            intervals,
            keys,
        }
    }

    pub fn rows(&self) -> usize {
        self.intervals.len()
    }

    pub fn identity(&self) -> Partial {
        Partial::identity(self.shape, self.rows()).unwrap()
    }

    /// Absorbs the slots `range` as a block of their own.
    pub fn absorb(&self, kernel: &Kernel, range: Range<usize>, state: &mut Partial) {
        let own = slots(range.start, range.end);
        let local = |seen: &Interval<Slot>| {
            let seen = seen.intersect(own);
            slots(
                seen.start().index().max(range.start) - range.start,
                seen.end().index().max(range.start) - range.start,
            )
        };
        let intervals: Vec<_> = self.intervals.iter().map(local).collect();
        let (shape, width) = (self.shape, self.shape.key_width());
        let part = range.start * width..range.end * width;
        let arrangement = |heads, tokens| Arrangement::token_major(heads, tokens, shape.head_dim());
        let keys = arrangement(shape.key_heads(), range.len());
        let queries = arrangement(shape.query_heads(), self.rows());
        let work = Work {
            queries: Rows::whole(ElementsView::F32(&self.q), queries),
            block: KeysValues {
                keys: Rows::whole(self.k.view().slice(part.clone()), keys),
                values: Rows::whole(self.v.view().slice(part), keys),
            },
            intervals: &intervals,
        };
        let problem = Problem { shape: self.shape, softmax_scale: self.scale };
        kernel.absorb(&problem, &work, state, &Unwatched).unwrap();
    }

    /// The state after the whole block.
    pub fn run(&self, kernel: &Kernel) -> Partial {
        let mut state = self.identity();
        self.absorb(kernel, 0..self.keys, &mut state);
        state
    }

    pub fn dense(&self) -> Dense {
        let wide = |view: ElementsView<'_>| -> Vec<f64> {
            (0..view.len()).map(|at| f64::from(view.get(at))).collect()
        };
        let q: Vec<f64> = self.q.iter().map(|&x| f64::from(x)).collect();
        let (k, v) = (wide(self.k.view()), wide(self.v.view()));
        attention((&q, &k, &v), &self.intervals, self.shape, f64::from(self.scale))
    }

    /// Panics unless `state` finishes within the tolerance of dense attention.
    pub fn check(&self, state: Partial, context: &str) {
        let dense = self.dense();
        let Attention { out, lse } = state.finish();
        let lse: Vec<f32> = lse.into_iter().map(|lse| lse.0).collect();
        if let Some(violation) = Tolerance::of(&dense).violation(&dense, &out, &lse) {
            let (rows, keys) = (self.rows(), self.keys);
            panic!("{context}: {:?}, {rows} rows, {keys} keys: {violation}", self.shape);
        }
    }
}

pub fn shape(query_heads: usize, key_heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape::new(query_heads, key_heads, head_dim).unwrap()
}

/// A one-threaded kernel for each instruction set of this processor.
pub fn kernels() -> Vec<Kernel> {
    Isa::available().into_iter().map(|isa| Kernel::new(isa, 1).unwrap()).collect()
}

/// The state's bits, so that NaN compares and -0 differs from 0.
pub fn bits(state: &Partial) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    (
        state.m.iter().map(|m| m.0.to_bits()).collect(),
        state.z.iter().map(|z| z.to_bits()).collect(),
        state.y.iter().map(|y| y.to_bits()).collect(),
    )
}
