//! The checker refuses plans that are wrong, each for its reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_core::{AttentionShape, DType, Mask, Rank};
use ringattn_plan::{
    Attend, BlockId, Cargo, CheckError, Handover, Layout, LayoutKind, Operand, Plan, PlanError,
    Problem, QueriesId, QueryPlacement, Schedule, Step, Transfer, Transfers, check_steps,
};

const NONE: Transfers = Transfers::NONE;

fn plan() -> Plan {
    let shape = AttentionShape::new(1, 1, 4).unwrap();
    let problem =
        Problem { shape, queries: 12, keys: 12, mask: Mask::Causal, kv_dtype: DType::F32 };
    let layout = Layout::new(LayoutKind::Striped, None, 12, 3).unwrap();
    Plan::new(problem, layout, Schedule::RingPassKv).unwrap()
}

/// Two new queries over four ranks.
fn tree() -> Plan {
    tree_by(Schedule::Tree)
}

fn tree_by(schedule: Schedule) -> Plan {
    let mask = Mask::Full;
    let problem = Problem { queries: 2, mask, ..plan().problem().clone() };
    let layout = Layout::new(LayoutKind::Striped, None, 12, 4).unwrap();
    Plan::with_replicated_queries(problem, layout, schedule).unwrap()
}

fn refused(spoil: impl Fn(&mut Vec<Vec<Step>>)) -> CheckError {
    refused_of(&plan(), spoil)
}

fn refused_of(plan: &Plan, spoil: impl Fn(&mut Vec<Vec<Step>>)) -> CheckError {
    let mut steps: Vec<Vec<Step>> =
        (0..plan.world_size()).map(|r| plan.prepare().steps(Rank(r)).collect()).collect();
    check_steps(plan, &steps).unwrap();
    spoil(&mut steps);
    check_steps(plan, &steps).unwrap_err()
}

#[test]
fn each_fault_is_named() {
    let (rank, block) = (Rank(1), BlockId(Rank(0)));
    let missing = CheckError::Attended { rank, block, expected: 1, actual: 0 };
    assert_eq!(refused(|steps| steps[1][1].attend = None), missing);

    let twice = CheckError::Attended { rank, block, expected: 1, actual: 2 };
    let repeat = |steps: &mut Vec<Vec<Step>>| {
        let again = steps[1][1];
        steps[1].push(Step { send: NONE, receive: NONE, ..again });
    };
    assert_eq!(refused(repeat), twice);

    let early = CheckError::NotHeld { rank, step: 0, operand: Operand::Block(block) };
    let swap = |steps: &mut Vec<Vec<Step>>| {
        let first = steps[1][0].attend;
        steps[1][0].attend = steps[1][1].attend;
        steps[1][1].attend = first;
    };
    assert_eq!(refused(swap), early);

    let no_send = CheckError::Deadlock { rank, step: 1 };
    assert_eq!(refused(|steps| steps[0][1].send = NONE), no_send);

    let own = BlockId(Rank(2));
    let cargo = Cargo::Block(own);
    let unreceived = CheckError::Unreceived { from: Rank(2), to: Rank(0), cargo };
    let extra = |steps: &mut Vec<Vec<Step>>| {
        let transfer = Transfer { cargo, peer: Rank(0) };
        steps[2].push(Step { send: Transfers::new(Some(transfer), None), ..Step::idle(3) });
    };
    assert_eq!(refused(extra), unreceived);

    let expected = Cargo::Block(BlockId(Rank(1)));
    let wrong = CheckError::WrongPayload { rank: Rank(0), step: 1, expected, actual: cargo };
    let stale = |steps: &mut Vec<Vec<Step>>| {
        for transfer in steps[2][1].send.iter_mut() {
            transfer.cargo = cargo;
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
            let receive_only = Step { send: NONE, ..first };
            let send_only =
                Step { send: first.send, receive: NONE, attend: None, drop: None, ..first };
            steps.splice(0..2, [receive_only, send_only, second]);
        }
    };
    assert_eq!(refused(cyclic), CheckError::Deadlock { rank: Rank(0), step: 0 });
}

