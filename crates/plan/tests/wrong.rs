//! The checker refuses plans that are wrong, each for its reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_core::{AttentionShape, DType, Mask, Rank};
use ringattn_plan::{
    BlockId, CheckError, Layout, LayoutKind, Plan, Problem, Schedule, Step, Transfer, check_steps,
};

fn plan() -> Plan {
    let shape = AttentionShape::new(1, 1, 4).unwrap();
    let problem =
        Problem { shape, queries: 12, keys: 12, mask: Mask::Causal, kv_dtype: DType::F32 };
    let layout = Layout::new(LayoutKind::Striped, None, 12, 3).unwrap();
    Plan::new(problem, layout, Schedule::RingPassKv).unwrap()
}

fn refused(spoil: impl Fn(&mut Vec<Vec<Step>>)) -> CheckError {
    let plan = plan();
    let mut steps: Vec<Vec<Step>> =
        (0..3).map(|r| plan.prepare().steps(Rank(r)).collect()).collect();
    check_steps(&plan, &steps).unwrap();
    spoil(&mut steps);
    check_steps(&plan, &steps).unwrap_err()
}

#[test]
fn each_fault_is_named() {
    let (rank, block) = (Rank(1), BlockId(Rank(0)));
    let missing = CheckError::Attended { rank, block, expected: 1, actual: 0 };
    assert_eq!(refused(|steps| steps[1][1].attend = None), missing);

    let twice = CheckError::Attended { rank, block, expected: 1, actual: 2 };
    let repeat = |steps: &mut Vec<Vec<Step>>| {
        let again = steps[1][1];
        steps[1].push(Step { send: None, receive: None, ..again });
    };
    assert_eq!(refused(repeat), twice);

    let early = CheckError::NotHeld { rank, step: 0, block };
    let swap = |steps: &mut Vec<Vec<Step>>| {
        let first = steps[1][0].attend;
        steps[1][0].attend = steps[1][1].attend;
        steps[1][1].attend = first;
    };
    assert_eq!(refused(swap), early);

    let no_send = CheckError::Deadlock { rank, step: 1 };
    assert_eq!(refused(|steps| steps[0][1].send = None), no_send);

    let own = BlockId(Rank(2));
    let unreceived = CheckError::Unreceived { from: Rank(2), to: Rank(0), block: own };
    let extra = |steps: &mut Vec<Vec<Step>>| {
        let transfer = Transfer { block: own, peer: Rank(0) };
        steps[2].push(Step {
            index: 3,
            attend: None,
            send: Some(transfer),
            receive: None,
            drop: None,
        });
    };
    assert_eq!(refused(extra), unreceived);

    let wrong =
        CheckError::WrongBlock { rank: Rank(0), step: 1, expected: BlockId(Rank(1)), actual: own };
    let stale = |steps: &mut Vec<Vec<Step>>| {
        if let Some(transfer) = &mut steps[2][1].send {
            transfer.block = own;
        }
    };
    assert_eq!(refused(stale), wrong);
}

#[test]
fn a_cycle_of_waits_is_found() {
    // Every rank waits for its neighbour before it sends: no rank ever begins.
    let cyclic = |steps: &mut Vec<Vec<Step>>| {
        for steps in steps.iter_mut() {
            let (first, second) = (steps[0], steps[1]);
            let receive_only = Step { send: None, ..first };
            let send_only =
                Step { send: first.send, receive: None, attend: None, drop: None, ..first };
            steps.splice(0..2, [receive_only, send_only, second]);
        }
    };
    assert_eq!(refused(cyclic), CheckError::Deadlock { rank: Rank(0), step: 0 });
}
