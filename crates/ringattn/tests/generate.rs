//! Generation with tiny models over rings of every size, against the scores of the whole text, which
//! tests of their own hold against another implementation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn::core::DType;
use ringattn::model::{
    DensePlacement, Finish, Flow, Listener, Model, Sampling, TokenScore, visitors,
};
use ringattn::plan::{Layout, LayoutKind};
use ringattn::{
    Error, GenerateInput, GenerateOutput, GenerateResult, Report, RunOptions, generate, score,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const MODELS: [&str; 3] = ["tiny-llama3", "tiny-mistral", "tiny-qwen3"];
const LAYOUTS: [LayoutKind; 3] = [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];

/// Two ways of computing the same log-probability in f32 through three layers.
const TOLERANCE: f64 = 2e-4;

fn model(name: &str) -> Model {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    Model::open(&folder).unwrap()
}

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 37 + i * i) % 256).collect()
}

/// Hears so many tokens and then has had enough.
struct Patience(AtomicUsize);

impl Listener for Patience {
    fn token(&self, _: TokenScore) -> Flow {
        let left = self.0.fetch_sub(1, Ordering::Relaxed);
        if left == 1 { Flow::Stop } else { Flow::Continue }
    }
}

fn run(
    model: &Model,
    input: &GenerateInput,
    options: &RunOptions,
) -> (GenerateOutput, Report<GenerateResult>) {
    let listener = Patience(AtomicUsize::new(usize::MAX));
    let (output, report) = generate(model, input, options, &listener).unwrap().unwrap();
    assert!(report.law.holds);
    (output, report)
}

fn ids(output: &GenerateOutput) -> Vec<u32> {
    output.tokens.iter().map(|score| score.token).collect()
}

fn options(ranks: u32, layout: LayoutKind) -> RunOptions {
    RunOptions { layout, threads: Some(1), ..RunOptions::new(ranks) }
}

