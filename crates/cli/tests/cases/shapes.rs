//! Sound tensors that do not fit together, and numbers that cannot be attended.

use super::{Table, qkv};
use crate::support::Tensor;
use safetensors::Dtype;

pub(crate) fn add(table: &mut Table<'_>) {
    disagreeing(table);
    positions(table);
    numbers(table);
}

fn disagreeing(table: &mut Table<'_>) {
    let [q, k, v] = qkv();
    let of = |shape: &[usize]| Tensor::random(shape, 4);
    let mut with = |name: &str, [q, k, v]: [&Tensor; 3], says| {
        table.tensors(name, &[("q", q), ("k", k), ("v", v)], (2, says));
    };
    with("q of 2 dimensions", [&of(&[8, 4]), &k, &v], "tensor q has shape [8, 4]");
    with("q of 5 dimensions", [&of(&[1, 1, 4, 8, 4]), &k, &v], "shape");
    with("k of 1 dimension", [&q, &of(&[64]), &v], "tensor k has shape [64]");
    with("no heads", [&of(&[0, 8, 4]), &k, &v], "at least one head");
    with("no key heads", [&q, &of(&[0, 8, 4]), &of(&[0, 8, 4])], "at least one head");
    with("no dimension", [&of(&[4, 8, 0]), &of(&[2, 8, 0]), &of(&[2, 8, 0])], "dimension");
    with("heads that do not divide", [&of(&[3, 8, 4]), &k, &v], "2 key heads do not divide 3");
    with("more key heads", [&of(&[1, 8, 4]), &k, &v], "2 key heads do not divide 1");
    with("k of another dimension", [&q, &of(&[2, 8, 5]), &v], "the head dimension of k is 5");
    with("v of another dimension", [&q, &k, &of(&[2, 8, 5])], "the head dimension of v is 5");
    with("v of other heads", [&q, &k, &of(&[1, 8, 4])], "the number of heads of v is 1");
    with("v of other tokens", [&q, &k, &of(&[2, 7, 4])], "the number of tokens of v is 7");
    with("other lengths", [&q, &of(&[2, 7, 4]), &of(&[2, 7, 4])], "q_positions");
    with("batch of q only", [&of(&[1, 4, 8, 4]), &k, &v], "k has shape [2, 8, 4]");
    with("batch of k only", [&q, &of(&[1, 2, 8, 4]), &v], "need a batch");
    let (batch_q, batch_k) = (of(&[2, 4, 8, 4]), of(&[2, 2, 8, 4]));
    with("other batch in k", [&batch_q, &of(&[1, 4, 8, 4]), &batch_k], "need a batch");
    with("other batch in v", [&batch_q, &batch_k, &of(&[4, 1, 8, 4])], "v has shape");
    with("dimension 257", [&of(&[1, 8, 257]), &of(&[1, 8, 257]), &of(&[1, 8, 257])], "256");
    let many_heads = Tensor::f32(&[1 << 58, 0, 64], &[]);
    with("2^58 heads", [&many_heads; 3], "288230376151711744 heads");
    with("types of k and v", [&q, &k.to_bf16(), &v], "k is bf16, v is f32");
}

fn positions(table: &mut Table<'_>) {
    let [q, k, v] = qkv();
    let sound = Tensor::i64(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let mut with = |name: &str, positions: &[(&str, &Tensor)], expected| {
        let tensors = [&[("q", &q), ("k", &k), ("v", &v)], positions].concat();
        table.tensors(name, &tensors, expected);
    };
    with("q_positions alone", &[("q_positions", &sound)], (2, "k_positions is not"));
    with("k_positions alone", &[("k_positions", &sound)], (2, "q_positions is not"));
    let both =
        |q_positions, k_positions| [("q_positions", q_positions), ("k_positions", k_positions)];
    let short = Tensor::i64(&[0, 1, 2]);
    with("short q_positions", &both(&short, &sound), (2, "the length of q_positions is 3"));
    with("short k_positions", &both(&sound, &short), (2, "the length of k_positions is 3"));
    let decreasing = Tensor::i64(&[0, 1, 2, 5, 4, 5, 6, 7]);
    let says = "k_positions must not decrease: entry 4 is 4";
    with("decreasing positions", &both(&sound, &decreasing), (2, says));
    let negative = Tensor::i64(&[-1, 1, 2, 3, 4, 5, 6, 7]);
    with("negative position", &both(&negative, &sound), (3, "entry 0 is -1"));
    let unsigned = |values: &[i64]| Tensor { dtype: Dtype::U64, ..Tensor::i64(values) };
    let large = unsigned(&[0, 1, 2, 3, 4, 5, 6, i64::MIN]);
    let says = "tensor q_positions: expected positions from 0 to 2^63 - 1, entry 7 is \
                9223372036854775808";
    with("position of 2^63", &both(&large, &sound), (3, says));
    let largest = unsigned(&[0, 1, 2, -1, 4, 5, 6, 7]);
    let says = "tensor k_positions: expected positions from 0 to 2^63 - 1, entry 3 is \
                18446744073709551615";
    with("position of 2^64-1", &both(&sound, &largest), (3, says));
    let float = Tensor::random(&[8], 1);
    with("positions in f32", &both(&sound, &float), (3, "tensor k_positions: expected I64"));
    let matrix = Tensor { shape: vec![2, 4], ..sound.clone() };
    with("positions of 2 dimensions", &both(&matrix, &sound), (2, "one position per token"));
}

fn numbers(table: &mut Table<'_>) {
    let [q, k, v] = qkv();
    let planted = |tensor: &Tensor, token: usize, value: f32| {
        let mut planted = tensor.clone();
        // Head 1, dimension 2.
        let at = 4 * ((8 + token) * 4 + 2);
        planted.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        planted
    };
    let mut with = |name: &str, [q, k, v]: [&Tensor; 3], says| {
        table.tensors(name, &[("q", q), ("k", k), ("v", v)], (10, says));
    };
    with("NaN in q", [&planted(&q, 3, f32::NAN), &k, &v], "q holds a NaN");
    with("NaN in k", [&q, &planted(&k, 5, f32::NAN), &v], "k holds a NaN");
    with("infinity in v", [&q, &k, &planted(&v, 7, f32::NEG_INFINITY)], "token 7");
    let large = |shape: &[usize]| Tensor::f32(shape, &vec![1e30; shape.iter().product()]);
    with("logits that overflow", [&large(&[4, 8, 4]), &large(&[2, 8, 4]), &v], "overflow");
    let wide = Tensor::f32(&[2, 8, 4], &[1e6; 64]);
    with("an out beyond f16", [&q.to_f16(), &k, &wide], "beyond the largest f16");
}
