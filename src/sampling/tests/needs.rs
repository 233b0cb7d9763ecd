//! A choice from the logits that it needs, against one from all.

use super::random_logits;
use crate::rng::Rng;
use crate::sampling::{Lists, Params, Sampler};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn needed_logits_are_enough() {
    let mut rng = Rng::new(61);
    let (mut greedy, mut cut) = (0, 0);
    for round in 0..400 {
        let mut params = Params {
            temperature: [0.0, 0.7, 1.0][rng.below(3)],
            top_k: [0, 1, 5, 40][rng.below(4)],
            seed: round,
            ..Params::default()
        };
        match rng.below(16) {
            0 => params.top_n_sigma = 2.0,
            1 => params.dynamic_temperature = 0.3,
            2 => params.mirostat_tau = 3.0,
            3 => params.repetition_penalty = 1.1,
            4 => params.dry_multiplier = 0.8,
            5 => params.logprobs = Some(2),
            6 => params.adaptive_top_k = true,
            7 => (params.xtc_probability, params.xtc_threshold) = (0.5, 0.02),
            8 => params.typical_p = 0.8,
            9 | 10 => params.top_p = 0.8,
            11 | 12 => params.min_p = 0.05,
            _ => {}
        }
        let mut lists = Lists::default();
        if rng.below(4) == 0 {
            lists.samplers.rotate_left(rng.below(9));
        }
        match rng.below(12) {
            0 => lists.logit_bias = vec![(3, 1.0)],
            1 => lists.banned_sequences = vec![vec![2]],
            _ => {}
        }
        let mut sampler = Sampler::new(params, lists).unwrap();
        let Some(count) = sampler.needs() else { continue };
        *(if params.temperature == 0.0 { &mut greedy } else { &mut cut }) += 1;
        let logits: Vec<f32> = random_logits(&mut rng, 300).iter().map(|logit| (8.0 * logit).round() / 8.0).collect();
        let mut sorted = logits.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let some: Vec<f32> =
            logits.iter().map(|&logit| if logit >= sorted[count - 1] { logit } else { f32::NEG_INFINITY }).collect();
        let mut other = sampler.clone();
        for _ in 0..5 {
            let expected = sampler.sample(&logits).unwrap();
            assert_eq!(other.sample_largest(&some).unwrap(), expected, "{round}: {params:?}");
        }
    }
    assert!(greedy > 40 && cut > 40, "{greedy} {cut}");
    let needs = |params: Params| Sampler::new(params, Lists::default()).unwrap().needs();
    assert_eq!(needs(Params::default()), Some(1));
    assert_eq!(needs(Params { temperature: 1.0, ..Params::default() }), None);
    assert_eq!(needs(Params { temperature: 1.0, top_p: 0.9, ..Params::default() }), None);
    assert_eq!(needs(Params { temperature: 1.0, top_k: 40, top_p: 0.9, ..Params::default() }), Some(41));
    assert_eq!(needs(Params { temperature: 1.0, top_k: 40, top_n_sigma: 1.0, ..Params::default() }), None);
    assert_eq!(needs(Params { logprobs: Some(0), ..Params::default() }), None);
    assert_eq!(needs(Params { presence_penalty: 0.5, ..Params::default() }), None);
}
