//! Products in bf16 of cuBLASLt beside those of this server: times by shape and rows, and whether the bytes are
//! the same. A sum over K in one accumulator has one order, so they may be.
//!
//! `LD_LIBRARY_PATH=FOLDER cargo run --release --features cuda --example referee -- 256,512,1024`, where the folder
//! has `libcublasLt.so`, such as `nvidia/cublas/lib` of PyTorch's installation.

use asynclane_kernels::device::{Array, Device, DeviceMatrix, MatrixFormat, Precision};
use asynclane_kernels::{Epilogue, Matrix};
use cudarc::cublaslt::{result as lt, sys};
use cudarc::driver::{result, sys as driver};
use std::ffi::c_void;
use std::ptr::from_ref;

type Failure = Box<dyn std::error::Error>;

/// The matrices `[n, k]` of LLaDA-8B.
const SHAPES: [(&str, usize, usize); 5] = [
    ("qkv", 12_288, 4_096),
    ("o", 4_096, 4_096),
    ("gate and up", 24_576, 4_096),
    ("down", 4_096, 12_288),
    ("head", 126_464, 4_096),
];
/// Bytes of matrices that are used in turn, more than the L2 cache has.
const ROTATED: usize = 512 << 20;
/// Passes over these matrices whose time is taken.
const PASSES: usize = 8;
/// Bytes that the library may use beside its operands.
const WORKSPACE: usize = 32 << 20;

/// Numbers in -1..1 that bf16 holds.
fn random(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let numbers = (0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
        f32::from_bits(x.to_bits() & 0xFFFF_0000)
    });
    numbers.collect()
}

/// Memory of the device, until the process ends.
fn allocated(bytes: usize) -> Result<u64, Failure> {
    // SAFETY: the size is not zero; the context is current.
    Ok(unsafe { result::malloc_sync(bytes) }?)
}

/// Numbers in bf16 on the device.
fn uploaded(numbers: &[f32]) -> Result<u64, Failure> {
    let halves: Vec<u16> = numbers.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let address = allocated(2 * halves.len())?;
    // SAFETY: the allocation has this size.
    unsafe { result::memcpy_htod_sync(address, &halves) }?;
    Ok(address)
}

/// The library, on a stream of its own.
struct Library {
    handle: sys::cublasLtHandle_t,
    stream: driver::CUstream,
    workspace: u64,
}

/// A product of the library by one algorithm, without a split over K.
struct Product {
    desc: sys::cublasLtMatmulDesc_t,
    /// The layouts of weights, inputs and results.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Library {
    fn open() -> Result<Self, Failure> {
        // SAFETY: looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err("no libcublasLt.so was found: name its folder in LD_LIBRARY_PATH".into());
        }
        // SAFETY: the first device exists, because it is open.
        unsafe { result::ctx::set_current(result::primary_ctx::retain(result::device::get(0)?)?) }?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { handle: lt::create_handle()?, stream, workspace: allocated(WORKSPACE)? })
    }

    /// `[rows, k] x [n, k]'`. Row-major matrices are transposed ones of the library.
    fn product(&self, [rows, n, k]: [usize; 3]) -> Result<Product, Failure> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
        let (single, half) = (sys::cudaDataType::CUDA_R_32F, sys::cudaDataType::CUDA_R_16BF);
        let desc = lt::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, single)?;
        // CUBLAS_OP_T, which the bindings leave out.
        let transposed = 1_i32;
        let of_weights = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        let layout = |kind, width: usize, rows: usize| {
            lt::create_matrix_layout(kind, width as u64, rows as u64, width as i64)
        };
        let layouts = [layout(half, k, n)?, layout(half, k, rows)?, layout(single, n, rows)?];
        let preference = lt::create_matmul_pref()?;
        let sums = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32;
        let [weights, inputs, results] = layouts;
        // SAFETY: the objects exist, and attributes have the types of their values.
        let found = unsafe {
            lt::set_matmul_desc_attribute(
                desc,
                of_weights,
                from_ref(&transposed).cast(),
                size_of_val(&transposed),
            )?;
            lt::set_matmul_pref_attribute(
                preference,
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                from_ref(&WORKSPACE).cast(),
                size_of_val(&WORKSPACE),
            )?;
            lt::set_matmul_pref_attribute(
                preference,
                Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                from_ref(&sums).cast(),
                size_of_val(&sums),
            )?;
            lt::get_matmul_algo_heuristic(
                self.handle,
                desc,
                weights,
                inputs,
                results,
                results,
                preference,
            )?
        };
        Ok(Product { desc, layouts, algorithm: found.algo })
    }

    /// Starts a product.
    fn run(&self, product: &Product, [weights, inputs, out]: [u64; 3]) -> Result<(), Failure> {
        let pointer = |address: u64| address as *mut c_void;
        let (one, zero) = (1f32, 0f32);
        let [of_weights, of_inputs, of_results] = product.layouts;
        // SAFETY: the memory has the sizes of the layouts.
        unsafe {
            lt::matmul(
                self.handle,
                product.desc,
                from_ref(&one).cast(),
                from_ref(&zero).cast(),
                pointer(weights),
                of_weights,
                pointer(inputs),
                of_inputs,
                pointer(out),
                of_results,
                pointer(out),
                of_results,
                &raw const product.algorithm,
                pointer(self.workspace),
                WORKSPACE,
                self.stream.cast(),
            )
        }?;
        Ok(())
    }

    /// The seconds of a product, over matrices in turn.
    fn seconds(
        &self,
        product: &Product,
        weights: &[u64],
        [inputs, out]: [u64; 2],
    ) -> Result<f64, Failure> {
        let event = || result::event::create(driver::CUevent_flags::CU_EVENT_DEFAULT);
        let (begin, end) = (event()?, event()?);
        for pass in 0..=PASSES {
            if pass == 1 {
                // SAFETY: event and stream exist.
                unsafe { result::event::record(begin, self.stream) }?;
            }
            weights.iter().try_for_each(|matrix| self.run(product, [*matrix, inputs, out]))?;
        }
        // SAFETY: as above.
        let milliseconds = unsafe {
            result::event::record(end, self.stream)?;
            result::event::synchronize(end)?;
            result::event::elapsed(begin, end)?
        };
        Ok(f64::from(milliseconds) * 1e-3 / (PASSES * weights.len()) as f64)
    }

    /// The numbers at an address, once all products are done.
    fn read(&self, address: u64, count: usize) -> Result<Vec<f32>, Failure> {
        let mut numbers = vec![0f32; count];
        // SAFETY: the stream exists, and the memory has these numbers.
        unsafe {
            result::stream::synchronize(self.stream)?;
            result::memcpy_dtoh_sync(&mut numbers, address)?;
        }
        Ok(numbers)
    }
}

