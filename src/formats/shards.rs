//! Models in several files: checks that the given files are all shards of one model, each once.

use std::borrow::Borrow;

use super::gguf::Metadata;
use super::{Tensor, sorted};
use crate::error::{Error, ErrorKind, Result};

/// A file's metadata and the number of its tensors.
pub type Shard<'a> = (&'a Metadata, usize);

/// Checks the shards of a split GGUF, given in any order. Returns the index of the first one, which has the model's metadata.
///
/// # Errors
/// `BadHeader` if shards do not belong together or one is given twice, `NotFound` with the numbers of missing ones, `BadValue`.
pub fn first_shard(shards: &[Shard]) -> Result<usize> {
    let mut indices: Vec<Option<usize>> = Vec::new();
    for (index, (metadata, _)) in shards.iter().enumerate() {
        // The count is 0 in a file that was merged from shards.
        let count = metadata.uint("split.count")?.unwrap_or(1).max(1);
        let number = metadata.uint("split.no")?.unwrap_or(0);
        if index == 0 {
            indices.resize(count.min(MAX_PARTS) as usize, None);
        }
        if count != indices.len() as u64 {
            return Err(bad("split.count", "wrong number of parts").expected(indices.len(), count));
        }
        if number >= count {
            return Err(bad("split.no", "wrong part number").expected(format_args!("0 to {}", count - 1), number));
        }
        if indices[number as usize].replace(index).is_some() {
            let reason = match count {
                1 => "several GGUF files that are not parts of one model".to_owned(),
                _ => format!("part {} of {count} is given twice", number + 1),
            };
            return Err(bad("split.no", &reason));
        }
    }
    let missing: Vec<usize> = (1..=indices.len()).filter(|number| indices[number - 1].is_none()).collect();
    if !missing.is_empty() {
        let (named, more) = if missing.len() > MAX_LISTED { (MAX_LISTED, " …") } else { (missing.len(), "") };
        let named = format!("{:?}", &missing[..named]);
        let reason =
            format!("of the model's {} parts there is no {}{more}", indices.len(), named.trim_matches(['[', ']']));
        return Err(Error::new(ErrorKind::NotFound, reason).key("split.count").expected(indices.len(), shards.len()));
    }
    let tensors: usize = shards.iter().map(|(_, tensors)| tensors).sum();
    for (metadata, _) in shards {
        let promised = metadata.uint("split.tensors.count")?.unwrap_or(tensors as u64);
        if promised != tensors as u64 {
            return Err(bad("split.tensors.count", "wrong number of tensors in all parts").expected(promised, tensors));
        }
    }
    Ok(indices.first().copied().flatten().unwrap_or(0))
}

/// The largest number of shards; the format's count is a u16.
const MAX_PARTS: u64 = u16::MAX as u64;
/// The largest number of missing shards that an error lists.
const MAX_LISTED: usize = 10;

fn bad(key: &str, reason: &str) -> Error {
    Error::new(ErrorKind::BadHeader, reason).key(key)
}

/// Compares a file's tensors with those that the index promises. Returns a warning for each tensor that the index does not
/// list.
///
/// # Errors
/// `MissingTensor` for one that the file does not have.
pub fn check_index(tensors: &[impl Borrow<Tensor>], promised: &[String]) -> Result<Vec<String>> {
    let there = sorted(tensors.iter().map(|tensor| &*tensor.borrow().name).collect());
    let promised = sorted(promised.iter().map(|name| &**name).collect());
    if let Some(name) = promised.iter().find(|name| there.binary_search(name).is_err()) {
        return Err(Error::new(ErrorKind::MissingTensor, "the index says that this file has the tensor").tensor(*name));
    }
    let extra = there.iter().filter(|name| promised.binary_search(name).is_err());
    Ok(extra.map(|name| format!("the index does not know of {name}")).collect())
}

