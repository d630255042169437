// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shows that a powerpc KASAN kernel with both memcpy() and __memcpy() reaches user space. A kernel
 * built by gcc 12 or older needs both. Without "powerpc/kasan: Keep the TOC in memcpy() and
 * memmove()", such a kernel hangs before its first line on the console.
 */
#include <stdio.h>
#include <string.h>

int main(void)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	int two = 0, kasan = 0;
	char line[512], type, name[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%*s %c %255s", &type, name) != 2)
			continue;
		two |= !strcmp(name, "memcpy") + 2 * !strcmp(name, "__memcpy");
		kasan |= !strcmp(name, "kasan_check_range");
	}
	if (file)
		fclose(file);
	if (!kasan || two != 3) {
		puts("needs a KASAN kernel built without asan-kernel-mem-intrinsic-prefix");
		return 4;
	}
	puts("the KASAN kernel with memcpy() and __memcpy() has booted");
	return 0;
}
