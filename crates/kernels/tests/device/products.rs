//! Matrix products and what follows them.

use crate::common::{BOTH, Random, array, kept, near, poisoned, tensor, values};
use asynclane_kernels::device::{Array, Device, DeviceMatrix, Precision};
use asynclane_kernels::{Epilogue, Linear, Matrix, WeightDtype};

/// Weights [n, k] and a bias that are exact in a precision.
struct Layer {
    weight: Vec<f32>,
    bias: Vec<f32>,
    k: usize,
}

impl Layer {
    fn new(random: &mut Random, n: usize, k: usize, precision: Precision) -> Self {
        Self {
            weight: kept(&random.numbers(n * k), precision),
            bias: random.numbers(n),
            k,
        }
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix {
            weight: &self.weight,
            k: self.k,
            bias: Some(&self.bias),
        }
    }

    fn device(&self, precision: Precision, epilogue: Epilogue) -> DeviceMatrix {
        DeviceMatrix::new(&Device::emulated(), precision, self.matrix(), epilogue).unwrap()
    }

    fn cpu(&self, epilogue: Epilogue) -> Linear {
        Linear::new(self.matrix(), WeightDtype::F32, epilogue).unwrap()
    }
}

/// Rows with zeros for padding, as producers leave them, behind them one that is poisoned.
fn rows(precision: Precision, x: &[f32], k: usize) -> Array {
    array(precision, x, k, true)
}

#[test]
fn products_are_those_of_the_cpu() {
    let mut random = Random(1);
    for precision in BOTH {
        for (count, n, k) in [(1, 3, 5), (7, 33, 72), (65, 70, 130), (130, 129, 64)] {
            let what = format!("{precision:?} {count}x{k}x{n}");
            let layer = Layer::new(&mut random, n, k, precision);
            let x = kept(&random.numbers(count * k), precision);
            let want = layer.cpu(Epilogue::None).forward(&tensor(&x, k)).unwrap();
            let (x, out) = (
                rows(precision, &x, k),
                poisoned(Precision::F32, count, n, false),
            );
            let matrix = layer.device(precision, Epilogue::None);
            matrix.product(&x, count, &out).unwrap();
            near(&out.read(count).unwrap(), &values(&want), 2e-6, &what);
            let before = random.numbers(count * n);
            out.write(0, &before).unwrap();
            matrix.add_product(&x, count, &out).unwrap();
            let want: Vec<f32> = values(&want)
                .iter()
                .zip(before)
                .map(|(x, y)| x + y)
                .collect();
            near(
                &out.read(count).unwrap(),
                &want,
                2e-6,
                &format!("{what}, added"),
            );
        }
    }
}

#[test]
fn a_gated_product_is_that_of_the_cpu() {
    let mut random = Random(2);
    for (precision, share) in [(Precision::F32, 2e-6), (Precision::Bf16, 4e-3)] {
        for (count, m, k) in [(1, 3, 8), (9, 35, 64), (140, 66, 80)] {
            let layer = Layer::new(&mut random, 2 * m, k, precision);
            let x = kept(&random.numbers(count * k), precision);
            let want = layer
                .cpu(Epilogue::SiluGate)
                .forward(&tensor(&x, k))
                .unwrap();
            let (x, out) = (rows(precision, &x, k), poisoned(precision, count, m, true));
            let matrix = layer.device(precision, Epilogue::SiluGate);
            matrix.product(&x, count, &out).unwrap();
            let what = format!("{precision:?} {count}x{k}x{m}");
            near(&out.read(count).unwrap(), &values(&want), share, &what);
        }
    }
}

/// The tile is chosen by the number of rows; no bit depends on it.
#[test]
fn a_row_is_the_same_among_any_others() {
    let mut random = Random(3);
    for precision in BOTH {
        let (n, k) = (40, 200);
        let matrix = Layer::new(&mut random, n, k, precision).device(precision, Epilogue::None);
        let x = random.numbers(131 * k);
        let all = poisoned(Precision::F32, 131, n, false);
        matrix.product(&rows(precision, &x, k), 131, &all).unwrap();
        let all = all.read(131).unwrap();
        for row in [0, 64, 130] {
            let alone = poisoned(Precision::F32, 1, n, false);
            let x = rows(precision, &x[row * k..(row + 1) * k], k);
            matrix.product(&x, 1, &alone).unwrap();
            assert_eq!(
                alone.read(1).unwrap(),
                all[row * n..(row + 1) * n],
                "{precision:?} {row}"
            );
        }
    }
}

#[test]
fn arrays_of_another_shape_are_refused() {
    let mut random = Random(4);
    let precision = Precision::Bf16;
    let matrix = Layer::new(&mut random, 8, 16, precision).device(precision, Epilogue::None);
    let x = poisoned(precision, 4, 16, true);
    let out = |rows, width| poisoned(Precision::F32, rows, width, false);
    assert!(matrix.product(&x, 4, &out(4, 8)).is_ok());
    assert!(matrix.product(&x, 5, &out(5, 8)).is_err());
    assert!(matrix.product(&x, 4, &out(3, 8)).is_err());
    assert!(matrix.product(&x, 4, &out(4, 9)).is_err());
    assert!(
        matrix
            .product(&x, 4, &poisoned(precision, 4, 8, false))
            .is_err()
    );
    assert!(
        matrix
            .product(&poisoned(precision, 4, 16, false), 4, &out(4, 8))
            .is_err()
    );
    assert!(
        matrix
            .product(&poisoned(Precision::F32, 4, 16, true), 4, &out(4, 8))
            .is_err()
    );
}
