//! The stages are compared with code that sorts everything, and the draws with their probabilities.

mod naive;
mod needs;

use super::candidates::Candidate;
use super::*;
use naive::naive;

fn random_logits(rng: &mut Rng, len: usize) -> Vec<f32> {
    // The values are coarse, so that there are ties.
    (0..len).map(|_| (rng.unit() * 200.0).round() as f32 / 10.0 - 10.0).collect()
}

fn sampler(params: Params) -> Sampler {
    Sampler::new(params, Lists::default()).unwrap()
}

/// Returns the same from the sampler.
fn found(sampler: &mut Sampler, logits: &[f32]) -> Vec<(u32, f64)> {
    sampler.run_chain(logits).unwrap();
    let (most, total) = (sampler.set.max_logit(), sampler.set.total());
    let temperature = sampler.set.temperature;
    let mut left: Vec<Candidate> = sampler.set.remaining().to_vec();
    left.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token)));
    left.iter().map(|c| (c.token, ((f64::from(c.logit) - f64::from(most)) / temperature).exp() / total)).collect()
}

fn same(found: &[(u32, f64)], expected: &[(u32, f64)], what: &str) {
    let tokens = |list: &[(u32, f64)]| list.iter().map(|(token, _)| *token).collect::<Vec<_>>();
    assert_eq!(tokens(found), tokens(expected), "{what}");
    for ((_, p), (_, q)) in found.iter().zip(expected) {
        assert!((p - q).abs() <= 1e-9, "{what}: {p} {q}");
    }
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
                    let expected = naive(&logits, params, &Lists::default(), &[], &mut Rng::new(0));
                    same(&found(&mut sampler(params), &logits), &expected, &format!("vocab {vocab}, {params:?}"));
                }
            }
        }
    }
}

/// Random orders of random stages, with random parameters, after random tokens.
#[test]
fn every_link_in_every_order_is_what_sorting_does() {
    let mut rng = Rng::new(17);
    for round in 0..1500 {
        let vocab = [3, 12, 60, 700, 4000][if round % 50 == 0 { 4 } else { rng.below(4) }];
        let logits = random_logits(&mut rng, vocab);
        // Few different tokens, so that they repeat.
        let tokens: Vec<u32> = (0..rng.below(60)).map(|_| rng.below(vocab.min(4)) as u32).collect();
        let mut off = |value: f32| if rng.below(2) == 0 { Some(value * rng.unit() as f32) } else { None };
        let or = |value: Option<f32>, otherwise: f32| value.unwrap_or(otherwise);
        let params = Params {
            temperature: 0.2 + or(off(2.0), 0.8),
            dynamic_temperature: or(off(1.5), 0.0),
            dynamic_exponent: 0.5 + or(off(2.0), 0.5),
            top_p: or(off(1.0), 1.0),
            min_p: or(off(0.3), 0.0),
            typical_p: or(off(1.0), 1.0),
            top_n_sigma: or(off(2.0), 0.0),
            xtc_probability: or(off(1.0), 0.0),
            xtc_threshold: or(off(0.3), 0.1),
            repetition_penalty: 1.0 + or(off(1.0), 0.0),
            frequency_penalty: or(off(0.5), 0.0),
            presence_penalty: or(off(0.5), 0.0),
            dry_multiplier: or(off(2.0), 0.0),
            dry_base: 1.0 + or(off(1.0), 0.5),
            top_k: rng.below(3) * rng.below(30),
            adaptive_top_k: rng.below(4) == 0,
            penalty_last_n: rng.below(2) * rng.below(30),
            dry_allowed_length: rng.below(4),
            dry_last_n: rng.below(2) * rng.below(40),
            seed: round,
            ..Params::default()
        };
        let mut lists = Lists { dry_breakers: (0..rng.below(3) as u32).collect(), ..Lists::default() };
        for i in (1..lists.samplers.len()).rev() {
            lists.samplers.swap(i, rng.below(i + 1));
        }
        lists.samplers.truncate(1 + rng.below(9));
        if vocab > 20 {
            lists.logit_bias = vec![(7, f32::NEG_INFINITY), (rng.below(vocab) as u32, 3.5)];
            lists.banned_sequences =
                (0..3).map(|_| (0..1 + rng.below(3)).map(|_| rng.below(4) as u32).collect()).collect();
        }
        let mut sampler = Sampler::new(params, lists.clone()).unwrap();
        tokens.iter().for_each(|&token| sampler.accept(token));
        let expected = naive(&logits, params, &lists, &tokens, &mut Rng::new(round));
        same(&found(&mut sampler, &logits), &expected, &format!("{round}: {params:?} {lists:?} {tokens:?}"));
    }
}