/// The difference between the library's numbers and this server's, in words.
fn difference(ours: &[f32], library: &[f32]) -> String {
    let pairs = ours.iter().zip(library);
    let other = pairs.clone().filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let largest = ours.iter().fold(0f32, |most, x| most.max(x.abs()));
    let error = pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest;
    match other {
        0 => "the same bytes".to_owned(),
        _ => format!("{other} of {} numbers differ, by {error:.1e} of the largest", ours.len()),
    }
}

fn main() -> Result<(), Failure> {
    // The bindings panic if a library of this name has not the functions.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("libcublasLt.so: {}", panic.payload_as_str().unwrap_or("a panic"));
    }));
    let all = std::env::args().nth(1).unwrap_or_else(|| "64,256,512,1024".to_owned());
    let all: Vec<usize> = all.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let device = Device::open(0)?;
    let library = Library::open()?;
    println!("{}: milliseconds of this server's best launch and of cuBLASLt", device.name());
    for (name, n, k) in SHAPES {
        let numbers = random(1, n * k);
        let weights = Matrix { weight: &numbers, k, bias: None };
        let matrix = DeviceMatrix::new(&device, MatrixFormat::Bf16, weights, Epilogue::None)?;
        let count = ROTATED.div_ceil(2 * n * k).max(2);
        let copies: Vec<u64> = (0..count).map(|_| uploaded(&numbers)).collect::<Result<_, _>>()?;
        for &rows in &all {
            let inputs = random(2, rows * k);
            let x = Array::padded(&device, MatrixFormat::Bf16.inputs(), rows, k)?;
            x.write(0, &inputs)?;
            let out = Array::new(&device, Precision::F32, rows, n)?;
            matrix.product(&x, rows, &out)?;
            let times = device.launch_times(MatrixFormat::Bf16, [rows, n, k], ROTATED)?;
            let ours = times.iter().map(|time| time.seconds).fold(f64::INFINITY, f64::min);

            let product = library.product([rows, n, k])?;
            let memory = [uploaded(&inputs)?, allocated(4 * rows * n)?];
            let theirs = library.seconds(&product, &copies, memory)?;
            let found = library.read(memory[1], rows * n)?;
            println!(
                "{name} {n} x {k}, {rows} rows: {:.4}, {:.4} ({:.2}); {}",
                ours * 1e3,
                theirs * 1e3,
                theirs / ours,
                difference(&out.read(rows)?, &found),
            );
            // SAFETY: allocated above, and read.
            memory.into_iter().try_for_each(|address| unsafe { result::free_sync(address) })?;
        }
        // SAFETY: as above.
        copies.into_iter().try_for_each(|address| unsafe { result::free_sync(address) })?;
    }
    Ok(())
}
