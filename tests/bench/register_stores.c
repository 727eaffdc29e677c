/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Finds the instructions of a program that store into doorbell registers of an mlx5 device.
 *
 * Preloaded into the program, it makes each writable mapping of the device read-only. A store there raises a signal, whose
 * handler writes a line `OBJECT ADDRESS` to the file that REGISTER_STORES names, unless the instruction is known. Then it
 * lets the instruction alone be executed, and makes the page read-only again. A store of another thread to that page
 * meanwhile is not found: the program stores from one thread at a time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGES	256
#define STORES	4096
#define TRAP_FLAG	0x100

static struct {
	char *start;
	size_t length;
} pages[PAGES];
static size_t page_count, store_count, open_page;
static char *stores[STORES];
static int output;

static void stop(const char *why)
{
	fprintf(stderr, "register_stores: %s\n", why);
	_exit(3);
}

static void protect(size_t page, int access)
{
	if (mprotect(pages[page].start, pages[page].length, access))
		stop("cannot change the access to a page of registers");
}

/* The signal is raised by an instruction that holds no lock of the C library. */
static void note(char *instruction)
{
	Dl_info object;
	size_t i;

	for (i = 0; i < store_count; i++) {
		if (stores[i] == instruction)
			return;
	}
	if (store_count == STORES)
		stop("too many instructions");
	stores[store_count++] = instruction;
	if (!dladdr(instruction, &object))
		stop("an instruction belongs to no object");
	dprintf(output, "%s %#zx\n", object.dli_fname, (size_t)(instruction - (char *)object.dli_fbase));
}

static void on_store(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	char *at = info->si_addr;
	size_t i;

	for (i = 0; i < page_count; i++) {
		if (at >= pages[i].start && at < pages[i].start + pages[i].length) {
			note((char *)registers[REG_RIP]);
			open_page = i;
			protect(i, PROT_READ | PROT_WRITE);
			registers[REG_EFL] |= TRAP_FLAG;
			return;
		}
	}
	/* Another fault of the program: it happens again, and ends the program. */
	signal(number, SIG_DFL);
}

static void after_store(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	protect(open_page, PROT_READ);
}

static int is_device(int fd)
{
	static const char device[] = "/dev/infiniband/uverbs";
	char link[64], path[256];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path)) > (ssize_t)strlen(device) && !memcmp(path, device, strlen(device));
}

static void watch(void *start, size_t length)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO };

	if (page_count == PAGES)
		stop("too many pages of registers");
	pages[page_count].start = start;
	pages[page_count].length = length;
	protect(page_count++, PROT_READ);
	action.sa_sigaction = on_store;
	sigaction(SIGSEGV, &action, NULL);
	action.sa_sigaction = after_store;
	sigaction(SIGTRAP, &action, NULL);
}

void *mmap64(void *wanted, size_t length, int access, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap64");
	void *start = next(wanted, length, access, flags, fd, offset);

	if (start != MAP_FAILED && fd >= 0 && access & PROT_WRITE && is_device(fd))
		watch(start, length);
	return start;
}

int munmap(void *start, size_t length)
{
	int (*next)(void *, size_t) = dlsym(RTLD_NEXT, "munmap");
	size_t i;

	for (i = 0; i < page_count; i++) {
		if (pages[i].start >= (char *)start && pages[i].start < (char *)start + length)
			pages[i].length = 0;
	}
	return next(start, length);
}

void *mmap(void *wanted, size_t length, int access, int flags, int fd, off_t offset)
{
	return mmap64(wanted, length, access, flags, fd, offset);
}

__attribute__((constructor)) static void open_output(void)
{
	char *name = getenv("REGISTER_STORES");

	output = name ? open(name, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
	if (output < 0)
		stop("cannot write the file that REGISTER_STORES names");
}