#[test]
fn faults_of_states_are_named() {
    let tree = tree();
    // Whoever gives its state away and gets one of its own peers' back misses a block.
    let given = |steps: &mut Vec<Vec<Step>>| {
        for transfer in steps[3][1].send.iter_mut() {
            transfer.cargo = Cargo::State(QueriesId(Rank(0)), Handover::Given);
        }
    };
    let (rank, block) = (Rank(3), BlockId(Rank(3)));
    let missing = |rank| CheckError::Attended { rank, block, expected: 1, actual: 0 };
    assert!([missing(Rank(1)), missing(rank)].contains(&refused_of(&tree, given)));

    // The same exchange once more counts everything twice.
    let again = |steps: &mut Vec<Vec<Step>>| steps.iter_mut().for_each(|s| s.push(s[2]));
    let twice =
        CheckError::Attended { rank: Rank(0), block: BlockId(Rank(0)), expected: 1, actual: 2 };
    assert_eq!(refused_of(&tree, again), twice);

    // Ranks 0 and 3, 1 and 2 meet first, then 0 and 1, 2 and 3: rank 1 adds (1 2) to (0 3), rank 2,
    // which comes before rank 3, puts its own (1 2) first.
    let crossed = |steps: &mut Vec<Vec<Step>>| {
        let cargo = Cargo::State(QueriesId(Rank(0)), Handover::Copied);
        let exchange = |peer| Transfers::new(None, Some(Transfer { cargo, peer: Rank(peer) }));
        for (steps, peers) in steps.iter_mut().zip([[3, 1], [2, 0], [1, 3], [0, 2]]) {
            for (step, peer) in steps[1..].iter_mut().zip(peers) {
                (step.send, step.receive) = (exchange(peer), exchange(peer));
            }
        }
    };
    assert_eq!(refused_of(&tree, crossed), CheckError::Order { rank: Rank(2) });

    let block_for_state = |steps: &mut Vec<Vec<Step>>| {
        for transfer in steps[1][1].send.iter_mut() {
            transfer.cargo = Cargo::Block(BlockId(Rank(1)));
        }
    };
    let wrong = CheckError::WrongPayload {
        rank: Rank(0),
        step: 1,
        expected: Cargo::State(QueriesId(Rank(0)), Handover::Copied),
        actual: Cargo::Block(BlockId(Rank(1))),
    };
    assert_eq!(refused_of(&tree, block_for_state), wrong);
}

#[test]
fn faults_on_the_way_to_the_root_are_named() {
    let plan = tree_by(Schedule::TreeReduce);
    let refused = |spoil: &dyn Fn(&mut Vec<Vec<Step>>)| refused_of(&plan, spoil);
    let block = BlockId(Rank(1));
    let attended = |rank, expected, actual| CheckError::Attended { rank, block, expected, actual };

    let kept = |steps: &mut Vec<Vec<Step>>| {
        steps[1][1].send = NONE;
        steps[0][1].receive = NONE;
    };
    assert_eq!(refused(&kept), attended(Rank(0), 1, 0));

    // Rank 1 would be left with a state that is not the whole.
    let copied = |steps: &mut Vec<Vec<Step>>| {
        steps[1][1].send.iter_mut().for_each(|transfer| {
            transfer.cargo = Cargo::State(QueriesId(Rank(0)), Handover::Copied);
        });
    };
    assert_eq!(refused(&copied), attended(Rank(1), 0, 1));

    // Merged on the way up and by the root once more.
    let again = |steps: &mut Vec<Vec<Step>>| {
        let cargo = Cargo::State(QueriesId(Rank(0)), Handover::Copied);
        let state = |peer| Transfers::new(None, Some(Transfer { cargo, peer: Rank(peer) }));
        steps[1][0].send = state(2);
        steps[2][0].receive = state(1);
        steps[1][0].attend = None;
        steps[1].insert(0, Step { attend: plan_attend(&plan), ..Step::idle(0) });
    };
    assert_eq!(refused(&again), attended(Rank(0), 1, 2));
}

