// SPDX-License-Identifier: GPL-2.0-only
//! rust-vmm type1|iommufd absent|prealloc MIB: maps guest memory for the device $BDF as
//! cloud-hypervisor does, through the crates of rust-vmm. Prints `map` and the seconds of the map,
//! waits for a line of input, then unmaps and prints `unmap` and the seconds of the unmap.
//! rust-vmm version: prints the version of the crate vfio-ioctls

use std::env;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use iommufd_ioctls::IommuFd;
use vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioIommufd, VfioOps};
use vm_memory::{
    Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LOCK: &str = include_str!("../Cargo.lock");
const PAGE: usize = 4096;
const ABOVE_HOLE: GuestAddress = GuestAddress(4 << 30);
const IGB: [u8; 4] = [0x86, 0x80, 0xc9, 0x10]; // vendor and device in the configuration space

fn version() -> Option<&'static str> {
    let (_, rest) = LOCK.split_once("name = \"vfio-ioctls\"\nversion = \"")?;
    Some(rest.split_once('"')?.0)
}

fn container(kind: &str) -> Result<Arc<dyn VfioOps>> {
    Ok(match kind {
        "type1" => Arc::new(VfioContainer::new(None)?),
        "iommufd" => Arc::new(VfioIommufd::new(Arc::new(IommuFd::new()?), None, None)?),
        _ => return Err(format!("no container {kind}").into()),
    })
}

/// Returns guest memory in two regions, one on each side of the 32-bit hole.
fn memory(kind: &str, mib: usize) -> Result<GuestMemoryMmap> {
    let half = mib << 19;
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), half), (ABOVE_HOLE, half)])?;
    match kind {
        "absent" => {}
        "prealloc" => {
            for region in memory.iter() {
                for offset in (0..region.len()).step_by(PAGE) {
                    memory.write_obj(1u8, region.start_addr().unchecked_add(offset))?;
                }
            }
        }
        _ => return Err(format!("no memory {kind}").into()),
    }
    Ok(memory)
}

/// Calls a function with the IOVA, the size and the address of each region, and prints the seconds
/// that this takes.
fn timed<F>(name: &str, memory: &GuestMemoryMmap, mut function: F) -> Result<()>
where
    F: FnMut(u64, usize, *mut u8) -> vfio_ioctls::Result<()>,
{
    let start = Instant::now();
    for region in memory.iter() {
        let address = memory.get_host_address(region.start_addr())?;
        let iova = region.start_addr().raw_value();
        function(iova, region.len() as usize, address)?;
    }
    println!("{name} {:.6}", start.elapsed().as_secs_f64());
    Ok(())
}

fn run(kind: &str, touched: &str, mib: usize) -> Result<()> {
    let memory = memory(touched, mib)?;
    let container = container(kind)?;
    let path = Path::new("/sys/bus/pci/devices").join(env::var("BDF")?);
    let device = VfioDevice::new(&path, container.clone(), true)?;

    // SAFETY: only the device and raw pointers access the memory while it is mapped.
    timed("map", &memory, |iova, size, address| unsafe {
        container.vfio_dma_map(iova, size, address)
    })?;
    let mut found = [0; IGB.len()];
    device.region_read(VFIO_PCI_CONFIG_REGION_INDEX, &mut found, 0);
    if found != IGB {
        return Err(format!("the configuration space begins with {found:x?}").into());
    }
    io::stdin().read_line(&mut String::new())?;
    timed("unmap", &memory, |iova, size, _| {
        container.vfio_dma_unmap(iova, size)
    })
}

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["version"] => {
            println!("version {}", version().ok_or("no version in Cargo.lock")?);
            Ok(())
        }
        [kind, touched, mib] => run(kind, touched, mib.parse()?),
        _ => Err("expected CONTAINER MEMORY MIB, or version".into()),
    }
}
