// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures dma_unmap_single() for a device behind an IOMMU; the call looks up the
 * physical address. Each of several rounds makes NUMBER calls. Prints the total
 * time of the fastest round. The device is an igb without a driver.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#define NUMBER 64
#define ROUNDS 16

static int measure(struct device *dev, size_t size)
{
	u64 least = U64_MAX, start;
	dma_addr_t addr[NUMBER];
	void *memory;
	int i, round;

	memory = kmalloc(size, GFP_KERNEL);
	if (!memory)
		return -ENOMEM;
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < NUMBER; i++) {
			addr[i] = dma_map_single(dev, memory, size, DMA_FROM_DEVICE);
			if (dma_mapping_error(dev, addr[i]) || addr[i] == virt_to_phys(memory)) {
				pr_err("not mapped by an IOMMU\n");
				kfree(memory);
				return -EIO;
			}
		}
		start = ktime_get_ns();
		for (i = 0; i < NUMBER; i++)
			dma_unmap_single(dev, addr[i], size, DMA_FROM_DEVICE);
		least = min(least, ktime_get_ns() - start);
	}
	kfree(memory);
	pr_info("dma_unmap_%zuk %llu\n", size >> 10, least);
	return 0;
}

static int __init dma_unmap_init(void)
{
	struct pci_dev *pdev = pci_get_device(PCI_VENDOR_ID_INTEL, 0x10c9, NULL);
	int ret;

	if (!pdev)
		return -ENODEV;
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (!ret)
		ret = measure(&pdev->dev, SZ_4K) ?: measure(&pdev->dev, SZ_64K);
	pci_dev_put(pdev);
	return ret;
}
module_init(dma_unmap_init);

static void __exit dma_unmap_exit(void)
{
}
module_exit(dma_unmap_exit);

MODULE_DESCRIPTION("Time of dma_unmap_single()");
MODULE_LICENSE("GPL");