#[test]
fn decoding_agrees_with_scoring_for_every_ring() {
    for name in MODELS {
        let model = model(name);
        // With a window of 96, tokens are forgotten on the way.
        for len in [1, 3, 130] {
            let prompt = prompt(len);
            let input = GenerateInput { cache_block: 3, ..GenerateInput::new(prompt.clone(), 24) };
            let mut reference: Option<Vec<u32>> = None;
            for ranks in [1, 2, 3, 4, 5, 8] {
                for layout in LAYOUTS {
                    let options = options(ranks, layout);
                    let (output, report) = run(&model, &input, &options);
                    let ids = ids(&output);
                    let expected = reference.get_or_insert_with(|| ids.clone());
                    assert_eq!(ids, *expected, "{name} {len} p={ranks} {layout}");
                    assert_eq!(output.finish, Finish::Length);
                    assert_eq!(report.result.decode.received_kv_bytes, 0);
                    let text = [&prompt[..], &ids].concat();
                    let scores = score(&model, &text, &options).unwrap().unwrap().0.scores;
                    for (ours, theirs) in output.tokens.iter().zip(&scores[len as usize - 1..]) {
                        assert_eq!((ours.position, ours.token), (theirs.position, theirs.token));
                        let error = (ours.logprob - theirs.logprob).abs();
                        assert!(error < TOLERANCE, "{name} {len} p={ranks} {layout}: {error:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn pieces_of_any_size_give_the_same_text() {
    for name in MODELS {
        let model = model(name);
        let whole = GenerateInput::new(prompt(150), 12);
        let expected = run(&model, &whole, &options(1, LayoutKind::Striped)).0.tokens;
        for (ranks, layout) in
            [(1, LayoutKind::Striped), (3, LayoutKind::Zigzag), (4, LayoutKind::Contiguous)]
        {
            for piece in [1, 7, 64, 512] {
                let input = GenerateInput { prefill_chunk: Some(piece), ..whole.clone() };
                let tokens = run(&model, &input, &options(ranks, layout)).0.tokens;
                for (ours, theirs) in tokens.iter().zip(&expected) {
                    assert_eq!(ours.token, theirs.token, "{name} p={ranks} pieces of {piece}");
                    assert!((ours.logprob - theirs.logprob).abs() < TOLERANCE);
                }
            }
        }
    }
}

#[test]
fn a_cache_moves_between_rings() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let model = model(name);
        let text = prompt(150);
        let input = |tokens: &[u32], new| GenerateInput::new(tokens.to_vec(), new);
        let whole = run(&model, &input(&text, 30), &options(1, LayoutKind::Striped)).0;
        let cache = folder.path().join(name);
        let save =
            |input: GenerateInput| GenerateInput { save_cache: Some(cache.clone()), ..input };
        let load =
            |input: GenerateInput| GenerateInput { load_cache: Some(cache.clone()), ..input };

        run(&model, &save(input(&text[..100], 0)), &options(3, LayoutKind::Zigzag));
        let second = load(save(input(&text[100..], 10)));
        let (second, report) = run(&model, &second, &options(2, LayoutKind::Contiguous));
        assert_eq!((report.result.cached_tokens, report.result.prompt_tokens), (100, 50));
        // The tenth token was chosen but not computed: it is left to do.
        let third = load(save(input(&[], 20)));
        let (third, report) = run(&model, &third, &options(5, LayoutKind::Striped));
        assert_eq!((report.result.cached_tokens, report.result.prompt_tokens), (159, 1));
        assert_eq!([ids(&second), ids(&third)].concat(), ids(&whole), "{name}");
        // What an older cache left is gone.
        let files = std::fs::read_dir(&cache).unwrap().count();
        assert_eq!(files, 5 + 1);
        // Several questions over one document.
        for question in [&text[..5], &text[..5]] {
            let (output, _) =
                run(&model, &load(input(question, 3)), &options(1, LayoutKind::Striped));
            assert_eq!(output.tokens.len(), 3);
        }
    }
}

/// A question behind a long document: its queries go round, keys and values stay where they are.
#[test]
fn an_appended_piece_visits_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (document, piece) = (200, 60);
    for name in MODELS {
        let model = model(name);
        let text = prompt(document + piece);
        let whole = GenerateInput::new(text.clone(), 8);
        let expected = run(&model, &whole, &options(1, LayoutKind::Striped)).0.tokens;
        let cache = Some(folder.path().join(name));
        let (known, question) = text.split_at(document as usize);
        let first = GenerateInput::new(known.to_vec(), 0);
        let first = GenerateInput { save_cache: cache.clone(), ..first };
        run(&model, &first, &options(3, LayoutKind::Zigzag));
        let second = GenerateInput::new(question.to_vec(), 8);
        let second = GenerateInput { load_cache: cache, ..second };
        for ranks in 2..=5 {
            for layout in LAYOUTS {
                let (output, report) = run(&model, &second, &options(ranks, layout));
                for (ours, theirs) in output.tokens.iter().zip(&expected) {
                    assert_eq!(ours.token, theirs.token, "{name} p={ranks} {layout}");
                    assert!((ours.logprob - theirs.logprob).abs() < TOLERANCE);
                }
                let threads = RunOptions { threads: Some(3), ..options(ranks, layout) };
                assert_eq!(run(&model, &second, &threads).0.tokens, output.tokens);
                // With a window less is seen; zigzag deals 60 tokens out unevenly.
                if name == "tiny-mistral" || layout == LayoutKind::Zigzag {
                    continue;
                }
                let (shape, p) = (model.config.attention, u64::from(ranks));
                let (heads, d) = (shape.query_heads() as u64, shape.head_dim() as u64);
                let rows = (p - 1) * u64::from(piece) / p;
                let numbers = rows * heads * d + rows * heads * (d + 2);
                let decode = &report.result.decode;
                for (rank, decoded) in report.per_rank.iter().zip(&decode.received_bytes_per_token)
                {
                    let decoded = (decoded * decode.steps as f64).round() as u64;
                    let received = rank.received_bytes - decoded;
                    assert_eq!(received, numbers * 4 * model.config.layers as u64);
                    assert_eq!(rank.peak_kv_bytes, rank.resident_kv_bytes, "no block visits");
                }
            }
        }
    }
}

/// What visits is known before the run, and counted.
#[test]
fn the_memory_check_counts_states_of_visitors() {
    let model = model("tiny-llama3");
    let (len, piece) = (150, 40);
    let predicted = |ranks, prefill_chunk| {
        let input = GenerateInput { prefill_chunk, ..GenerateInput::new(prompt(len), 0) };
        let options = RunOptions { memory_limit: Some(1), ..options(ranks, LayoutKind::Striped) };
        let listener = Patience(AtomicUsize::new(usize::MAX));
        match generate(&model, &input, &options, &listener) {
            Err(Error::MemoryLimit { predicted, limit: 1 }) => predicted,
            other => panic!("{other:?}"),
        }
    };
    for ranks in 2..=5 {
        // Keys and values go round by handle, so that only threads are more than one rank's.
        let threads = predicted(ranks, None) - predicted(1, None);
        let with_states = predicted(ranks, Some(piece)) - predicted(1, Some(piece));
        let (empty, dealt) = (Layout::empty(ranks).unwrap(), (LayoutKind::Striped, None));
        let how = (dealt, DensePlacement::Root { threads: 1 });
        let known = visitors(&model.config, DType::F32, empty, how, [40, 40, 40, 30]).unwrap();
        let states: u64 = known.iter().map(|rank| rank.state_bytes).sum();
        assert!(states > 0);
        assert_eq!(with_states - threads, states, "{ranks}");
    }
}

#[test]
fn narrow_caches_stay_close() {
    let model = model("tiny-llama3");
    let prompt = prompt(90);
    let plain = GenerateInput::new(prompt.clone(), 1);
    let first =
        |input: &GenerateInput| run(&model, input, &options(3, LayoutKind::Striped)).0.tokens[0];
    let expected = first(&plain);
    // Keys and values rounded to 8 and 11 bits; the bounds are a few times what is observed.
    for (dtype, bound) in [(DType::Bf16, 0.1), (DType::F16, 0.02)] {
        let input = GenerateInput { cache_dtype: Some(dtype), ..plain.clone() };
        let actual = first(&input);
        assert_eq!(actual.token, expected.token, "{dtype}");
        assert!((actual.logprob - expected.logprob).abs() < bound, "{dtype}");
    }
}

#[test]
fn traffic_follows_the_formula() {
    let model = model("tiny-qwen3");
    let shape = model.config.attention;
    let input = GenerateInput::new(prompt(40), 5);
    let state = (4 * shape.query_heads() * (shape.head_dim() + 2)) as f64;
    for p in 2..=9_u32 {
        let (_, report) = run(&model, &input, &options(p, LayoutKind::Striped));
        let decode = &report.result.decode;
        let rounds = p.next_power_of_two().ilog2();
        assert_eq!((decode.steps, decode.rounds_per_layer), (4, rounds));
        assert_eq!((decode.schedule.as_str(), decode.dense), ("tree-reduce", "root"));
        assert_eq!((decode.received_kv_bytes, decode.state_bytes as f64), (0, state));
        let layers = model.config.layers as f64;
        // Rank 0 gets a message a round; every other rank sends one.
        assert_eq!(decode.messages_per_token[0], f64::from(rounds) * layers, "p = {p}");
        let messages: f64 = decode.messages_per_token.iter().sum();
        assert_eq!(messages, f64::from(p - 1) * layers, "p = {p}");
        for rank in 0..p as usize {
            let (messages, sent) = (decode.messages_per_token[rank], f64::from(rank.min(1) as u32));
            assert_eq!(decode.received_bytes_per_token[rank], messages * state);
            assert_eq!(decode.sent_bytes_per_token[rank], sent * layers * state, "p = {p}");
        }
    }
}

#[test]
fn caches_spread_over_the_ranks_and_windows_are_forgotten() {
    let input = GenerateInput { cache_block: 2, ..GenerateInput::new(prompt(40), 160) };
    for name in MODELS {
        let model = model(name);
        let (_, report) = run(&model, &input, &options(4, LayoutKind::Contiguous));
        let shape = model.config.attention;
        let token = (2 * shape.key_width() * 4 * model.config.layers) as u64;
        let bytes = &report.result.cache_bytes_per_rank;
        if name == "tiny-mistral" {
            // At most twice what the window shows, and a block.
            assert!(bytes.iter().sum::<u64>() <= (2 * 96 + 8) * token, "{bytes:?}");
        } else {
            assert_eq!(bytes.iter().sum::<u64>(), 199 * token);
            assert!(bytes.iter().max().unwrap() - bytes.iter().min().unwrap() <= 2 * token);
        }
    }
}

#[test]
fn threads_and_engines_of_dense_layers_change_no_bit() {
    let model = model("tiny-qwen3");
    let input = GenerateInput::new(prompt(70), 10);
    for ranks in [1, 3] {
        let tokens = |threads| {
            let options = RunOptions { threads: Some(threads), ..RunOptions::new(ranks) };
            run(&model, &input, &options).0.tokens
        };
        let one = tokens(1);
        assert!([2, 3].iter().all(|&threads| tokens(threads) == one), "p = {ranks}");
    }
}

#[test]
fn texts_end_where_they_should() {
    let model = model("tiny-llama3");
    let plain = GenerateInput::new(prompt(20), 12);
    let options = options(3, LayoutKind::Striped);
    let all = ids(&run(&model, &plain, &options).0);
    let fifth = all[4];
    let before = all.iter().position(|&id| id == fifth).unwrap();
    let input = GenerateInput { end_tokens: vec![fifth], ..plain.clone() };
    let (output, report) = run(&model, &input, &options);
    assert_eq!(ids(&output), all[..before]);
    assert_eq!((output.finish, report.result.finish), (Finish::EndToken(fifth), "end_token"));

    let (output, report) =
        generate(&model, &plain, &options, &Patience(AtomicUsize::new(7))).unwrap().unwrap();
    assert_eq!((ids(&output), output.finish), (all[..7].to_vec(), Finish::Stopped));
    assert_eq!(report.result.decode.steps, 6);

    let warm = Sampling { temperature: 1.5, seed: 3, ..Sampling::default() };
    let drawn = |ranks, seed| {
        let input = GenerateInput { sampling: Sampling { seed, ..warm }, ..plain.clone() };
        ids(&run(&model, &input, &RunOptions::new(ranks)).0)
    };
    assert_eq!(drawn(1, 3), drawn(4, 3));
    assert_ne!(drawn(1, 3), drawn(1, 4));
}

/// Changes one file of the cache and says what is refused.
fn spoilt(cache: &Path, model: &Model, name: &str, spoil: impl Fn(&mut Vec<u8>)) -> String {
    let path = cache.join(name);
    let sound = std::fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    spoil(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    let input =
        GenerateInput { load_cache: Some(cache.to_owned()), ..GenerateInput::new(vec![1], 1) };
    let listener = Patience(AtomicUsize::new(9));
    let error = generate(model, &input, &RunOptions::new(2), &listener).unwrap_err();
    std::fs::write(&path, sound).unwrap();
    error.to_string()
}

#[test]
fn spoilt_caches_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let (model, other) = (model("tiny-llama3"), model("tiny-qwen3"));
    let input =
        GenerateInput { save_cache: Some(cache.clone()), ..GenerateInput::new(prompt(9), 0) };
    run(&model, &input, &options(2, LayoutKind::Striped));
    let names = || {
        std::fs::read_dir(&cache).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap())
    };
    let shard =
        |rank: u32| names().find(|name| name.starts_with(&format!("shard-{rank}-"))).unwrap();
    let (first, second) = (shard(0), shard(1));

    let flipped = spoilt(&cache, &model, &first, |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert!(flipped.contains(&first) && flipped.contains("SHA-256"), "{flipped}");
    let cut = spoilt(&cache, &model, &second, |bytes| bytes.truncate(bytes.len() - 1));
    assert!(cut.contains(&second) && cut.contains("bytes, the manifest says"), "{cut}");
    let empty = spoilt(&cache, &model, &second, Vec::clear);
    assert!(empty.contains(&second), "{empty}");
    let swap = std::fs::read(cache.join(&second)).unwrap();
    let mixed = spoilt(&cache, &model, &first, |bytes| *bytes = swap.clone());
    assert!(mixed.contains(&first), "{mixed}");
    let edit = |from: &str, to: &str| {
        spoilt(&cache, &model, "manifest.json", |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.contains(from), "{text}");
            *bytes = text.replacen(from, to, 1).into_bytes();
        })
    };
    for (from, to, says) in [
        ("ringattn.cache/1", "ringattn.cache/2", "schema"),
        ("\"layers\":3", "\"layers\":4", "layers"),
        ("\"f32\"", "\"f64\"", "dtype"),
        ("\"end\":9", "\"end\":8", "segments"),
        ("\"start\":0", "\"start\":1", "segments"),
        ("shard-0-", "../shard-0-", "names of cache files"),
        ("shard-0-", "shard-7-", "shard-7-"),
        ("\"kept_from\":0", "\"kept_from\":1", "layer.0.k"),
        ("\"tokens\":[", "\"tokens\":[9999999,", "tokens"),
        ("{", "[", "manifest.json"),
    ] {
        let error = edit(from, to);
        assert!(error.contains(says), "{from} -> {to}: {error}");
    }
    let foreign = spoilt(&cache, &other, &first, |_| ());
    assert!(foreign.contains("another model") && foreign.contains("manifest.json"), "{foreign}");

    let bystander = folder.path().join("bystander");
    std::fs::create_dir(&bystander).unwrap();
    std::fs::write(bystander.join("letter.txt"), "dear").unwrap();
    let input = GenerateInput { save_cache: Some(bystander), ..GenerateInput::new(prompt(3), 0) };
    let listener = Patience(AtomicUsize::new(9));
    let error = generate(&model, &input, &RunOptions::new(1), &listener).unwrap_err().to_string();
    assert!(error.contains("letter.txt"), "{error}");
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let model = model("tiny-llama3");
    let refused = |input: GenerateInput| {
        let listener = Patience(AtomicUsize::new(9));
        generate(&model, &input, &RunOptions::new(2), &listener).unwrap_err().to_string()
    };
    assert!(refused(GenerateInput::new(vec![], 3)).contains("nothing to continue"));
    assert!(refused(GenerateInput::new(vec![1, 256], 3)).contains("token 256 at index 1"));
    let cold = Sampling { temperature: -1.0, ..Sampling::default() };
    let input = GenerateInput { sampling: cold, ..GenerateInput::new(vec![1], 3) };
    assert!(refused(input).contains("temperature"));
    let input = GenerateInput { cache_block: 0, ..GenerateInput::new(vec![1], 3) };
    assert!(refused(input).contains("at least one token"));
    let missing = PathBuf::from("no-such-folder");
    let input = GenerateInput { load_cache: Some(missing), ..GenerateInput::new(vec![1], 3) };
    assert!(refused(input).contains("no-such-folder"));
}