#[test]
fn many_are_sorted_as_few_are_ties_by_id() {
    let mut rng = Rng::new(23);
    for len in [100, 2047, 2048, 30_000] {
        let coarse = |rng: &mut Rng| (20.0 * rng.unit() - 10.0).round() as f32 / [1.0, 1e30, -0.0][rng.below(3)];
        let mut logits: Vec<f32> =
            (0..len).map(|_| coarse(&mut rng)).map(|x| if x.is_nan() { 0.0 } else { x }).collect();
        logits[len / 2..].iter_mut().for_each(|logit| *logit += rng.unit() as f32);
        let mut expected: Vec<Candidate> = all(&logits).collect();
        expected.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token)));
        let mut found = Vec::new();
        candidates::best(all(&logits), len, &mut found);
        assert!(found == expected, "{len}");
        candidates::best(all(&logits), len / 3, &mut found);
        assert!(found == expected[..len / 3], "{len}");
    }
}

#[test]
fn a_draw_falls_where_the_running_sum_passes_it() {
    let mut rng = Rng::new(29);
    for len in [1, 7, 255, 256, 257, 5000] {
        let logits = random_logits(&mut rng, len);
        let mut set = CandidateSet::default();
        set.start(&logits);
        let weights: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
        let total: f64 = weights.iter().sum();
        for _ in 0..200 {
            let unit = rng.unit();
            let mut sum = 0.0;
            let passes = |weight: &f64| {
                sum += weight;
                sum > unit * total
            };
            let expected = weights.iter().position(passes).unwrap();
            let (token, probability) = set.draw(unit);
            assert_eq!(token as usize, expected, "{len}: {unit}");
            assert!((probability - weights[expected] / total).abs() < 1e-12);
        }
    }
}

#[test]
fn powers_are_those_of_libm() {
    let mut rng = Rng::new(31);
    let spots = [0.0, -0.0, -1e-300, -f64::MIN_POSITIVE, -0.346_573_590_279_972_6, -std::f64::consts::LN_2, -707.999];
    let many = (0..200_000).map(|i| -rng.unit() * [1.0, 30.0, 708.0][i % 3]);
    for x in spots.into_iter().chain(many) {
        let (found, expected) = (exp_to_zero(x), x.exp());
        assert!((found - expected).abs() <= 5e-16 * expected, "{x}: {found} {expected}");
    }
    assert_eq!([-708.1, -1e300, f64::NEG_INFINITY].map(exp_to_zero), [0.0; 3]);
}

