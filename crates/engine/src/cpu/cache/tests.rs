//! The cache by itself: what is placed, read, forgotten and taken back.

use super::*;
use ringattn_core::Message;
use ringattn_plan::LayoutKind;

fn shape(dtype: DType) -> CacheShape {
    CacheShape { attention: AttentionShape::new(2, 1, 2).unwrap(), layers: 2, dtype }
}

fn segment(start: u64, end: u64) -> Segment {
    let positions = Interval::new(Position(start), Position(end));
    Segment { positions, block: 1, order: BlockOrder::Cyclic, first_rank: Rank(0) }
}

/// Two elements for each position, that tell which it is.
fn rows(cache: &KvCache, from: u64) -> Vec<f32> {
    let positions = cache.layout().positions(cache.rank()).map(|position| position.0);
    positions.filter(|&p| p >= from).flat_map(|p| [p as f32, -(p as f32)]).collect()
}

fn extend(cache: &mut KvCache, from: u64) {
    let rows = rows(cache, from);
    for layer in 0..2 {
        cache.append(layer, (&rows, &rows), NonFinite::Refuse).unwrap();
    }
}

#[test]
fn prompts_and_generated_tokens_take_turns() {
    for p in 1..=4 {
        let mut held = 0;
        for rank in (0..p).map(Rank) {
            let mut cache = KvCache::new(shape(DType::F32), rank, p).unwrap();
            cache.place(segment(0, 7)).unwrap();
            extend(&mut cache, 0);
            cache.reserve(5).unwrap();
            for token in 7..12 {
                cache.place_generated(1, 2).unwrap();
                extend(&mut cache, token);
            }
            cache.place(segment(12, 15)).unwrap();
            extend(&mut cache, 12);
            let block = cache.block(1).unwrap();
            assert_eq!(block.byte_len(), cache.layout().count(rank) * 16);
            assert_eq!(cache.rows(1).unwrap().0, &Elements::F32(rows(&cache, 0)));
            held += cache.resident_bytes();
        }
        assert_eq!(held, 15 * 16 * 2);
    }
}

#[test]
fn a_block_that_is_still_read_does_not_change() {
    let mut cache = KvCache::new(shape(DType::Bf16), Rank(0), 1).unwrap();
    cache.place(segment(0, 3)).unwrap();
    extend(&mut cache, 0);
    let before = cache.block(0).unwrap();
    let bytes = before.payload().to_vec();
    cache.place_generated(2, 16).unwrap();
    extend(&mut cache, 3);
    assert_eq!(before.payload().to_vec(), bytes);
    assert_eq!(cache.block(0).unwrap().byte_len(), before.byte_len() / 3 * 5);
}

#[test]
fn forgotten_tokens_keep_their_slots() {
    let mut cache = KvCache::new(shape(DType::F32), Rank(1), 2).unwrap();
    cache.place(segment(0, 40)).unwrap();
    extend(&mut cache, 0);
    let all = cache.block(0).unwrap().payload().to_vec();
    cache.forget_before(Position(20)).unwrap();
    assert_eq!(cache.kept_from(), Slot(0), "as many are kept as forgotten: nothing is moved");
    cache.forget_before(Position(30)).unwrap();
    // Of the 15 that no query sees, the last stays.
    assert_eq!(cache.kept_from(), Slot(14));
    assert_eq!(cache.resident_bytes(), 6 * 16 * 2);
    let block = cache.block(0).unwrap();
    assert_eq!(block.byte_len(), all.len() as u64);
    // Keys come first: 8 bytes for each of 20 slots.
    assert_eq!(block.payload().to_vec()[15 * 8..160], all[15 * 8..160]);
    cache.place_generated(3, 1).unwrap();
    extend(&mut cache, 40);
    assert_eq!(cache.block(0).unwrap().byte_len(), cache.layout().count(Rank(1)) * 16);
    cache.forget_before(Position(1000)).unwrap();
    assert!(cache.resident_bytes() > 0);
}

/// A cache with this layout and the rows of all its tokens.
fn filled(layout: &Layout, rank: Rank, dtype: DType) -> KvCache {
    let mut cache = KvCache::new(shape(dtype), rank, layout.world_size()).unwrap();
    cache.layout = layout.clone();
    extend(&mut cache, 0);
    cache
}

fn payloads(cache: &mut KvCache) -> [Vec<u8>; 2] {
    [0, 1].map(|layer| cache.block(layer).unwrap().payload().to_vec())
}

