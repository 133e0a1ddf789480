//! What callers rely on beside the numbers: threads, progress, refusals.

#![allow(clippy::unwrap_used, reason = "a failed step stops the test")]

mod common;

use common::{ALL_SEEN, Case, Seen, bits, kernels, shape, slots};
use ringattn_core::{DType, ElementsView, Interrupted, Partial, Progress, Unwatched};
use ringattn_kernel::{
    Arrangement, Isa, Kernel, KernelError, KeysValues, Problem, Rows, TeamError, Work,
};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn threads_change_no_bit() {
    for seen in ALL_SEEN {
        for heads in [shape(1, 1, 48), shape(6, 2, 48)] {
            let case = Case::new(heads, (400, 2500), seen, DType::F32, 53);
            for isa in Isa::available() {
                let states =
                    [1, 2, 3].map(|threads| bits(&case.run(&Kernel::new(isa, threads).unwrap())));
                assert_eq!(states[0], states[1], "{isa} {seen:?}");
                assert_eq!(states[0], states[2], "{isa} {seen:?}");
            }
        }
    }
}

#[test]
fn workspaces_carry_nothing_over() {
    let large = Case::new(shape(1, 1, 128), (200, 700), Seen::Full, DType::F32, 59);
    let small = Case::new(shape(1, 1, 5), (7, 19), Seen::Random, DType::F32, 61);
    for kernel in kernels() {
        let fresh = bits(&small.run(&kernel));
        large.run(&kernel);
        assert_eq!(fresh, bits(&small.run(&kernel)), "{}", kernel.isa());
    }
}

#[test]
fn one_kernel_serves_several_callers() {
    let case = Case::new(shape(2, 1, 32), (100, 600), Seen::Causal, DType::F32, 67);
    for threads in [1, 2] {
        let kernel = Kernel::new(Isa::detect(), threads).unwrap();
        let expected = bits(&case.run(&kernel));
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| bits(&case.run(&kernel)))).collect();
            for run in runs {
                assert_eq!(run.join().unwrap(), expected);
            }
        });
    }
}

/// Stops the work after so many units.
struct Fuse(AtomicUsize);

impl Progress for Fuse {
    fn advance(&self) -> Result<(), Interrupted> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        left.map(|_| ()).map_err(|_| Interrupted)
    }
}

/// Tries work whose parts may not fit.
struct Attempt {
    problem: Problem,
    q: usize,
    k: usize,
    v: usize,
    rows: usize,
    keys: usize,
    values: usize,
    intervals: Vec<ringattn_core::Interval<ringattn_core::Slot>>,
    state: Partial,
}

impl Attempt {
    fn good() -> Self {
        let shape = shape(2, 1, 4);
        let state = Partial::identity(shape, 3).unwrap();
        let problem = Problem { shape, softmax_scale: 0.5 };
        Self {
            problem,
            q: 24,
            k: 20,
            v: 20,
            rows: 3,
            keys: 5,
            values: 5,
            intervals: vec![slots(0, 5); 3],
            state,
        }
    }

    fn run(mut self, progress: &dyn Progress) -> Result<(), KernelError> {
        let (q, k, v) = (vec![0.5; self.q], vec![0.5; self.k], vec![0.5; self.v]);
        let rows = |data, heads, tokens| {
            Rows::whole(ElementsView::F32(data), Arrangement::token_major(heads, tokens, 4))
        };
        let work = Work {
            queries: rows(&q, 2, self.rows),
            block: KeysValues { keys: rows(&k, 1, self.keys), values: rows(&v, 1, self.values) },
            intervals: &self.intervals,
        };
        let kernel = Kernel::new(Isa::detect(), 1)?;
        kernel.absorb(&self.problem, &work, &mut self.state, progress)
    }
}

#[test]
fn progress_moves_and_stops() {
    let steps = AtomicUsize::new(1000);
    let fuse = Fuse(steps);
    Attempt::good().run(&fuse).unwrap();
    // Few rows: one split of one key head.
    assert_eq!(1000 - fuse.0.load(Ordering::Relaxed), 1);
    let many = || {
        let (rows, state) = (9, Partial::identity(shape(2, 1, 4), 9).unwrap());
        Attempt { q: 72, rows, intervals: vec![slots(0, 5); 9], state, ..Attempt::good() }
    };
    let fuse = Fuse(AtomicUsize::new(1000));
    many().run(&fuse).unwrap();
    // One packed chunk, two heads of one tile.
    assert_eq!(1000 - fuse.0.load(Ordering::Relaxed), 3);
    for units in 0..3 {
        assert_eq!(many().run(&Fuse(AtomicUsize::new(units))), Err(KernelError::Interrupted));
    }
    let blown = Attempt::good().run(&Fuse(AtomicUsize::new(0)));
    assert_eq!(blown, Err(KernelError::Interrupted));
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    type Spoil = fn(&mut Attempt);
    let cases: [(Spoil, &str); 14] = [
        (|a| a.q = 23, "queries: 23 elements, expected 24"),
        (|a| a.k = 19, "keys: 19 elements, expected 20"),
        (|a| a.v = 21, "values: 21 elements, expected 20"),
        (|a| a.keys = usize::MAX, "keys: 20 elements, expected 18446744073709551615"),
        (|a| a.intervals.truncate(2), "intervals: 2 elements, expected 3"),
        (|a| a.intervals[1] = slots(2, 6), "query row 1 sees slots [2, 6) of a block of 5 rows"),
        (|a| a.problem.softmax_scale = f32::NAN, "softmax_scale must be a finite number"),
        (|a| a.state.z.truncate(5), "state z: 5 elements, expected 6"),
        (
            |a| a.state = Partial::identity(a.problem.shape, 2).unwrap(),
            "state rows: 2 elements, expected 3",
        ),
        (|a| a.problem.shape = shape(2, 1, 257), "head dimension 257 is beyond the kernel's 256"),
        (|a| (a.v, a.values) = (16, 4), "rows of values: 4 elements, expected 5"),
        (|a| a.problem.shape = shape(1, 1, 4), "queries: 2 heads of dimension 4, expected 1 of 4"),
        (|a| a.problem.shape = shape(2, 2, 4), "keys: 1 heads of dimension 4, expected 2 of 4"),
        (
            |a| a.state = Partial::identity(shape(1, 1, 4), 3).unwrap(),
            "state y: 1 heads of dimension 4, expected 2 of 4",
        ),
    ];
    for (spoil, message) in cases {
        let mut attempt = Attempt::good();
        spoil(&mut attempt);
        assert_eq!(attempt.run(&Unwatched).unwrap_err().to_string(), message);
    }
}

#[test]
fn kernels_that_cannot_be_are_refused() {
    assert!(matches!(Kernel::new(Isa::Scalar, 0), Err(KernelError::Team(TeamError::NoThreads))));
    let foreign = if cfg!(target_arch = "aarch64") { Isa::Avx512 } else { Isa::Neon };
    assert_eq!(Kernel::new(foreign, 1).err(), Some(KernelError::Isa { isa: foreign }));
    let kernel = Kernel::new(Isa::Scalar, 2).unwrap();
    assert_eq!((kernel.isa(), kernel.threads()), (Isa::Scalar, 2));
    assert_eq!(kernel.isa().to_string(), "scalar");
}
