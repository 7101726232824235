//! Device memory.

use super::cuda;
use crate::abi::{HostSource, HostTarget, Out};
use crate::{fault, memory, runtime};

cuda! {
    fn cuMemAlloc_v2(address: Out<u64>, size: usize) {
        address.set(runtime::with_healthy(|runtime| memory::allocate(runtime, size))?)
    }
    fn cuMemFree_v2(address: u64) {
        runtime::with_healthy(|runtime| memory::free(runtime, address))
    }
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (free_bytes, total_bytes) = runtime::with_healthy(|runtime| memory::info(runtime))?;
        free.set(free_bytes)?;
        total.set(total_bytes)
    }
    fn cuMemcpyHtoD_v2(target: u64, source: HostSource, length: usize) {
        let bytes = source.read(length)?;
        runtime::with_healthy(|runtime| memory::store(runtime, target, &bytes))
    }
    fn cuMemcpyDtoH_v2(target: HostTarget, source: u64, length: usize) {
        target.write(&runtime::with_healthy(|runtime| memory::load(runtime, source, length))?)
    }
    fn cuMemsetD8_v2(address: u64, value: u8, length: usize) {
        runtime::with_healthy(|runtime| match address {
            fault::ADDRESS => fault::raise(runtime),
            _ => memory::fill(runtime, address, value, length),
        })
    }
}