/// Cut to every length and extended by other tokens, a cache is the one that never saw the drafts.
#[test]
fn drafts_leave_no_trace() {
    let kinds = [
        (LayoutKind::Contiguous, None),
        (LayoutKind::Striped, Some(2)),
        (LayoutKind::Zigzag, None),
    ];
    for (p, (kind, block), prompt) in (1..=5).flat_map(|p| {
        kinds.into_iter().flat_map(move |kind| [0, 3, 9].map(|prompt| (p, kind, prompt)))
    }) {
        let mut whole = Layout::new(kind, block, prompt, p).unwrap();
        let positions = Interval::new(Position(prompt), Position(prompt));
        let first_rank = whole.least_loaded();
        let order = BlockOrder::Cyclic;
        whole.append_open(Segment { positions, block: 2, order, first_rank }).unwrap();
        whole.grow(6).unwrap();
        let dtypes = [DType::F32, DType::Bf16, DType::F16];
        for (rank, dtype, len) in whole.ranks().flat_map(|rank| {
            dtypes.into_iter().flat_map(move |d| (0..=prompt + 7).map(move |n| (rank, d, n)))
        }) {
            let mut cache = filled(&whole, rank, dtype);
            let read_by_another = cache.block(0).unwrap();
            let before = read_by_another.payload().to_vec();
            cache.truncate(len, Position(0)).unwrap();
            let mut cut = whole.clone();
            cut.truncate(len);
            let mut never = filled(&cut, rank, dtype);
            assert_eq!(cache.resident_bytes(), never.resident_bytes());
            assert_eq!(payloads(&mut cache), payloads(&mut never), "{whole} cut to {len}");
            for cache in [&mut cache, &mut never] {
                cache.place_generated(4, 2).unwrap();
                let others = rows(cache, len.min(cut.len()));
                let others: Vec<_> = others.iter().map(|other| other + 0.5).collect();
                for layer in 0..2 {
                    cache.append(layer, (&others, &others), NonFinite::Refuse).unwrap();
                }
            }
            assert_eq!(cache.layout(), never.layout());
            assert_eq!(payloads(&mut cache), payloads(&mut never), "{whole} cut to {len}");
            assert_eq!(read_by_another.payload().to_vec(), before, "who still reads it");
        }
    }
}

#[test]
fn what_was_forgotten_is_not_cut_to() {
    for (p, forgotten, window) in (1..=3_u32).flat_map(|p| {
        [0, 1, 12, 30, 39].into_iter().flat_map(move |f| [1, 4].map(|window| (p, f, window)))
    }) {
        for (rank, len) in (0..p).map(Rank).flat_map(|rank| (0..40).map(move |n| (rank, n))) {
            let mut cache = KvCache::new(shape(DType::F32), rank, p).unwrap();
            cache.place(segment(0, 40)).unwrap();
            extend(&mut cache, 0);
            cache.forget_before(Position(forgotten)).unwrap();
            let held = payloads(&mut cache);
            let first = (len + 1_u64).saturating_sub(window);
            let cut = cache.truncate(len, Position(first));
            assert_eq!(cut.is_ok(), first >= forgotten, "{forgotten} {len}");
            if let Err(error) = cut {
                let says = format!("cut to {len} tokens needs those from position {first} on");
                assert!(error.to_string().contains(&says), "{error}");
                assert_eq!(payloads(&mut cache), held);
                continue;
            }
            // Every slot has a row to lead to, and whatever a later query sees is what it was.
            assert_eq!(payloads(&mut cache)[0].len() as u64, cache.layout().count(rank) * 16);
            cache.place_generated(5, 1).unwrap();
            extend(&mut cache, len);
            let (keys, count) = (&payloads(&mut cache)[0], cache.layout().count(rank));
            let seen = cache.layout().count_below(rank, Position(first)) as usize;
            let expected = Elements::F32(rows(&cache, first));
            assert_eq!(keys[seen * 8..count as usize * 8], *expected.bytes());
        }
    }
}

/// An extension that broke off between two layers.
#[test]
fn half_an_extension_is_taken_back() {
    let mut cache = KvCache::new(shape(DType::F32), Rank(0), 1).unwrap();
    cache.place(segment(0, 3)).unwrap();
    extend(&mut cache, 0);
    let before = payloads(&mut cache);
    cache.place_generated(2, 1).unwrap();
    cache.append(0, (&[9.0; 4], &[9.0; 4]), NonFinite::Refuse).unwrap();
    assert!(cache.block(1).is_err());
    cache.truncate(3, Position(0)).unwrap();
    assert_eq!(payloads(&mut cache), before);
    assert_eq!(cache.layout().len(), 3);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut cache = KvCache::new(shape(DType::F16), Rank(0), 1).unwrap();
    let text = |result: Result<(), CacheError>| result.unwrap_err().to_string();
    cache.place(segment(0, 2)).unwrap();
    let short = cache.append(0, (&[1.0; 4], &[1.0; 3]), NonFinite::Refuse);
    assert!(text(short).contains("v of 3 elements, expected 4"));
    let large = [1.0, 1.0, 1.0, 1e6];
    let error = text(cache.append(1, (&large, &large), NonFinite::Refuse));
    assert!(error.contains("layer 1: k at token 1") && error.contains("f16"), "{error}");
    cache.append(1, (&large, &large), NonFinite::Allow).unwrap();
    assert!(text(cache.append(7, (&[], &[]), NonFinite::Refuse)).contains("layer 7"));
    assert!(text(cache.block(0).map(drop)).contains("k of 0 elements, expected 4"));
    assert!(text(cache.place(segment(3, 4))).contains("begins at position 3"));
    assert!(text(cache.place_generated(1, 0)).contains("at least one token"));
    assert!(KvCache::new(shape(DType::F32), Rank(0), 0).is_err());
    assert_eq!(Layout::new(LayoutKind::Striped, None, 2, 1).unwrap(), *cache.layout());
}
