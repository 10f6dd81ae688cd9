//! Launches that begin while the one before runs: the driver starts the blocks of a kernel when those of the one
//! before have permitted it (`launches_permit` of the kernels), also in a graph that was captured.

use super::super::{Driver, Kernel, Result, args, kernels, refuse};
use super::bulk::{config, zeroed};
use super::errors::failed;
use super::{Cuda, major};
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// The first major compute capability whose kernels wait for the launches before.
const FIRST: i32 = 9;
/// A kernel that does nothing with arguments that are zeros.
const TRIED: &str = "clear_rows";
/// The share of a multiprocessor's memory that is shared memory, in percent: the blocks of two launches are in it
/// together only if it is divided for both.
const MOST_SHARED: i32 = 100;

impl Cuda {
    /// Launches a kernel. `over`: it may begin while the one before runs.
    ///
    /// # Safety
    /// As [`Driver::launch`] and [`Driver::launch_over`].
    pub(super) unsafe fn launch_as(
        &self,
        (kernel, over): (Kernel, bool),
        grid: [u32; 3],
        args: &[u8],
    ) -> Result<()> {
        self.current()?;
        let Some(&function) = self.functions.get(kernel.name) else {
            return refuse(format!("no kernel {}", kernel.name));
        };
        let mut params = [args.as_ptr().cast_mut().cast::<c_void>()];
        let mut attribute = zeroed();
        attribute.id =
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        let config = config(kernel, grid, self.stream, &mut attribute);
        let (blocks, threads) = ((grid[0], grid[1], grid[2]), (kernel.threads, 1, 1));
        // SAFETY: by the caller's promise; the driver copies the argument before it returns.
        let launched = unsafe {
            match over {
                true => {
                    let params = params.as_mut_ptr();
                    sys::cuLaunchKernelEx(&raw const config, function, params, std::ptr::null_mut())
                        .result()
                }
                false => result::launch_kernel(
                    function,
                    blocks,
                    threads,
                    kernel.shared,
                    self.stream,
                    &mut params,
                ),
            }
        };
        launched.map_err(failed(kernel.name))?;
        self.launched.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes two launches that overlap, directly and in a graph, and divides multiprocessors for them.
    ///
    /// # Errors
    /// If the device has none, or the driver refuses something of it.
    pub(super) fn overlapping(&self) -> Result<()> {
        if major(self.device)? < FIRST {
            return refuse(format!("expected compute capability {FIRST}.0 or later"));
        }
        let kernel = kernels().find(|kernel| kernel.name == TRIED);
        let kernel = kernel.map_or_else(|| refuse(format!("no kernel {TRIED}")), Ok)?;
        let twice = || {
            let launch = |_| {
                let nothing = [0; size_of::<args::Rowwise>()];
                // SAFETY: rows without numbers are not touched.
                unsafe { self.launch_over(kernel, [1; 3], &nothing) }
            };
            (0..2).try_for_each(launch)
        };
        twice()?;
        self.begin_capture()?;
        let captured = twice();
        let graph = self.end_capture();
        captured?;
        // SAFETY: as above.
        unsafe { graph?.launch() }?;
        self.wait()?;
        use sys::CUfunction_attribute_enum as Attribute;
        let division = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        self.functions.iter().try_for_each(|(name, &function)| {
            // SAFETY: the functions are of the module, which is loaded.
            unsafe { result::function::set_function_attribute(function, division, MOST_SHARED) }
                .map_err(failed(name))
        })
    }
}
