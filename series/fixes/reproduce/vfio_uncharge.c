// SPDX-License-Identifier: GPL-2.0-only
/*
 * For "vfio/type1: Do not let a fatal signal prevent uncharging locked_vm". The owner maps memory,
 * and the unmapper unmaps it. The unmapper is killed while it waits for the owner's mmap_lock. The
 * holder, a task that shares the owner's mm, holds this lock in gup_test. Afterwards, the owner's
 * VmLck must be the same as before the map. main() watches them from its own mm: a page fault in
 * the owner's mm might wait for the lock.
 *
 *   vfio_uncharge BDF
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/vfio.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE	(4UL << 20)
#define RANGE	(8UL << 30)	/* of zero pages, so that a walk takes long */

/* mm/gup_test.h */
static struct gup_test {
	__u64 get_delta_usec, put_delta_usec, addr, size;
	__u32 nr_pages_per_call, gup_flags, test_flags, which_pages[8];
} walk = { .size = RANGE, .nr_pages_per_call = 1 };
#define GUP_BASIC_TEST	_IOWR('g', 4, struct gup_test)

static struct vfio_iommu_type1_dma_unmap unmap = { .argsz = sizeof(unmap), .size = SIZE };
static int container, gup;

static void need(int met, const char *what)
{
	if (met)
		return;
	printf("cannot tell: %s\n", what);
	exit(4);
}

/* The text after WORD in /proc/PID/NAME. These files are read without mmap_lock. */
static void look(pid_t pid, const char *name, const char *word, char *text, size_t size)
{
	char path[64], all[4096] = "", *found;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY);
	if (fd >= 0 && read(fd, all, sizeof(all) - 1) < 0)
		all[0] = '\0';
	close(fd);
	found = strstr(all, word);
	snprintf(text, size, "%s", found ? found + strlen(word) : "");
}

static long kilobytes(pid_t pid, const char *word)
{
	char text[64];

	look(pid, "status", word, text, sizeof(text));
	return atol(text);
}

/* Does the process wait for mmap_lock to account memory? A killable wait counts, too. */
static int waits(pid_t pid)
{
	char state[8], where[64];

	look(pid, "status", "State:\t", state, sizeof(state));
	look(pid, "wchan", "", where, sizeof(where));
	return state[0] == 'D' && strstr(where, "_acct");
}

static int hold(void *unused __attribute__((unused)))
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return ioctl(gup, GUP_BASIC_TEST, &walk) < 0;
}

/* The owner: maps memory when told, then starts the holder when told. Answers with its PID. */
static void own(int told, int says)
{
	struct vfio_iommu_type1_dma_map map = {
		.argsz = sizeof(map), .size = SIZE, .flags = VFIO_DMA_MAP_FLAG_READ,
	};
	static char stack[65536] __attribute__((aligned(16)));
	pid_t holder = 0;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	map.vaddr = (__u64)mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	walk.addr = (__u64)mmap(NULL, RANGE, PROT_READ,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	need((void *)map.vaddr != MAP_FAILED && (void *)walk.addr != MAP_FAILED, "no memory");
	memset(stack, 1, sizeof(stack));
	need(read(told, &byte, 1) == 1, "no pipe");
	need(!ioctl(container, VFIO_IOMMU_MAP_DMA, &map), "cannot map");
	need(write(says, &holder, sizeof(holder)) == sizeof(holder), "no pipe");

	need(read(told, &byte, 1) == 1, "no pipe");
	holder = clone(hold, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	need(write(says, &holder, sizeof(holder)) == sizeof(holder), "no pipe");
	waitpid(holder, NULL, 0);
	pause();
}

static void open_container(const char *bdf)
{
	char path[128], link[128] = "";
	int group;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", bdf);
	need(readlink(path, link, sizeof(link) - 1) > 0, "the device is in no IOMMU group");
	snprintf(path, sizeof(path), "/dev/vfio/%s", strrchr(link, '/') + 1);
	container = open("/dev/vfio/vfio", O_RDWR);
	group = open(path, O_RDWR);
	need(container >= 0 && group >= 0 && !ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) &&
	     !ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU), "no VFIO container of type 1");
}

/* Tells the owner to go on, and returns its answer: the PID of the holder, or 0 after the map. */
static pid_t tell(int tells, int heard)
{
	pid_t holder;

	need(write(tells, "", 1) == 1 && read(heard, &holder, sizeof(holder)) == sizeof(holder),
	     "no answer");
	return holder;
}

int main(int argc, char **argv)
{
	int tell_owner[2], hear_owner[2], go[2], status;
	long before, mapped, tables, after;
	pid_t owner, holder, unmapper;

	setvbuf(stdout, NULL, _IONBF, 0);
	need(argc == 2, "usage: vfio_uncharge BDF");
	open_container(argv[1]);
	gup = open("/sys/kernel/debug/gup_test", O_RDWR);
	need(gup >= 0, "no CONFIG_GUP_TEST");
	need(!pipe(tell_owner) && !pipe(hear_owner) && !pipe(go), "no pipe");

	owner = fork();
	if (!owner) {
		own(tell_owner[0], hear_owner[1]);
		_exit(0);
	}
	unmapper = fork();
	if (!unmapper) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(hear_owner[1]);
		_exit(read(go[0], &byte, 1) != 1 || ioctl(container, VFIO_IOMMU_UNMAP_DMA, &unmap));
	}
	close(hear_owner[1]);
	need(owner > 0 && unmapper > 0, "no process");

	before = kilobytes(owner, "VmLck:");
	tell(tell_owner[1], hear_owner[0]);
	mapped = kilobytes(owner, "VmLck:");
	need(mapped - before == SIZE >> 10, "the mapping was not charged");

	/* The walk holds mmap_lock until it is killed. It fills a page table for each 2 MiB. */
	tables = kilobytes(owner, "VmPTE:");
	holder = tell(tell_owner[1], hear_owner[0]);
	need(holder > 0, "no process");
	while (kilobytes(owner, "VmPTE:") < tables + 64)
		need(!kill(holder, 0), "the walk is over");
	need(write(go[1], "", 1) == 1, "no pipe");
	while (!waits(unmapper)) {
		need(!waitpid(unmapper, NULL, WNOHANG), "the unmap did not wait for mmap_lock");
		need(!kill(holder, 0), "the walk was over before the unmap");
	}
	kill(unmapper, SIGKILL);
	if (!waits(unmapper)) {
		waitpid(unmapper, &status, 0);
		need(!kill(holder, 0), "the walk was over too early");
		unmapper = 0;
	}
	printf("the unmap %s\n", unmapper ? "still waits, although it was killed" :
					   "was killed while it waited");
	kill(holder, SIGKILL);
	if (unmapper)
		waitpid(unmapper, &status, 0);
	need(WIFSIGNALED(status), "the unmapping process was not killed");

	need(!ioctl(container, VFIO_IOMMU_UNMAP_DMA, &unmap) && !unmap.size,
	     "the range was not unmapped");
	after = kilobytes(owner, "VmLck:");
	kill(owner, SIGKILL);
	printf("VmLck: %ld kB before, %ld kB mapped, %ld kB unmapped\n", before, mapped, after);
	if (after != before)
		printf("locked_vm leaked\n");
	return after != before;
}
