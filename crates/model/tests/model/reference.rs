//! A plain reference forward pass in f64.

use crate::common::{Sizes, Tiny};

/// [`reference_over`] rows at positions from 0 on; each attends to the first `visible_ends[row]` rows.
pub fn reference(tiny: &Tiny, tokens: &[u32], visible_ends: &[usize]) -> Vec<Vec<f64>> {
    let rows: Vec<_> = tokens.iter().copied().zip(0..).collect();
    let seen: Vec<Vec<usize>> = visible_ends.iter().map(|&end| (0..end).collect()).collect();
    reference_over(tiny, &rows, &seen)
}

/// The reference: each row of one sequence, a token and its position, attends to the rows `seen[row]`.
/// Plain loops in f64, written from the architecture's definition. Returns logits `[rows, vocab]`.
pub fn reference_over(tiny: &Tiny, rows: &[(u32, usize)], seen: &[Vec<usize>]) -> Vec<Vec<f64>> {
    let s = Sizes::of(&tiny.config);
    let theta = tiny.config["rope_theta"].as_f64().unwrap();
    let t = "model.transformer";
    let embed = matrix(tiny, &format!("{t}.wte"));
    let inputs = rows.iter();
    let mut x: Vec<Vec<f64>> = inputs.map(|&(id, _)| embed[id as usize].clone()).collect();
    for i in 0..s.layers {
        let b = format!("{t}.blocks.{i}");
        let project = |name: &str| -> Vec<Vec<f64>> {
            let normed = x.iter().map(|x| norm(tiny, &format!("{b}.attn_norm"), x));
            normed.map(|x| linear(tiny, &format!("{b}.{name}"), &x)).collect()
        };
        let (mut q, mut k, v) = (project("q_proj"), project("k_proj"), project("v_proj"));
        for (row, &(_, position)) in rows.iter().enumerate() {
            for heads in [&mut q[row], &mut k[row]] {
                let heads = heads.chunks_mut(s.c);
                heads.for_each(|head| rotate(head, position, theta));
            }
        }
        for row in 0..rows.len() {
            let mut mixed = Vec::new();
            for head in 0..s.heads {
                let group = head / (s.heads / s.num_kv_heads);
                let q = &q[row][head * s.c..(head + 1) * s.c];
                let part = group * s.c..(group + 1) * s.c;
                let weight =
                    |&row: &usize| (dot(q, &k[row][part.clone()]) / (s.c as f64).sqrt()).exp();
                let weights: Vec<f64> = seen[row].iter().map(weight).collect();
                let total: f64 = weights.iter().sum();
                for j in part {
                    let values = weights.iter().zip(&seen[row]);
                    let value: f64 = values.map(|(w, &row)| w * v[row][j]).sum();
                    mixed.push(value / total);
                }
            }
            add(&mut x[row], &linear(tiny, &format!("{b}.attn_out"), &mixed));
        }
        for x in &mut x {
            let normed = norm(tiny, &format!("{b}.ff_norm"), x);
            let gate = linear(tiny, &format!("{b}.ff_proj"), &normed);
            let up = linear(tiny, &format!("{b}.up_proj"), &normed);
            let pairs = gate.iter().zip(&up);
            let inner: Vec<f64> = pairs.map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(x, &linear(tiny, &format!("{b}.ff_out"), &inner));
        }
    }
    let head = |x: Vec<f64>| {
        let x = norm(tiny, &format!("{t}.ln_f"), &x);
        let mut logits = match tiny.config["weight_tying"] == true {
            true => embed.iter().map(|row| dot(row, &x)).collect(),
            false => linear(tiny, &format!("{t}.ff_out"), &x),
        };
        logits.truncate(s.vocab);
        logits
    };
    x.into_iter().map(head).collect()
}

fn matrix(tiny: &Tiny, name: &str) -> Vec<Vec<f64>> {
    let (shape, values) = &tiny.tensors[&format!("{name}.weight")];
    let rows = values.chunks(shape[1]);
    rows.map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect()
}

fn linear(tiny: &Tiny, name: &str, x: &[f64]) -> Vec<f64> {
    let mut y: Vec<f64> = matrix(tiny, name).iter().map(|row| dot(row, x)).collect();
    if let Some((_, bias)) = tiny.tensors.get(&format!("{name}.bias")) {
        let pairs = y.iter_mut().zip(bias);
        pairs.for_each(|(y, &b)| *y += f64::from(b));
    }
    y
}

fn norm(tiny: &Tiny, name: &str, x: &[f64]) -> Vec<f64> {
    let weight = &tiny.tensors[&format!("{name}.weight")].1;
    let eps = tiny.config["rms_norm_eps"].as_f64().unwrap();
    let scale = (dot(x, x) / x.len() as f64 + eps).sqrt();
    let pairs = x.iter().zip(weight);
    pairs.map(|(x, &w)| x / scale * f64::from(w)).collect()
}

fn rotate(head: &mut [f64], position: usize, theta: f64) {
    let half = head.len() / 2;
    for i in 0..half {
        let angle = position as f64 * theta.powf(-(i as f64) / half as f64);
        let (a, b) = (head[i], head[i + half]);
        head[i] = a * angle.cos() - b * angle.sin();
        head[i + half] = b * angle.cos() + a * angle.sin();
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
