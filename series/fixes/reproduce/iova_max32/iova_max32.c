// SPDX-License-Identifier: GPL-2.0-only
/*
 * For "iommu/iova: Remember the limit of a failed allocation". Like a device with a DMA mask of 24
 * bits, this allocates from the lowest 16 MB of an IOVA domain, until an allocation fails. A device
 * with a mask of 32 bits must then still get an IOVA.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-mapping.h>
#include <linux/iova.h>
#include <linux/module.h>

#define LIMIT(bits)	(DMA_BIT_MASK(bits) >> PAGE_SHIFT)

static struct iova_domain iovad;

static int __init iova_max32_init(void)
{
	bool got;
	int ret, low;

	ret = iova_cache_get();
	if (ret)
		return ret;
	init_iova_domain(&iovad, PAGE_SIZE, 1);

	for (low = 0; alloc_iova(&iovad, 1, LIMIT(24), true); low++)
		;
	if (low != LIMIT(24)) {
		pr_info("cannot tell: %d of %llu low IOVAs\n", low, LIMIT(24));
		ret = -ENOMEM;
		goto out;
	}

	got = alloc_iova(&iovad, 1, LIMIT(32), true);
	pr_info("%d low IOVAs, then %s of 32 bits\n", low, got ? "one" : "none");
	if (!got)
		ret = -EBADMSG;

	/* An allocation larger than the 32-bit space must still fail, both times. */
	for (int i = 0; got && i < 2; i++) {
		if (alloc_iova(&iovad, LIMIT(32) + 1, LIMIT(32), true)) {
			pr_info("an allocation larger than the space succeeded\n");
			ret = -EBADMSG;
		}
	}
out:
	put_iova_domain(&iovad);
	iova_cache_put();
	return ret;
}
module_init(iova_max32_init);

static void __exit iova_max32_exit(void)
{
}
module_exit(iova_max32_exit);

MODULE_DESCRIPTION("32-bit IOVAs after those below a lower limit are used up");
MODULE_LICENSE("GPL");
