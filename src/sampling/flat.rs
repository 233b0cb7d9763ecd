//! Sampling options flattened into one list of numbers, as they cross from JavaScript: two dozen named fields would weigh more than
//! the samplers do.

use std::iter::Copied;
use std::slice::Iter;

use super::{Lists, Params, Stage};

type Flat<'a> = Copied<Iter<'a, f64>>;

/// Reads the list. NaN stands for a default, and so does whatever is left out at the end.
///
/// First come those of [`Params::floats`], then the counts, then the switches; each kind is in the order of the option table, which
/// `tests/options.rs` holds this to. The upper and the lower half of the seed follow. Lists come last, each behind its length: ids
/// with their bias; banned sequences, each behind its own length; breakers; the links of the chain, by their place in the default
/// order.
pub fn decode(flat: &[f64]) -> (Params, Lists) {
    let (mut params, mut lists) = (Params::default(), Lists::default());
    let mut flat: Flat = flat.iter().copied();
    for float in params.floats() {
        *float = next(&mut flat).map_or(*float, |value| value as f32);
    }
    let Params { top_k, penalty_last_n, dry_allowed_length, dry_last_n, .. } = &mut params;
    for count in [top_k, penalty_last_n, dry_allowed_length, dry_last_n] {
        *count = next(&mut flat).map_or(*count, |value| value as usize);
    }
    params.logprobs = next(&mut flat).map(|value| value as usize);
    params.adaptive_top_k = id(&mut flat) != 0;
    params.prompt_lookup = id(&mut flat) != 0;
    params.mtp_draft = next(&mut flat).is_none_or(|on| on != 0.0);
    params.seed = u64::from(id(&mut flat)) << 32 | u64::from(id(&mut flat));
    lists.logit_bias = (0..id(&mut flat)).map(|_| (id(&mut flat), next(&mut flat).unwrap_or(0.0) as f32)).collect();
    lists.banned_sequences = (0..id(&mut flat)).map(|_| ids(&mut flat)).collect();
    lists.dry_breakers = ids(&mut flat);
    if flat.len() > 0 {
        lists.samplers = ids(&mut flat).into_iter().filter_map(|link| Stage::ALL.get(link as usize).copied()).collect();
    }
    (params, lists)
}

fn next(flat: &mut Flat) -> Option<f64> {
    flat.next().filter(|value| !value.is_nan())
}

fn id(flat: &mut Flat) -> u32 {
    next(flat).unwrap_or(0.0) as u32
}

fn ids(flat: &mut Flat) -> Vec<u32> {
    (0..id(flat)).map(|_| id(flat)).collect()
}
