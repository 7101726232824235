//! Device memory: which addresses are allocated, and the little of their content that
//! was written. The amounts count against the limit; the content costs host memory only where a copy
//! or a fill has touched it.

use std::collections::BTreeMap;

use crate::runtime::Runtime;
use crate::status::Status;
use crate::{account, context};

/// The first address; far from anything of the host's.
const BASE: u64 = 0x0007_0000_0000_0000;
/// Allocations start at multiples of this.
const ALIGNMENT: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// The allocations of the process on all its cards, by address.
#[derive(Debug)]
pub(crate) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    next: u64,
}

#[derive(Debug)]
struct Allocation {
    device: i32,
    size: u64,
    /// What untouched bytes are.
    fill: u8,
    /// Touched pages by their number from the start of the allocation.
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { allocations: BTreeMap::new(), next: BASE }
    }
}

impl Memory {
    /// What is allocated on a card in MiB, rounded up.
    pub(crate) fn mib(&self, device: i32) -> u64 {
        to_mib(self.bytes(device))
    }

    /// Forgets everything on a card.
    pub(crate) fn remove_all(&mut self, device: i32) {
        self.allocations.retain(|_, allocation| allocation.device != device);
    }

    fn bytes(&self, device: i32) -> u64 {
        let on_card = self.allocations.values().filter(|allocation| allocation.device == device);
        on_card.map(|allocation| allocation.size).sum()
    }

    fn add(&mut self, device: i32, size: u64) -> u64 {
        let address = self.next;
        self.next += size.next_multiple_of(ALIGNMENT);
        let allocation = Allocation { device, size, fill: 0, pages: BTreeMap::new() };
        self.allocations.insert(address, allocation);
        address
    }

    /// The allocation that holds all of a range, and where in it the range starts.
    fn find(&mut self, address: u64, length: u64) -> Result<(&mut Allocation, u64), Status> {
        let below = self.allocations.range_mut(..=address).next_back();
        let (start, allocation) = below.ok_or(Status::INVALID_VALUE)?;
        let offset = address - start;
        let end = offset.checked_add(length).ok_or(Status::INVALID_VALUE)?;
        if end > allocation.size { Err(Status::INVALID_VALUE) } else { Ok((allocation, offset)) }
    }
}

impl Allocation {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let fill = self.fill;
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![fill; 4096]);
            if let Some(place) = index(at).and_then(|index| page.get_mut(index)) {
                *place = *byte;
            }
        }
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let byte = |at: u64| {
            let page = self.pages.get(&(at / PAGE))?;
            page.get(index(at)?).copied()
        };
        (offset..).take(length).map(|at| byte(at).unwrap_or(self.fill)).collect()
    }

    fn set(&mut self, offset: u64, value: u8, length: usize) {
        if offset == 0 && to_u64(length) == self.size {
            self.fill = value;
            self.pages.clear();
        } else {
            self.write(offset, &vec![value; length]);
        }
    }
}

/// Allocates on the card of the current context.
pub(crate) fn allocate(runtime: &mut Runtime, size: usize) -> Result<u64, Status> {
    let device = context::current_device(runtime)?;
    if size == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let size = to_u64(size);
    let memory = &runtime.memory;
    let total = memory.bytes(device).checked_add(size).ok_or(Status::OUT_OF_MEMORY)?;
    let more = to_mib(total) - memory.mib(device);
    let held = context::held_mib(runtime, device);
    account::grow(runtime, runtime.device(device)?, held + more)?;
    Ok(runtime.memory.add(device, size))
}

/// Frees an allocation, on whichever card it is.
pub(crate) fn free(runtime: &mut Runtime, address: u64) -> Result<(), Status> {
    let freed = runtime.memory.allocations.remove(&address).ok_or(Status::INVALID_VALUE)?;
    let held = context::held_mib(runtime, freed.device);
    account::shrink(runtime, runtime.device(freed.device)?, held)
}

/// Free and total memory in bytes as the current context sees them. A pinned limit bounds what is
/// free and leaves the total alone (facts/mps.md 2).
pub(crate) fn info(runtime: &Runtime) -> Result<(usize, usize), Status> {
    let device = context::current_device(runtime)?;
    let gpu = runtime.gpu(device)?;
    let on_card = account::free_mib(&runtime.state()?, &gpu);
    let held = context::held_mib(runtime, device);
    let free = match runtime.limit_mib(&gpu.uuid) {
        Some(limit) => on_card.min(limit.saturating_sub(held)),
        None => on_card,
    };
    Ok((to_bytes(free)?, to_bytes(gpu.total_mib)?))
}

/// Copies bytes to the device.
pub(crate) fn store(runtime: &mut Runtime, address: u64, bytes: &[u8]) -> Result<(), Status> {
    let (allocation, offset) = in_context(runtime)?.find(address, to_u64(bytes.len()))?;
    allocation.write(offset, bytes);
    Ok(())
}

/// Copies bytes from the device.
pub(crate) fn load(runtime: &mut Runtime, address: u64, length: usize) -> Result<Vec<u8>, Status> {
    let (allocation, offset) = in_context(runtime)?.find(address, to_u64(length))?;
    Ok(allocation.read(offset, length))
}

/// Fills bytes of the device.
pub(crate) fn fill(
    runtime: &mut Runtime,
    address: u64,
    value: u8,
    length: usize,
) -> Result<(), Status> {
    let (allocation, offset) = in_context(runtime)?.find(address, to_u64(length))?;
    allocation.set(offset, value, length);
    Ok(())
}

/// The memory, for a caller with a current context.
fn in_context(runtime: &mut Runtime) -> Result<&mut Memory, Status> {
    context::current(runtime)?;
    Ok(&mut runtime.memory)
}

/// An amount in bytes.
pub(crate) fn to_bytes(mib: u64) -> Result<usize, Status> {
    usize::try_from(mib << 20).map_err(|_| Status::UNKNOWN)
}

fn to_mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn index(at: u64) -> Option<usize> {
    usize::try_from(at % PAGE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_rest_is_the_fill() {
        let mut memory = Memory::default();
        let address = memory.add(0, 10_000);
        let (allocation, offset) = memory.find(address + 4094, 4).unwrap();
        allocation.write(offset, &[1, 2, 3, 4]);
        assert_eq!(allocation.read(4093, 6), [0, 1, 2, 3, 4, 0]);
        allocation.set(0, 7, 10_000);
        assert_eq!(allocation.read(4093, 6), [7; 6]);
    }

    #[test]
    fn a_range_beyond_its_allocation_is_invalid() {
        let mut memory = Memory::default();
        let address = memory.add(0, 100);
        assert!(memory.find(address + 50, 50).is_ok());
        assert_eq!(memory.find(address + 50, 51).unwrap_err(), Status::INVALID_VALUE);
        assert_eq!(memory.find(address - 1, 1).unwrap_err(), Status::INVALID_VALUE);
    }

    #[test]
    fn small_allocations_are_counted_together() {
        let mut memory = Memory::default();
        memory.add(0, 1);
        memory.add(0, 1);
        assert_eq!(memory.mib(0), 1);
        assert_eq!(memory.mib(1), 0);
    }
}
