//! Which choices depend on the largest logit alone.

use super::random_logits;
use crate::rng::Rng;
use crate::sampling::{Lists, Params, Sampler, Stage};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn the_largest_logit_is_enough_for_a_greedy_choice() {
    let mut rng = Rng::new(61);
    // What cuts is skipped at temperature 0.
    let params = Params { top_k: 3, top_p: 0.5, min_p: 0.2, mirostat_tau: 2.0, ..Params::default() };
    let mut sampler = Sampler::new(params, Lists::default()).unwrap();
    assert!(sampler.needs_largest_only());
    for round in 0..200 {
        let logits: Vec<f32> = random_logits(&mut rng, 300).iter().map(|logit| logit.round()).collect();
        let most = logits.iter().copied().fold(f32::MIN, f32::max);
        let first = logits.iter().position(|&logit| logit == most).unwrap() as u32;
        assert_eq!(sampler.sample(&logits).unwrap(), first, "{round}");
    }
}

#[test]
fn what_else_reads_logits_needs_all() {
    let needs = |params: Params, lists: Lists| Sampler::new(params, lists).unwrap().needs_largest_only();
    let (plain, lists) = (Params::default(), Lists::default());
    assert!(needs(plain, lists.clone()));
    for params in [
        Params { temperature: 1.0, ..plain },
        Params { temperature: 1.0, top_k: 1, ..plain },
        Params { logprobs: Some(0), ..plain },
        Params { repetition_penalty: 1.1, ..plain },
        Params { presence_penalty: 0.5, ..plain },
        Params { frequency_penalty: -0.5, ..plain },
        Params { dry_multiplier: 0.8, ..plain },
    ] {
        assert!(!needs(params, lists.clone()), "{params:?}");
    }
    assert!(!needs(plain, Lists { logit_bias: vec![(3, 1.0)], ..lists.clone() }));
    assert!(!needs(plain, Lists { banned_sequences: vec![vec![2]], ..lists.clone() }));
    // Without a stage for it, temperature 0 is none.
    let samplers = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Temperature).collect();
    assert!(!needs(plain, Lists { samplers, ..lists }));
}