/// What rank 1 attends.
fn plan_attend(plan: &Plan) -> Option<Attend> {
    plan.prepare().steps(Rank(1)).find_map(|step| step.attend)
}

#[test]
fn faults_of_visiting_queries_are_named() {
    let problem = plan().problem().clone();
    let plan = Plan::new(problem, plan().key_layout().clone(), Schedule::RingPassQ).unwrap();
    let refused = |spoil: &dyn Fn(&mut Vec<Vec<Step>>)| refused_of(&plan, spoil);
    let queries = |rank| QueriesId(Rank(rank));

    // The state that rank 1 owes rank 0 for its block.
    let kept = |steps: &mut Vec<Vec<Step>>| {
        steps[1][2].send = NONE;
        steps[0][2].receive = NONE;
    };
    let (rank, block) = (Rank(0), BlockId(Rank(1)));
    assert_eq!(refused(&kept), CheckError::Attended { rank, block, expected: 1, actual: 0 });

    // Attended once more on the way.
    let again = |steps: &mut Vec<Vec<Step>>| {
        let attend = steps[1][1].attend;
        steps[1][1].drop = None;
        steps[1].insert(2, Step { attend, ..Step::idle(2) });
    };
    assert_eq!(refused(&again), CheckError::Attended { rank, block, expected: 1, actual: 2 });

    let early = |steps: &mut Vec<Vec<Step>>| {
        let (first, second) = (steps[1][0].attend, steps[1][1].attend);
        (steps[1][0].attend, steps[1][1].attend) = (second, first);
    };
    let operand = Operand::Queries(queries(0));
    assert_eq!(refused(&early), CheckError::NotHeld { rank: Rank(1), step: 0, operand });

    // Whose state that is, rank 2 cannot tell from its own.
    let astray = |steps: &mut Vec<Vec<Step>>| {
        let cargo = Cargo::State(queries(1), Handover::Copied);
        let state = |peer| Transfers::new(None, Some(Transfer { cargo, peer: Rank(peer) }));
        steps[1].push(Step { send: state(2), ..Step::idle(4) });
        steps[2].push(Step { receive: state(1), ..Step::idle(4) });
    };
    let foreign = CheckError::Foreign { rank: Rank(2), step: 4, queries: queries(1) };
    assert_eq!(refused(&astray), foreign);

    let expected = Cargo::Queries(queries(0));
    let actual = Cargo::Queries(queries(1));
    let swapped = |steps: &mut Vec<Vec<Step>>| {
        steps[0][0].send.iter_mut().for_each(|transfer| transfer.cargo = actual);
    };
    let wrong = CheckError::WrongPayload { rank: Rank(1), step: 0, expected, actual };
    assert_eq!(refused(&swapped), wrong);
}

#[test]
fn queries_must_be_where_the_schedule_needs_them() {
    let layout = Layout::new(LayoutKind::Striped, None, 12, 3).unwrap();
    let problem = plan().problem().clone();
    let placement =
        |schedule, expected, actual| Err(PlanError::Placement { schedule, expected, actual });
    let (sharded, replicated) = (QueryPlacement::Sharded, QueryPlacement::Replicated);
    for schedule in [Schedule::Tree, Schedule::TreeReduce] {
        assert_eq!(
            Plan::new(problem.clone(), layout.clone(), schedule),
            placement(schedule, replicated, sharded)
        );
    }
    for schedule in [Schedule::RingPassKv, Schedule::RingPassQ, Schedule::Gather] {
        assert_eq!(
            Plan::with_replicated_queries(problem.clone(), layout.clone(), schedule),
            placement(schedule, sharded, replicated)
        );
    }
}
