//! The kernels of a module: their names and the sizes of their arguments, from machine code (ELF) or
//! PTX, and whether a driver and a device can use it.

use crate::plan::Plan;
use crate::{Code, INVALID_IMAGE, NO_BINARY, UNSUPPORTED_PTX};
use std::ffi::{CStr, c_char};

/// A kernel of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    /// Bytes of its argument.
    pub bytes: usize,
    /// Most threads of a block.
    pub threads: u32,
}

/// The ABI of machine code that drivers before CUDA 13 do not know.
const NEW_ABI: u8 = 8;
/// Attributes in the sections `.nv.info.KERNEL`.
const MAX_THREADS: u8 = 0x05;
const PARAMETER_BYTES: u8 = 0x19;
/// Format of an attribute that is followed by bytes.
const LONG: u8 = 0x04;

/// Reads an image.
///
/// # Safety
/// It is machine code, or text that ends with a zero byte.
pub unsafe fn kernels(image: *const u8, plan: &Plan) -> Result<Vec<Kernel>, Code> {
    // SAFETY: by the caller's promise; both kinds have more than four bytes.
    let start = unsafe { std::slice::from_raw_parts(image, 4) };
    if start == b"\x7FELF" {
        // SAFETY: the header has the length of the file.
        let elf = unsafe {
            let header = std::slice::from_raw_parts(image, 64);
            std::slice::from_raw_parts(image, whole(header))
        };
        return machine_code(elf, plan);
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
    ptx(text.to_str().map_err(|_| INVALID_IMAGE)?, plan)
}

fn number(bytes: &[u8], start: usize, count: usize) -> u64 {
    let digits = bytes.get(start..start + count).unwrap_or_default().iter().rev();
    digits.fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Offset and count of the section headers.
fn sections(header: &[u8]) -> (usize, usize) {
    (number(header, 40, 8) as usize, number(header, 60, 2) as usize)
}

/// Bytes of a file whose section headers or program headers come last.
fn whole(header: &[u8]) -> usize {
    let (start, count) = sections(header);
    let programs = number(header, 32, 8) as usize + 56 * number(header, 56, 2) as usize;
    programs.max(start + 64 * count)
}

fn machine_code(elf: &[u8], plan: &Plan) -> Result<Vec<Kernel>, Code> {
    let (major, minor) = plan.capability;
    if elf[8] >= NEW_ABI && plan.version < 13_000 {
        return Err(INVALID_IMAGE);
    }
    let capability = i32::from(elf[48]);
    if capability / 10 != major || capability % 10 > minor {
        return Err(NO_BINARY);
    }
    let (headers, count) = sections(elf);
    let section = |number: usize| &elf[headers + 64 * number..][..64];
    let content = |header: &[u8]| {
        let start = number(header, 24, 8) as usize;
        start..start + number(header, 32, 8) as usize
    };
    let names = &elf[content(section(number(elf, 62, 2) as usize))];
    let mut all = Vec::new();
    for index in 0..count {
        let header = section(index);
        let name = &names[number(header, 0, 4) as usize..];
        let name = CStr::from_bytes_until_nul(name).map_err(|_| INVALID_IMAGE)?;
        let name = name.to_string_lossy();
        if let Some(name) = name.strip_prefix(".nv.info.") {
            let info = elf.get(content(header)).ok_or(INVALID_IMAGE)?;
            all.push(described(name, info));
        }
    }
    Ok(all)
}

/// A kernel with the attributes of its section.
fn described(name: &str, mut info: &[u8]) -> Kernel {
    let mut kernel = Kernel { name: name.to_owned(), bytes: 0, threads: 1024 };
    while info.len() >= 4 {
        let (format, attribute) = (info[0], info[1]);
        let value = number(info, 2, 2) as usize;
        let long = if format == LONG { value } else { 0 };
        match attribute {
            PARAMETER_BYTES => kernel.bytes = value,
            MAX_THREADS => kernel.threads = number(info, 4, 4) as u32,
            _ => {}
        }
        info = info.get(4 + long..).unwrap_or_default();
    }
    kernel
}

fn ptx(text: &str, plan: &Plan) -> Result<Vec<Kernel>, Code> {
    let after = |text: &str, what: &str| -> Option<u32> {
        let (_, rest) = text.split_once(what)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let version = text.lines().find_map(|line| line.strip_prefix(".version "));
    let version = version.ok_or(INVALID_IMAGE)?;
    let (major, minor) = version.split_once('.').ok_or(INVALID_IMAGE)?;
    let parsed = |part: &str| part.trim().parse::<i32>().map_err(|_| INVALID_IMAGE);
    if parsed(major)? * 10 + parsed(minor)? > newest_ptx(plan.version) {
        return Err(UNSUPPORTED_PTX);
    }
    let entries = text.split(".visible .entry ").skip(1);
    let kernels = entries.map(|entry| {
        let name = entry.split('(').next().unwrap_or_default();
        Kernel {
            name: name.to_owned(),
            bytes: after(entry, "_param_0[").unwrap_or(0) as usize,
            threads: after(entry, ".maxntid ").unwrap_or(1024),
        }
    });
    Ok(kernels.collect())
}

/// The newest version of PTX that a driver knows, times 10.
fn newest_ptx(driver: i32) -> i32 {
    match driver {
        13_000.. => 90 + (driver - 13_000) / 10,
        12_060.. => 85 + (driver - 12_060) / 10,
        12_000.. => 80 + (driver - 12_000) / 10,
        _ => 78,
    }
}