fn logits_of(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

/// The expected values were worked out by hand; most cases are those of llama.cpp's own tests.
#[test]
fn the_links_do_what_llama_cpp_does() {
    let check = |params: Params, lists: Lists, tokens: &[u32], before: &[f32], after: &[f64]| {
        let params = Params { temperature: 1.0, ..params };
        let mut sampler = Sampler::new(params, lists).unwrap();
        tokens.iter().for_each(|&token| sampler.accept(token));
        let mut found: Vec<f64> = found(&mut sampler, &logits_of(before)).iter().map(|(_, p)| *p).collect();
        found.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(found.len(), after.len(), "{params:?}: {found:?}");
        assert!(found.iter().zip(after).all(|(a, b)| (a - b).abs() < 1e-5), "{params:?}: {found:?}");
    };
    let falling = [0.4, 0.3, 0.2, 0.1];
    let none = Lists::default;
    let typical = Params { typical_p: 0.5, ..Params::default() };
    check(typical, none(), &[], &[0.97, 0.01, 0.01, 0.01], &[1.0]);
    check(typical, none(), &[], &[0.4, 0.2, 0.2, 0.2], &[1.0 / 3.0; 3]);
    for (threshold, after) in
        [(0.09, &[1.0][..]), (0.19, &[2.0 / 3.0, 1.0 / 3.0]), (0.29, &[0.5, 1.0 / 3.0, 1.0 / 6.0])]
    {
        let params = Params { xtc_probability: 1.0, xtc_threshold: threshold, ..Params::default() };
        check(params, none(), &[], &falling, after);
    }
    let sigma = |top_n_sigma| Params { top_n_sigma, ..Params::default() };
    check(sigma(1.0), none(), &[], &falling, &[4.0 / 7.0, 3.0 / 7.0]);
    check(sigma(3.0), none(), &[], &falling, &[0.4, 0.3, 0.2, 0.1]);
    let dry = |dry_multiplier| Params { dry_multiplier, dry_base: 1.1, dry_allowed_length: 2, ..Params::default() };
    check(dry(1.0), none(), &[0, 1], &[0.25; 4], &[0.25; 4]);
    check(dry(1.0), none(), &[0, 1, 2, 0, 1], &[0.25; 4], &[0.296923, 0.296923, 0.296923, 0.109232]);
    let three = Lists { dry_breakers: vec![3], ..none() };
    check(dry(1.0), three, &[0, 1, 3, 4, 0, 1], &[0.2; 5], &[0.2; 5]);
    check(dry(2.0), none(), &[0, 1, 2, 0, 1], &[0.2; 5], &[0.241818, 0.241818, 0.241818, 0.241818, 0.032727]);
    let often = Params { frequency_penalty: 0.5, presence_penalty: 0.5, ..Params::default() };
    check(often, none(), &[0, 1, 2, 0, 0], &[0.2; 5], &[0.348299, 0.348299, 0.128132, 0.128132, 0.047137]);
}

#[test]
fn draws_follow_their_probabilities() {
    let logits = random_logits(&mut Rng::new(9), 12);
    let on = Params { temperature: 1.0, ..Params::default() };
    let others = Lists { samplers: vec![Stage::Temperature, Stage::MinP, Stage::TopP], ..Lists::default() };
    for (params, lists) in [
        (Params { temperature: 0.7, seed: 1, ..on }, Lists::default()),
        (Params { temperature: 2.0, top_k: 5, seed: 2, ..on }, Lists::default()),
        (Params { temperature: 1.3, top_p: 0.8, min_p: 0.02, seed: 3, ..on }, Lists::default()),
        (Params { temperature: 3.0, top_p: 0.8, min_p: 0.02, seed: 4, ..on }, others),
        (Params { temperature: 3.0, typical_p: 0.6, seed: 5, ..on }, Lists::default()),
        (Params { temperature: 2.0, top_n_sigma: 1.5, seed: 6, ..on }, Lists::default()),
        (Params { temperature: 2.0, dynamic_temperature: 1.5, dynamic_exponent: 0.7, seed: 7, ..on }, Lists::default()),
        (Params { temperature: 4.0, xtc_probability: 0.4, xtc_threshold: 0.02, seed: 8, ..on }, Lists::default()),
    ] {
        // XTC mixes two distributions by its probability.
        let xtc = f64::from(params.xtc_probability);
        let with = |xtc_probability| {
            let params = Params { xtc_probability, ..params };
            naive(&logits, params, &lists, &[], &mut Rng::new(0))
        };
        let mut expected = [0.0; 12];
        with(0.0).iter().for_each(|(token, p)| expected[*token as usize] += p * (1.0 - xtc));
        with(1.0).iter().for_each(|(token, p)| expected[*token as usize] += p * xtc);
        follows(&mut Sampler::new(params, lists.clone()).unwrap(), &logits, &expected);
    }
}

/// Checks Pearson's statistic of many draws. With up to 11 degrees of freedom, 40 is exceeded less than once in ten thousand
/// times.
fn follows(sampler: &mut Sampler, logits: &[f32], expected: &[f64; 12]) {
    const DRAWS: usize = 40_000;
    let mut counts = [0usize; 12];
    for _ in 0..DRAWS {
        counts[sampler.sample(logits).unwrap() as usize] += 1;
    }
    let mut statistic = 0.0;
    for (&count, &p) in counts.iter().zip(expected) {
        assert!(p > 0.0 || count == 0, "{:?}: {counts:?} {expected:?}", sampler.params);
        if p > 0.0 {
            statistic += (count as f64 - p * DRAWS as f64).powi(2) / (p * DRAWS as f64);
        }
    }
    assert!(statistic < 40.0, "{:?}: {statistic}", sampler.params);
}

#[test]
fn mirostat_keeps_to_its_surprise() {
    // With eta 0 the limit stays where it begins, at twice tau, and the distribution with it.
    let logits = random_logits(&mut Rng::new(9), 12);
    let still =
        Params { temperature: 3.0, mirostat_tau: 1.6, mirostat_eta: 0.0, top_k: 1, seed: 3, ..Params::default() };
    let all = naive(&logits, Params { top_k: 0, ..still }, &Lists::default(), &[], &mut Rng::new(0));
    let kept: Vec<&(u32, f64)> = all.iter().filter(|(_, p)| -p.log2() <= f64::from(2.0f32 * 1.6)).collect();
    assert!((2..12).contains(&kept.len()), "{}", kept.len());
    let total: f64 = kept.iter().map(|(_, p)| p).sum();
    let mut expected = [0.0; 12];
    kept.iter().for_each(|(token, p)| expected[*token as usize] = p / total);
    follows(&mut sampler(still), &logits, &expected);

    // Step by step, with the limit written out; and the mean surprise comes near what was asked for.
    let params = Params { temperature: 1.0, mirostat_tau: 3.0, mirostat_eta: 0.1, seed: 5, ..Params::default() };
    let (mut sampler, mut rng, mut noise) = (sampler(params), Rng::new(5), Rng::new(6));
    let (mut mu, mut surprise) = (6.0, 0.0);
    const STEPS: usize = 2000;
    for _ in 0..STEPS {
        let logits: Vec<f32> = (0..300).map(|_| (noise.unit() * 8.0) as f32).collect();
        let mut all = naive(&logits, params, &Lists::default(), &[], &mut Rng::new(0));
        let kept = all.iter().take_while(|(_, p)| -p.log2() <= mu).count().max(1);
        all.truncate(kept);
        let total: f64 = all.iter().map(|(_, p)| p).sum();
        let mut rest = rng.unit() * total;
        let (token, p) = all
            .iter()
            .find(|(_, p)| {
                rest -= p;
                rest < 0.0
            })
            .unwrap();
        assert_eq!(sampler.sample(&logits).unwrap(), *token);
        let seen = -(p / total).log2();
        surprise += seen;
        mu -= f64::from(0.1f32) * (seen - 3.0);
    }
    assert!((surprise / STEPS as f64 - 3.0).abs() < 0.05, "{}", surprise / STEPS as f64);
}

#[test]
fn a_seed_fixes_the_tokens() {
    let logits = random_logits(&mut Rng::new(1), 500);
    let run = |seed| -> Vec<u32> {
        let mut sampler = sampler(Params { temperature: 1.0, seed, ..Params::default() });
        (0..20).map(|_| sampler.sample(&logits).unwrap()).collect()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn the_penalty_moves_what_was_seen() {
    let mut sampler = sampler(Params { repetition_penalty: 2.0, ..Params::default() });
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
fn at_temperature_0_only_what_changes_logits_counts() {
    let logits = [1.0, 3.0, 2.0];
    let greedy =
        Params { top_n_sigma: 0.1, typical_p: 0.01, xtc_probability: 1.0, xtc_threshold: 0.0, ..Params::default() };
    assert_eq!(sampler(greedy).sample(&logits).unwrap(), 1);
    assert_eq!(sampler(Params { mirostat_tau: 5.0, ..greedy }).sample(&logits).unwrap(), 1);
    let lists = Lists { logit_bias: vec![(1, f32::NEG_INFINITY)], ..Lists::default() };
    assert_eq!(Sampler::new(greedy, lists).unwrap().sample(&logits).unwrap(), 2);
    let lists = Lists { banned_sequences: vec![vec![5, 1], vec![2]], ..Lists::default() };
    let mut sampler = Sampler::new(greedy, lists).unwrap();
    assert_eq!(sampler.sample(&logits).unwrap(), 1, "5 has not come");
    sampler.accept(5);
    assert_eq!(sampler.sample(&logits).unwrap(), 0, "2 is banned for itself");
}

#[test]
fn logprobs_are_of_the_logits_as_they_were() {
    let logits = random_logits(&mut Rng::new(3), 200);
    let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
    let mut expected: Vec<(u32, f64)> =
        logits.iter().enumerate().map(|(i, &l)| (i as u32, (f64::from(l).exp() / total).ln())).collect();
    let logprobs = Logprobs::of(&logits, 17, 5);
    assert!((f64::from(logprobs.chosen) - expected[17].1).abs() < 1e-5);
    expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    assert_eq!(logprobs.top.len(), 5);
    for ((token, found), (other, expected)) in logprobs.top.iter().zip(&expected) {
        assert_eq!(token, other);
        assert!((f64::from(*found) - expected).abs() < 1e-5);
    }
    assert!(Logprobs::of(&logits, 17, 0).top.is_empty());
    assert_eq!(Logprobs::of(&logits, 17, 1000).top.len(), 200);
}

#[test]
fn what_is_not_finite_is_refused() {
    let mut greedy = sampler(Params::default());
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut logits = vec![0.0; 100];
        logits[77] = bad;
        let error = greedy.sample(&logits).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NonFinite);
        assert!(error.to_string().contains("token 77"), "{error}");
    }
    let refused = |params: Params| {
        let error = Sampler::new(params, Lists::default()).unwrap_err();
        (error.kind, error.place.option.clone().unwrap())
    };
    let wrong = Params { top_p: 1.5, ..Params::default() };
    assert_eq!(refused(wrong), (ErrorKind::InvalidArgument, "topP".to_owned()));
    let wrong = Params { dry_base: 0.5, ..Params::default() };
    assert_eq!(refused(wrong), (ErrorKind::InvalidArgument, "dryBase".to_owned()));
    assert!(Sampler::new(Params { temperature: f32::NAN, ..Params::default() }, Lists::default()).is_err());
    for (lists, option) in [
        (Lists { logit_bias: vec![(100, 1.0)], ..Lists::default() }, "logitBias"),
        (Lists { logit_bias: vec![(1, f32::NAN)], ..Lists::default() }, "logitBias"),
        (Lists { logit_bias: vec![(1, f32::INFINITY)], ..Lists::default() }, "logitBias"),
        (Lists { banned_sequences: vec![vec![1, 100]], ..Lists::default() }, "bannedSequences"),
    ] {
        assert_eq!(lists.check(100).unwrap_err().place.option.as_deref(), Some(option));
    }
}

/// Prints the milliseconds for each token: `cargo test --release --lib sampling::tests::cost -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table"]
fn cost() {
    const VOCAB: usize = 128_256;
    let mut rng = Rng::new(1);
    // Bell-shaped, as a model's are, with a few that stand out.
    let bell = |rng: &mut Rng| (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    let mut logits: Vec<f32> = (0..VOCAB).map(|_| (2.5 * bell(&mut rng)) as f32).collect();
    (0..30).for_each(|i| logits[rng.below(VOCAB)] = 8.0 + i as f32 / 4.0);
    let all = Params {
        temperature: 0.8,
        dynamic_temperature: 0.3,
        top_k: 40,
        adaptive_top_k: true,
        top_p: 0.95,
        min_p: 0.02,
        typical_p: 0.95,
        top_n_sigma: 3.0,
        xtc_probability: 0.5,
        repetition_penalty: 1.1,
        frequency_penalty: 0.1,
        presence_penalty: 0.1,
        dry_multiplier: 0.8,
        ..Params::default()
    };
    let plain = Params { temperature: 0.8, ..Params::default() };
    for (name, params) in [
        ("greedy", Params::default()),
        ("temperature alone", plain),
        ("top-k 40, top-p 0.95", Params { top_k: 40, top_p: 0.95, ..plain }),
        ("top-p 0.95 of all", Params { top_p: 0.95, ..plain }),
        ("typical-p 0.95 of all", Params { typical_p: 0.95, ..plain }),
        ("mirostat", Params { mirostat_tau: 5.0, ..plain }),
        ("the whole chain", all),
        ("the whole chain, 10 logprobs", Params { logprobs: Some(10), ..all }),
    ] {
        let mut sampler = sampler(params);
        (0..4096).for_each(|_| sampler.accept(rng.below(1000) as u32));
        let mut times: Vec<f64> = (0..40)
            .map(|_| {
                let start = std::time::Instant::now();
                let token = sampler.sample(&logits).unwrap();
                params.logprobs.map(|count| Logprobs::of(&logits, token, count));
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{name:30} {:.3}", times[times.len() / 2]);
    }
}

/// Of every length around a whole chunk, with the largest and what is not finite at every place.
#[test]
fn the_largest_logit_is_found_wherever_it_is() {
    for len in 1..40 {
        for at in 0..len {
            for (others, most) in [(-2.5, -2.0), (0.0, 1e-40), (-1e38, 3e38), (-1e-40, 0.0), (f32::NEG_INFINITY, -3e38)]
            {
                let mut logits = vec![others; len];
                logits[at] = most;
                assert_eq!((argmax(&logits), max(&logits)), (at, most), "{others} {most} {at} of {len}");
                assert_eq!(check_finite(&logits).is_ok(), others.is_finite() || len == 1);
            }
            // Both zeros are alike, and the first of several is taken.
            let mut logits = vec![0.0; len];
            logits[at] = -0.0;
            assert_eq!(argmax(&logits), 0);
            for wrong in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                logits[at] = wrong;
                assert!(check_finite(&logits).unwrap_err().to_string().contains(&format!("token {at} ")));
            }
        }
    }
    assert_eq!(argmax(&[f32::NEG_INFINITY; 20]), 0);
}
