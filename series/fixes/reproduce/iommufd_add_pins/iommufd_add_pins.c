// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pins eight huge pages of a file through an iommufd access. As soon as the second
 * page has a pin, a thread raises the page's reference count to just below the
 * overflow, as thousands of other maps would. folio_add_pins() then fails for this
 * page. Afterwards, no page may stay pinned.
 * For "iommufd: Unpin a memfd's folios if folio_add_pins() fails".
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/iommufd.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
#include <linux/uaccess.h>

#define NR_HUGE 8
#define NR_PAGES (NR_HUGE * HPAGE_PMD_NR)
#define IOVA SZ_4G
#define TRIES 20

static struct file *iommufd;
static struct iommufd_access *access;
static struct page **pages;
static unsigned long user;
static bool crowded;
static u32 ioas;

static long iommufd_ioctl(unsigned int cmd, void *args, size_t size)
{
	long ret;

	if (copy_to_user((void __user *)user, args, size))
		return -EFAULT;
	ret = iommufd->f_op->unlocked_ioctl(iommufd, cmd, user);
	if (!ret && copy_from_user(args, (void __user *)user, size))
		return -EFAULT;
	return ret;
}

static int crowd(void *data)
{
	struct folio *folio = data;

	while (!kthread_should_stop()) {
		if (!crowded && folio_maybe_dma_pinned(folio)) {
			folio_ref_add(folio, INT_MAX);
			crowded = true;
		}
		cond_resched();
	}
	if (crowded)
		folio_ref_sub(folio, INT_MAX);
	return 0;
}

/* Counts and drops the remaining pins of the file's huge pages */
static int nr_left(struct file *file)
{
	int i, nr = 0;

	for (i = 0; i < NR_HUGE; i++) {
		struct folio *folio = filemap_get_folio(file->f_mapping,
							i * HPAGE_PMD_NR);

		if (IS_ERR(folio))
			continue;
		for (; folio_maybe_dma_pinned(folio); nr++)
			unpin_folio(folio);
		folio_put(folio);
	}
	return nr;
}

static int pin(struct file *file, struct folio *folio, int *left)
{
	struct task_struct *task;
	int ret;

	crowded = false;
	task = kthread_run(crowd, folio, "crowd");
	if (IS_ERR(task))
		return PTR_ERR(task);
	ret = iommufd_access_pin_pages(access, IOVA, NR_PAGES * PAGE_SIZE,
				       pages, 0);
	kthread_stop(task);
	if (!ret)
		iommufd_access_unpin_pages(access, IOVA, NR_PAGES * PAGE_SIZE);
	*left = nr_left(file);
	return ret;
}

/* If folio_add_pins() failed, this returns -ENOMEM and crowded is set */
static int try_once(int *left)
{
	struct iommu_ioas_map_file map = {
		.size = sizeof(map),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE,
		.ioas_id = ioas,
		.length = NR_PAGES * PAGE_SIZE,
		.iova = IOVA,
	};
	struct iommu_ioas_unmap unmap = {
		.size = sizeof(unmap),
		.ioas_id = ioas,
		.length = NR_PAGES * PAGE_SIZE,
		.iova = IOVA,
	};
	struct folio *folio[2] = {};
	struct file *file;
	int i, ret;

	file = shmem_file_setup("pins", NR_PAGES * PAGE_SIZE,
				EMPTY_VMA_FLAGS);
	if (IS_ERR(file))
		return PTR_ERR(file);
	for (i = 0; i < 2; i++) {
		folio[i] = shmem_read_folio(file->f_mapping, i * HPAGE_PMD_NR);
		if (IS_ERR(folio[i]) || folio_nr_pages(folio[i]) != HPAGE_PMD_NR) {
			pr_info("cannot tell here: no huge page\n");
			ret = -EOPNOTSUPP;
			goto put;
		}
	}
	map.fd = get_unused_fd_flags(O_CLOEXEC);
	fd_install(map.fd, get_file(file));
	ret = iommufd_ioctl(IOMMU_IOAS_MAP_FILE, &map, sizeof(map));
	close_fd(map.fd);
	if (ret)
		goto put;
	ret = pin(file, folio[1], left);
	iommufd_ioctl(IOMMU_IOAS_UNMAP, &unmap, sizeof(unmap));
put:
	for (i = 0; i < 2; i++)
		if (!IS_ERR_OR_NULL(folio[i]))
			folio_put(folio[i]);
	fput(file);
	return ret;
}

static void on_unmap(void *data, unsigned long iova, unsigned long length)
{
}

static const struct iommufd_access_ops ops = {
	.needs_pin_pages = 1,
	.unmap = on_unmap,
};

static int run(void)
{
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };
	int i, ret, left = 0;

	ret = iommufd_ioctl(IOMMU_IOAS_ALLOC, &alloc, sizeof(alloc));
	if (ret)
		return ret;
	ioas = alloc.out_ioas_id;
	ret = iommufd_access_attach(access, ioas);
	for (i = 0; !ret && i < TRIES; i++)
		ret = try_once(&left);
	pr_info("pin %d of the file: %d, %d pins left\n", i, ret, left);
	if (left)
		return -EBADMSG;
	if (ret == -ENOMEM && crowded)
		return 0;
	return ret ?: -EOPNOTSUPP;
}

static int __init add_pins_init(void)
{
	struct iommufd_ctx *ctx;
	int ret = -ENOMEM;
	u32 id;

	pages = kvzalloc_objs(*pages, NR_PAGES);
	user = vm_mmap(NULL, 0, PAGE_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, 0);
	if (!pages || IS_ERR_VALUE(user))
		goto free;
	iommufd = filp_open("/dev/iommu", O_RDWR, 0);
	if (IS_ERR(iommufd)) {
		ret = PTR_ERR(iommufd);
		goto free;
	}
	ctx = iommufd_ctx_from_file(iommufd);
	access = iommufd_access_create(ctx, &ops, NULL, &id);
	ret = PTR_ERR_OR_ZERO(access);
	if (!ret) {
		ret = run();
		iommufd_access_destroy(access);
	}
	iommufd_ctx_put(ctx);
	fput(iommufd);
free:
	kvfree(pages);
	return ret;
}
module_init(add_pins_init);

static void __exit add_pins_exit(void)
{
}
module_exit(add_pins_exit);

MODULE_DESCRIPTION("An iommufd access for which folio_add_pins() fails");
MODULE_IMPORT_NS("IOMMUFD");
MODULE_LICENSE("GPL");