/// Refuses tensors that occur in two files.
///
/// # Errors
/// `BadHeader` with the tensor.
pub fn refuse_twice<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<()> {
    let names = sorted(tensors.map(|tensor| &*tensor.name).collect());
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::new(ErrorKind::BadHeader, "two files have this tensor").tensor(pair[0])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::gguf::Value;

    fn shard(number: i128, count: i128, tensors: i128) -> Metadata {
        [("split.no", number), ("split.count", count), ("split.tensors.count", tensors)]
            .map(|(key, value)| (key.to_owned(), Value::Int(value)))
            .into_iter()
            .collect()
    }

    fn check(shards: &[(Metadata, usize)]) -> Result<usize> {
        first_shard(&shards.iter().map(|(metadata, tensors)| (metadata, *tensors)).collect::<Vec<_>>())
    }

    #[test]
    fn shards_come_in_any_order() {
        assert_eq!(check(&[(shard(0, 2, 5), 2), (shard(1, 2, 5), 3)]).unwrap(), 0);
        assert_eq!(check(&[(shard(2, 3, 5), 2), (shard(1, 3, 5), 3), (shard(0, 3, 5), 0)]).unwrap(), 2);
    }

    #[test]
    fn a_file_that_is_whole_needs_no_keys() {
        assert_eq!(check(&[(Metadata::default(), 7)]).unwrap(), 0);
        assert_eq!(check(&[(shard(0, 0, 7), 7)]).unwrap(), 0);
        assert_eq!(check(&[(shard(0, 1, 7), 7)]).unwrap(), 0);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let message = |shards: &[(Metadata, usize)]| check(shards).unwrap_err().to_string();
        assert_eq!(
            message(&[(shard(1, 4, 5), 2), (shard(2, 4, 5), 2)]),
            "key split.count: of the model's 4 parts there is no 1, 4: expected 4, found 2"
        );
        assert_eq!(message(&[(shard(1, 2, 5), 2), (shard(1, 2, 5), 3)]), "key split.no: part 2 of 2 is given twice");
        assert_eq!(
            message(&[(shard(0, 2, 5), 2), (shard(1, 3, 5), 3)]),
            "key split.count: wrong number of parts: expected 2, found 3"
        );
        assert_eq!(message(&[(shard(2, 2, 5), 2)]), "key split.no: wrong part number: expected 0 to 1, found 2");
        assert_eq!(
            message(&[(shard(0, 2, 5), 2), (shard(1, 2, 5), 2)]),
            "key split.tensors.count: wrong number of tensors in all parts: expected 5, found 4"
        );
        assert_eq!(
            message(&[(Metadata::default(), 2), (Metadata::default(), 2)]),
            "key split.no: several GGUF files that are not parts of one model"
        );
        assert_eq!(check(&[(shard(0, i128::from(u64::MAX), 5), 5)]).unwrap_err().kind, ErrorKind::BadHeader);
        let hostile = check(&[(shard(0, 65535, 5), 5)]).unwrap_err();
        assert!(hostile.to_string().contains("no 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 …"), "{hostile}");
    }

    #[test]
    fn an_index_is_kept_to() {
        let tensors = ["a", "b", "c"].map(|name| Tensor {
            name: name.to_owned(),
            storage: None,
            refusal: "",
            type_name: String::new(),
            shape: vec![],
            file: 0,
            offset: 0,
            len: 0,
        });
        let promised = |names: &[&str]| check_index(&tensors, &names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        assert!(promised(&["a", "b", "c"]).unwrap().is_empty());
        assert_eq!(promised(&["a", "c"]).unwrap(), ["the index does not know of b"]);
        let missing = promised(&["a", "b", "c", "d"]).unwrap_err();
        assert_eq!((missing.kind, missing.place.tensor.as_deref()), (ErrorKind::MissingTensor, Some("d")));
        assert_eq!(refuse_twice(tensors.iter()), Ok(()));
        let twice = refuse_twice(tensors.iter().chain(&tensors[1..])).unwrap_err();
        assert_eq!(twice.place.tensor.as_deref(), Some("b"));
    }
}
