//! Filter weights: reading, writing and refused files.

use crate::common::refusal;
use asynclane_model::{Files, FilterWeights, LoadError};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView, serialize};

const NAME: &str = "filter.safetensors";

/// A stored tensor.
type Stored = (&'static str, Vec<usize>, Dtype, Vec<u8>);

/// A filter 3 -> 2 -> 3 with values that every type represents exactly.
fn filter() -> FilterWeights {
    let values = |count, start: f32| (0..count).map(|index| start + index as f32 / 4.0).collect();
    FilterWeights {
        first: values(6, -1.0),
        first_bias: values(2, 0.25),
        second: values(6, 1.0),
        second_bias: values(3, -2.0),
    }
}

fn stored(dtype: Dtype) -> Vec<Stored> {
    let FilterWeights { first, first_bias, second, second_bias } = filter();
    let bytes = |values: Vec<f32>| -> Vec<u8> {
        let bytes = values.into_iter().map(|x| match dtype {
            Dtype::F32 => x.to_le_bytes().to_vec(),
            Dtype::BF16 => bf16::from_f32(x).to_le_bytes().to_vec(),
            Dtype::F16 => f16::from_f32(x).to_le_bytes().to_vec(),
            _ => f64::from(x).to_le_bytes().to_vec(),
        });
        bytes.flatten().collect()
    };
    vec![
        ("0.weight", vec![2, 3], dtype, bytes(first)),
        ("0.bias", vec![2], dtype, bytes(first_bias)),
        ("2.weight", vec![3, 2], dtype, bytes(second)),
        ("2.bias", vec![3], dtype, bytes(second_bias)),
    ]
}

fn open(bytes: Vec<u8>) -> Result<FilterWeights, LoadError> {
    FilterWeights::open(&Files::memory([(NAME, bytes)]), NAME)
}

fn load(tensors: &[Stored]) -> Result<FilterWeights, LoadError> {
    let views = tensors.iter().map(|(name, shape, dtype, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes.clone().leak());
        (*name, view.expect("bytes of that shape"))
    });
    open(serialize(views, None).expect("a file"))
}

#[test]
fn every_type_is_read_and_written_files_are_read_back() {
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
        assert_eq!(load(&stored(dtype)).unwrap(), filter(), "{dtype:?}");
    }
    assert_eq!(open(filter().to_file().unwrap()).unwrap(), filter());
    let mut uneven = filter();
    uneven.second.pop();
    assert!(uneven.to_file().is_err());
}

#[test]
fn a_file_is_read_from_its_path() {
    let name = format!("asynclane-{}-{NAME}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, filter().to_file().unwrap()).unwrap();
    let read = FilterWeights::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read.unwrap(), filter());
    for (path, expected) in [
        ("no-such.safetensors", "no-such.safetensors: not found in ."),
        ("/no/such/filter", "filter: not found in /no/such"),
    ] {
        assert_eq!(refusal(FilterWeights::read(path.as_ref())), expected);
    }
}

#[test]
fn files_that_are_not_a_filter_are_refused() {
    let changes: [fn(&mut Vec<Stored>); 7] = [
        |tensors| drop(tensors.remove(0)),
        |tensors| tensors[0].1 = vec![6],
        |tensors| tensors[2].1 = vec![2, 3],
        |tensors| drop(tensors.remove(3)),
        |tensors| tensors.push(("4.bias", vec![1], Dtype::F32, vec![0; 4])),
        |tensors| *tensors = stored(Dtype::F64),
        |tensors| tensors[1].3[4..].copy_from_slice(&f32::NAN.to_le_bytes()),
    ];
    let expected = "\
0.weight: expected a matrix [hidden, block length], found none
0.weight: expected a matrix [hidden, block length], found shape [6]
2.weight: expected shape [3, 2], found [2, 3]
2.bias: expected a tensor of shape [3], found none
4.bias: expected only the linear layers 0 and 2, found another tensor
0.weight: expected BF16, F16 or F32, found F64
0.bias: expected finite numbers, found NaN at element 1";
    for (change, expected) in changes.iter().zip(expected.lines()) {
        let mut tensors = stored(Dtype::F32);
        change(&mut tensors);
        assert_eq!(refusal(load(&tensors)), format!("{NAME}: {expected}"));
    }
}

#[test]
fn truncated_files_are_refused() {
    let whole = filter().to_file().unwrap();
    for length in [0, 5, whole.len() - 1] {
        let message = refusal(open(whole[..length].to_vec()));
        let begin = "filter.safetensors: corrupt or truncated: ";
        assert!(message.starts_with(begin), "{message}");
    }
}
