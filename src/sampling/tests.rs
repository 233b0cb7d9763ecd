//! Against sorting everything, and the draws against their probabilities.

use super::*;

fn random_logits(rng: &mut Rng, len: usize) -> Vec<f32> {
    // Coarse values, so that there are ties.
    (0..len).map(|_| (rng.unit() * 200.0).round() as f32 / 10.0 - 10.0).collect()
}

/// The kept tokens and their probabilities, by full sorts.
fn naive(logits: &[f32], params: &Params) -> Vec<(u32, f64)> {
    let mut sorted: Vec<(u32, f64)> = logits.iter().enumerate().map(|(i, &l)| (i as u32, f64::from(l))).collect();
    sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    if params.top_k > 0 {
        sorted.truncate(params.top_k);
    }
    let weights: Vec<f64> = sorted.iter().map(|(_, l)| (l - sorted[0].1).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let mut cut = sorted.len();
    for (i, weight) in weights.iter().enumerate() {
        let full = params.top_p < 1.0 && i > 0 && sum >= f64::from(params.top_p) * total;
        if full || (i > 0 && *weight < f64::from(params.min_p)) {
            cut = i;
            break;
        }
        sum += weight;
    }
    sorted.truncate(cut);
    let temperature = f64::from(params.temperature);
    let weights: Vec<f64> = sorted.iter().map(|(_, l)| ((l - sorted[0].1) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    sorted.iter().zip(weights).map(|((token, _), weight)| (*token, weight / total)).collect()
}

#[test]
fn what_is_kept_is_what_sorting_keeps() {
    let mut rng = Rng::new(5);
    for vocab in [1, 2, 50, 1000, 5000] {
        for top_k in [0, 1, 40, 300] {
            for top_p in [0.0, 0.3, 0.95, 1.0] {
                for min_p in [0.0, 0.05, 1.0] {
                    let logits = random_logits(&mut rng, vocab);
                    let params = Params { temperature: 1.0, top_k, top_p, min_p, ..Params::default() };
                    let mut kept = Vec::new();
                    keep::likeliest(&logits, &params, &mut kept);
                    let mut found: Vec<u32> = kept.iter().map(|kept| kept.token).collect();
                    let mut expected: Vec<u32> = naive(&logits, &params).iter().map(|(token, _)| *token).collect();
                    if (top_k == 0 || top_k >= vocab) && top_p == 1.0 && min_p == 0.0 {
                        found.sort_unstable();
                        expected.sort_unstable();
                    }
                    assert_eq!(found, expected, "vocab {vocab}, {params:?}");
                }
            }
        }
    }
}

#[test]
fn draws_follow_their_probabilities() {
    let logits = random_logits(&mut Rng::new(9), 12);
    for params in [
        Params { temperature: 0.7, seed: 1, ..Params::default() },
        Params { temperature: 2.0, top_k: 5, seed: 2, ..Params::default() },
        Params { temperature: 1.3, top_p: 0.8, min_p: 0.02, seed: 3, ..Params::default() },
    ] {
        let mut sampler = Sampler::new(params, Lists::default()).unwrap();
        let mut counts = [0usize; 12];
        const DRAWS: usize = 40_000;
        for _ in 0..DRAWS {
            counts[sampler.sample(&logits).unwrap() as usize] += 1;
        }
        // Pearson's statistic; with up to 11 degrees of freedom 40 is beyond one in ten thousand.
        let expected = naive(&logits, &params);
        let statistic: f64 = expected
            .iter()
            .map(|&(token, p)| (counts[token as usize] as f64 - p * DRAWS as f64).powi(2) / (p * DRAWS as f64))
            .sum();
        assert!(statistic < 40.0, "{params:?}: {statistic}");
        assert_eq!(expected.iter().map(|&(token, _)| counts[token as usize]).sum::<usize>(), DRAWS);
    }
}

#[test]
fn a_seed_fixes_the_tokens() {
    let logits = random_logits(&mut Rng::new(1), 500);
    let run = |seed| -> Vec<u32> {
        let mut sampler =
            Sampler::new(Params { temperature: 1.0, seed, ..Params::default() }, Lists::default()).unwrap();
        (0..20).map(|_| sampler.sample(&logits).unwrap()).collect()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn the_penalty_moves_what_was_seen() {
    let mut sampler = Sampler::new(Params { repetition_penalty: 2.0, ..Params::default() }, Lists::default()).unwrap();
    let logits = [3.0, 2.0, -1.0];
    assert_eq!(sampler.sample(&logits).unwrap(), 0);
    sampler.accept(0);
    sampler.accept(0);
    assert_eq!(sampler.sample(&logits).unwrap(), 1, "3 / 2 < 2");
    sampler.accept(1);
    assert_eq!(sampler.sample(&logits).unwrap(), 0, "3 / 2 > 2 / 2");
    assert_eq!(sampler.sample(&[-1.0, -1.5, -3.0]).unwrap(), 0, "-1 · 2 > -1.5 · 2 > -3");
}

#[test]
fn what_is_not_finite_is_refused() {
    let mut sampler = Sampler::new(Params::default(), Lists::default()).unwrap();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut logits = vec![0.0; 100];
        logits[77] = bad;
        let error = sampler.sample(&logits).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NonFinite);
        assert!(error.to_string().contains("token 77"), "{error}");
    }
    let error = Sampler::new(Params { top_p: 1.5, ..Params::default() }, Lists::default()).unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("topP")));
    assert!(Sampler::new(Params { temperature: f32::NAN, ..Params::default() }, Lists::default()).is_err());
}
